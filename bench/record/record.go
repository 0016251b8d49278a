// Package record keeps what a benchmark measured, as bench/results.py does for those in Python, and compares it.
package record

import (
	"encoding/json"
	"log"
	"os"
	"slices"
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

// Median returns the median over the rounds.
func Median(x []float64) float64 { return slices.Sorted(slices.Values(x))[len(x)/2] }

// MedianRatio returns the median of the ratios of each round, in which both sides saw the same machine.
func MedianRatio(rates, to []float64) float64 {
	ratios := slices.Clone(rates)
	for round := range ratios {
		ratios[round] /= to[round]
	}
	return Median(ratios)
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
