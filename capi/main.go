// Package main is libfreshgo.so: the functions of csrc/include/freshgo.h, documented in its parts, over the packages of
// core.
//
// It guarantees to its C callers that no panic passes the boundary (guard.go), that a closed or foreign handle is an
// error (handles.go), that nothing long runs inside a call without a time limit (jobs.go), and that every error has a
// code (errors.go). It holds no logic beyond that. The exports are in the export_*.go files. A call costs about 100 ns
// on top of its work.
package main

import "runtime"

// waiting is the number of threads that mostly wait for the disk: one for the io_uring that reads, one for the io_uring
// that writes, and the thread that either wakes.
const waiting = 3

// init gives Go as many threads more than there are processors. They would otherwise wait for one to come free whenever
// all processors compute, and the disk would idle meanwhile. With two processors busy, one thread that reads alone
// reached 0.6 of its requests per second; an epoch that reads and writes took 1.08 times as long with one more than
// processors as with three.
func init() { runtime.GOMAXPROCS(runtime.NumCPU() + waiting) }

func main() {}
