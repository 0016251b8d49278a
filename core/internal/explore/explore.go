// Package explore gives tests that draw at random their seeds.
//
// The seeds of a test are constants, so that what CI says can be repeated. Where the environment has FRESHGO_TEST_SEED,
// every seed depends on it, and a test that fails names it. `make explore` runs these tests with fresh seeds for as
// long as it is told: it finds the functions that call Seed or Rand by their source, so the calls stand in the function
// of the test itself and not in a helper. A test whose tolerance is a matter of chance does not belong here.
package explore

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
)

// Variable is the variable of the environment that changes all seeds.
const Variable = "FRESHGO_TEST_SEED"

// told are the tests at work that will name the variable if they fail.
var told sync.Map

// Seed returns the seed itself, or one that depends on it and on the environment.
func Seed(t testing.TB, seed uint64) uint64 {
	t.Helper()
	text := os.Getenv(Variable)
	if text == "" {
		return seed
	}
	fresh, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s is %q, expected an integer of 64 bits without a sign", Variable, text)
	}
	if _, twice := told.LoadOrStore(t, true); !twice {
		t.Cleanup(func() {
			if told.Delete(t); t.Failed() {
				t.Logf("%s=%s repeats it", Variable, text)
			}
		})
	}
	return rand.NewPCG(fresh, seed).Uint64()
}

// Rand returns a generator of two seeds; the first is passed through Seed.
func Rand(t testing.TB, seed, stream uint64) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t, seed), stream))
}
