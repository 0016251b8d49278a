package sample

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A network that sorts all sequences of zeros and ones sorts all numbers (Knuth, 5.3.4, theorem Z).
func TestNetworksSort(t *testing.T) {
	for n := range networkLimit + 1 {
		x := make([]int64, n)
		for bits := range 1 << n {
			ones := 0
			for i := range x {
				x[i] = int64(bits >> i & 1)
				ones += bits >> i & 1
			}
			sortNetwork(x)
			if !slices.IsSorted(x) || slices.Index(append(x, 1), 1) != n-ones {
				require.Fail(t, "not sorted", "%b of %d: %v", bits, n, x)
			}
		}
	}
}
