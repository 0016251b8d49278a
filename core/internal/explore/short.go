package explore

import (
	"hash/fnv"
	"io"
	"sync"
	"testing"
)

// With -short a test runs a part of its cases: CI has it so under the race detector, which makes a case four times as
// long and sees the same code in each. The run without the detector has all of them.

// fraction is the part: a ninth.
const fraction = 9

// Rounds is how many of n cases to run: all, or with -short a ninth.
func Rounds(n int) int {
	if testing.Short() {
		return (n + fraction - 1) / fraction
	}
	return n
}

// Part is all of some cases or, with -short, every ninth of them, and one at least. Which those are depends on the
// test, on a name and on the environment, so that the tests of a package see all values of an axis.
func Part[T any](t testing.TB, name string, cases []T) (chosen []T) {
	t.Helper()
	if !testing.Short() || len(cases) == 0 {
		return cases
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, t.Name()+name)
	for i := int(Seed(t, h.Sum64()) % uint64(min(fraction, len(cases)))); i < len(cases); i += fraction {
		chosen = append(chosen, cases[i])
	}
	return chosen
}

// Figures begins a test that looks at figures alone: sizes, counts, shares of draws. They do not depend on threads, and
// other tests run the same code, so with -short it is left out.
func Figures(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("looks at figures alone")
	}
}

// Run is t.Run for one case of a product. With -short it runs the first case of a test and about every ninth of the
// others, drawn by their names and the environment.
func Run(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	if testing.Short() {
		h := fnv.New64a()
		_, _ = io.WriteString(h, t.Name()+"/"+name)
		if _, later := begun.LoadOrStore(t, true); !later {
			t.Cleanup(func() { begun.Delete(t) })
		} else if Seed(t, h.Sum64())%fraction != 0 {
			return
		}
	}
	t.Run(name, test)
}

// begun are the tests of which a case has run.
var begun sync.Map

// Stride is the step of a loop over every call that may fail: one, or with -short nine.
func Stride() int {
	if testing.Short() {
		return fraction
	}
	return 1
}
