//go:build !liburing

package main

// rivalRead is the loop in C; nil where it is not built in.
var rivalRead func(c config, offsets []int64, registered bool) error
