// Package record keeps what a benchmark measured, as bench/results.py does for those in Python.
package record

import (
	"encoding/json"
	"log"
	"os"
)

type line struct {
	Bench  string    `json:"bench"`
	Case   string    `json:"case"`
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
	Unit   string    `json:"unit"`
	More   bool      `json:"more"`
}

// Times appends the seconds of each round of a candidate to the file that $FRESHGO_BENCH_RESULTS names, if it does.
func Times(bench, contest, name string, seconds []float64) {
	keep(line{bench, contest, name, seconds, "s", false})
}

// Rates is Times for figures where more is better.
func Rates(bench, contest, name, unit string, rates []float64) {
	keep(line{bench, contest, name, rates, unit, true})
}

func keep(l line) {
	path := os.Getenv("FRESHGO_BENCH_RESULTS")
	if path == "" {
		return
	}
	text, err := json.Marshal(l)
	if err != nil {
		log.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	if _, err = file.Write(append(text, '\n')); err != nil {
		log.Fatal(err)
	}
	if err = file.Close(); err != nil {
		log.Fatal(err)
	}
}
