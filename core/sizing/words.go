package sizing

import (
	"fmt"

	"freshgo/core/mem"
)

// shortage is a *mem.BudgetError in the words of the caller's options.
type shortage struct {
	text string
	of   mem.BudgetError
}

func (e *shortage) Error() string { return e.text }

func (e *shortage) Unwrap() error { return &e.of }

// short returns the error that a memory of limit bytes needs at least need.
func short(purpose mem.Purpose, need, limit int64, text string) error {
	return &shortage{text, mem.BudgetError{Purpose: purpose, Need: need, Free: limit, Limit: limit}}
}

// OpeningShort returns the error that a memory of limit bytes has no room for what is opened before the memory is
// divided, beside offsets. Its minimum is a bound: what batches need is not known yet.
func OpeningShort(what string, need, offsets, limit int64) error {
	text := fmt.Sprintf("memory=%s is too small: opening %s takes %s, beside %s of offsets and what batches need",
		given(limit), what, atLeast(need), atLeast(offsets))
	return short(mem.Topology, need+offsets, limit, text)
}

var units = []struct {
	bytes int64
	name  string
}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}}

// given spells a size as a caller gives it: "24MiB" in quotes, or a number of bytes.
func given(n int64) string {
	for _, u := range units {
		if n > 0 && n%u.bytes == 0 {
			return fmt.Sprintf("\"%d%s\"", n/u.bytes, u.name)
		}
	}
	return fmt.Sprint(n)
}

// atLeast rounds a size up to a whole number of the largest unit that it has at least ten of, so that the stated size
// is enough.
func atLeast(n int64) string {
	for _, u := range units {
		if n >= 10*u.bytes {
			return fmt.Sprintf("%d %s", (n-1)/u.bytes+1, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
