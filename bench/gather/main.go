// Command gather compares core/rows with memcpy in C: random rows of a table larger than the caches into one batch.
//
// The contestants work on the same rows in one process and take turns; the figures are medians over the rounds, and
// what they copied is compared before anything is timed. A second table has rows that are stored in fewer bytes.
//
//	go run ./bench/gather                 # 2 GiB table
//	go run ./bench/gather -table 256      # a quick look, in MiB
package main

/*
#cgo CFLAGS: -O3 -march=native
#include "rival.h"
*/
import "C"

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"text/tabwriter"
	"time"
	"unsafe"

	"freshgo/bench/record"
	"freshgo/core/mem"
	"freshgo/core/narrow"
	"freshgo/core/rows"
)

var (
	tableMiB = flag.Int64("table", 2048, "size of the table in MiB")
	batchMiB = flag.Int64("batch", 128, "size of a batch in MiB")
	rounds   = flag.Int("rounds", 9, "turns of each contestant")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	budget := mem.NewBudget(0)
	table, err := budget.Alloc(mem.FeatureCache, *tableMiB<<20)
	if err != nil {
		return err
	}
	src := table.Bytes()
	for i, words := 0, mem.Slice[uint64](table); i < len(words); i++ {
		words[i] = uint64(i) * 0x9e3779b97f4a7c15
	}
	batch, err := budget.Alloc(mem.Batch, 2**batchMiB<<20)
	if err != nil {
		return err
	}
	both := batch.Bytes()
	dst, other := both[:len(both)/2], both[len(both)/2:]
	fmt.Printf(
		"table %d MiB, batch %d MiB, median of %d turns, one thread, GB/s of rows (ratio to memcpy with prefetch)\n",
		*tableMiB,
		*batchMiB,
		*rounds,
	)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "row bytes\tfreshgo\tC memcpy\tC memcpy, prefetch\tcopy in order\t")
	for _, rowBytes := range []int{64, 100, 200, 400, 512, 1024, 2048} {
		if err := compare(w, src, dst, other, rowBytes); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Println("\nfloat32 rows from stored rows of fewer bytes, GB/s of float32 (ratio to stored float32)")
	w = tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "columns\tfloat32\tfloat16\tbfloat16\tint8-per-row\tint8-per-column\t")
	for _, columns := range []int{32, 100, 128, 256, 512} {
		widen(w, src, dst, columns)
	}
	return w.Flush()
}

// widen compares rows that are gathered and then widened in place, as a batch's are, with rows of float32. A table of
// fewer bytes has as many rows.
func widen(w *tabwriter.Writer, src, dst []byte, columns int) {
	wide := 4 * columns
	n := len(dst) / wide
	dst = dst[:n*wide]
	idx := make([]int64, n)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range idx {
		idx[i] = rng.Int64N(int64(len(src) / wide))
	}
	turns := []func(){func() { rows.Gather(dst, src, wide, idx) }}
	for _, form := range []narrow.Form{narrow.Float16, narrow.BFloat16, narrow.Int8Rows, narrow.Int8Columns} {
		c := narrow.Coding{
			Form: form, Elements: columns, Scales: make([]float32, columns), Offsets: make([]float32, columns),
		}
		stored := dst[len(dst)-n*c.RowBytes():]
		turns = append(turns, func() {
			rows.Gather(stored, src, c.RowBytes(), idx)
			c.Widen(dst)
		})
	}
	rates := inTurns(turns, len(dst))
	names := []string{"float32", "freshgo, float16", "freshgo, bfloat16", "freshgo, int8 rows", "freshgo, int8 columns"}
	for i, name := range names {
		contest := fmt.Sprintf("Rows of %d columns, stored and widened", columns)
		record.Rates("gather", contest, name, "GB/s", rates[i])
	}
	fmt.Fprintf(w, "%d\t", columns)
	for i := range turns {
		fmt.Fprintf(w, "%.1f (%.2f)\t", record.Median(rates[i]), record.MedianRatio(rates[i], rates[0]))
	}
	fmt.Fprintln(w)
}

// inTurns returns the rates of each contestant in GB/s. Each turn fills n bytes.
func inTurns(turns []func(), n int) [][]float64 {
	rates := make([][]float64, len(turns))
	for range *rounds {
		for i, turn := range turns {
			start := time.Now()
			turn()
			rates[i] = append(rates[i], float64(n)/time.Since(start).Seconds()/1e9)
		}
	}
	return rates
}

func compare(w *tabwriter.Writer, src, dst, other []byte, rowBytes int) error {
	n := len(dst) / rowBytes
	idx := make([]int64, n)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range idx {
		idx[i] = rng.Int64N(int64(len(src) / rowBytes))
	}
	rival := func(to []byte, ahead int) {
		// unsafe: C reads and writes whole rows inside the slices, which lie outside the Go heap, and reads the
		// indices.
		C.rows_copy((*C.char)(unsafe.Pointer(&to[0])), (*C.char)(unsafe.Pointer(&src[0])), C.int64_t(rowBytes),
			(*C.int64_t)(unsafe.Pointer(&idx[0])), C.int64_t(n), C.int64_t(ahead))
	}
	rows.Gather(dst, src, rowBytes, idx)
	rival(other, 16)
	if !bytes.Equal(dst[:n*rowBytes], other[:n*rowBytes]) {
		return fmt.Errorf("rows of %d bytes: the copies differ", rowBytes)
	}
	turns := []func(){
		func() { rows.Gather(dst, src, rowBytes, idx) },
		func() { rival(dst, 0) },
		func() { rival(dst, 16) },
		func() { copy(dst[:n*rowBytes], src) }, // what the memory gives without random access
	}
	rates := inTurns(turns, n*rowBytes)
	for i, name := range []string{"freshgo", "C memcpy", "C memcpy, prefetch", "copy in order"} {
		record.Rates("gather", fmt.Sprintf("Rows of %d bytes", rowBytes), name, "GB/s", rates[i])
	}
	fmt.Fprintf(w, "%d\t", rowBytes)
	for i := range turns {
		fmt.Fprintf(w, "%.1f (%.2f)\t", record.Median(rates[i]), record.MedianRatio(rates[i], rates[2]))
	}
	fmt.Fprintln(w)
	return nil
}
