// Package lint is the rules of core as tests: which package may import which, what the pure Go part must not use, and
// what has to be explained. It contains no code of its own; go test runs it.
package lint
