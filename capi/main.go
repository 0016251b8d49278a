// Package main is libfreshgo.so: the functions of csrc/include/freshgo.h, documented in its parts, over the packages of
// core.
//
// It guarantees to its C callers that no panic passes the boundary (guard.go), that a closed or foreign handle is an
// error (handles.go), that nothing long runs inside a call without a time limit (jobs.go), and that every error has a
// code (errors.go). It holds no logic beyond that. The exports are in the export_*.go files. A call costs about 100 ns
// on top of its work.
package main

import "runtime"

// init gives Go one more thread than there are processors: the thread that owns the io_uring would otherwise wait for
// one to come free whenever all of them compute, and the device would idle meanwhile (measured: 0.6 of its requests per
// second with two processors busy).
func init() { runtime.GOMAXPROCS(runtime.NumCPU() + 1) }

func main() {}
