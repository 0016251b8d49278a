package explore

import (
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// CI runs a part of the cases of each product, as their cases run the same code: fewer of them under the race detector,
// which makes a case five times as long, and other ones. Which cases those are changes with the commit. `make test-all`
// runs every case, with and without the detector.

// PartVariable names the variable of the environment that says how many cases stand for one that runs, 1 where it is
// not set and 9 with -short, and by which number they are drawn: "3/17" runs a third, drawn by 17, and "3" by 0.
const PartVariable = "FRESHGO_TEST_PART"

// part returns how many cases stand for one that runs, and the number by which they are drawn.
func part() (every int, by uint64) {
	text := os.Getenv(PartVariable)
	if text == "" && testing.Short() {
		return 9, 0
	}
	if text == "" {
		return 1, 0
	}
	first, second, drawn := strings.Cut(text, "/")
	every, err := strconv.Atoi(first)
	if drawn && err == nil {
		by, err = strconv.ParseUint(second, 10, 64)
	}
	if err != nil || every < 1 {
		panic(fmt.Sprintf("%s is %q, expected a positive integer, or two with a slash between them", PartVariable, text))
	}
	return every, by
}

func fraction() int {
	every, _ := part()
	return every
}

// residue tells the part of -short from the part of a plain run: of the numbers that Part, Run and First draw, a plain
// run takes those that its fraction divides, and -short those that leave 1. A ninth and a third then share no case.
func residue() int {
	if testing.Short() {
		return 1
	}
	return 0
}

// drawn returns a number that depends on the test, on a name and on the environment.
func drawn(t testing.TB, name string) int {
	t.Helper()
	h := fnv.New64a()
	_, _ = io.WriteString(h, t.Name()+name)
	_, by := part()
	return int(rand.NewPCG(by, Seed(t, h.Sum64())).Uint64() >> 1)
}

// All reports whether every case runs.
func All() bool { return fraction() == 1 }

// Rounds returns how many of n rounds to run. Rounds draw from Rand, so that other seeds make other rounds.
func Rounds(n int) int { return (n + fraction() - 1) / fraction() }

// Part returns some of the cases, and one at least. The choice depends on the test, on a name and on the environment,
// so that the tests of a package see all values of an axis.
func Part[T any](t testing.TB, name string, cases []T) (chosen []T) {
	t.Helper()
	every := fraction()
	if every == 1 || len(cases) == 0 {
		return cases
	}
	first := drawn(t, name)
	for i, c := range cases {
		if (first+i)%every == residue() {
			chosen = append(chosen, c)
		}
	}
	if len(chosen) == 0 { // there are fewer cases than stand for one
		chosen = []T{cases[first%len(cases)]}
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
	if every := fraction(); every > 1 {
		if _, later := begun.LoadOrStore(t, true); !later {
			t.Cleanup(func() { begun.Delete(t) })
		} else if drawn(t, "/"+name)%every != residue() {
			return
		}
	}
	t.Run(name, test)
}

// begun holds the tests that have run a case.
var begun sync.Map

// First returns the first call to fail, from 1, in a loop over every call that may fail; Stride is its step.
func First(t testing.TB, name string) int {
	t.Helper()
	if All() {
		return 1
	}
	return 1 + (drawn(t, name)+residue())%fraction()
}

// Stride returns the step of such a loop.
func Stride() int { return fraction() }
