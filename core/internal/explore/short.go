package explore

import (
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"strconv"
	"sync"
	"testing"
)

// CI runs a part of the cases of each product, as their cases run the same code: less of them under the race detector,
// which makes a case five times as long. `make test-all` runs every case, with and without the detector.

// PartVariable names the variable of the environment that says how many cases stand for one that runs: 1 where it is
// not set, and 9 with -short.
const PartVariable = "FRESHGO_TEST_PART"

// fraction is how many cases stand for one that runs.
func fraction() int {
	text := os.Getenv(PartVariable)
	switch n, err := strconv.Atoi(text); {
	case text == "" && testing.Short():
		return 9
	case text == "":
		return 1
	case err != nil || n < 1:
		panic(fmt.Sprintf("%s is %q, expected a positive integer", PartVariable, text))
	default:
		return n
	}
}

// Rounds is how many of n cases to run.
func Rounds(n int) int { return (n + fraction() - 1) / fraction() }

// Part is some of the cases, and one at least. Which those are depends on the test, on a name and on the environment,
// so that the tests of a package see all values of an axis.
func Part[T any](t testing.TB, name string, cases []T) (chosen []T) {
	t.Helper()
	every := fraction()
	if every == 1 || len(cases) == 0 {
		return cases
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, t.Name()+name)
	for i := int(Seed(t, h.Sum64()) % uint64(min(every, len(cases)))); i < len(cases); i += every {
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

// Run is t.Run for one case of a product. Of a test it runs the first case and a part of the others, drawn by their
// names and the environment.
func Run(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	if every := uint64(fraction()); every > 1 {
		h := fnv.New64a()
		_, _ = io.WriteString(h, t.Name()+"/"+name)
		if _, later := begun.LoadOrStore(t, true); !later {
			t.Cleanup(func() { begun.Delete(t) })
		} else if Seed(t, h.Sum64())%every != 0 {
			return
		}
	}
	t.Run(name, test)
}

// begun are the tests of which a case has run.
var begun sync.Map

// Stride is the step of a loop over every call that may fail.
func Stride() int { return fraction() }
