// Package reuse keeps scratch memory on the Go heap from batch to batch, so that batches of common sizes allocate
// nothing.
package reuse

// Slice returns a slice of n elements of any value, of s where it is long enough.
func Slice[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// Zeros returns a slice of n zeros, of s where it is long enough.
func Zeros[T any](s []T, n int) []T {
	s = Slice(s, n)
	clear(s)
	return s
}
