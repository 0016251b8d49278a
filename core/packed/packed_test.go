package packed

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// random returns n numbers of a width, the extremes among them.
func random(rng *rand.Rand, n int64, width int) []int64 {
	most := uint64(1)<<width - 1
	numbers := make([]int64, n)
	for i := range numbers {
		numbers[i] = int64([]uint64{0, most, rng.Uint64() & most}[rng.IntN(3)])
	}
	return numbers
}

// requireNumbers compares every way to read an array with its numbers.
func requireNumbers(t *testing.T, want []int64, a *Array) {
	t.Helper()
	require.EqualValues(t, len(want), a.Len())
	at, wide, narrow := make([]int64, len(want)), make([]int64, len(want)), make([]uint32, len(want))
	for i, n := range want {
		at[i] = int64(i)
		require.Equal(t, n, a.At(int64(i)), "number %d of %d bits", i, a.width)
	}
	a.Unpack(0, wide)
	require.Equal(t, want, wide)
	Load(a, at, narrow)
	for i, n := range want {
		require.Equal(t, uint32(n), narrow[i])
	}
	a.Prefetch(at)
	a.Prefetch([]int64{-1, math.MinInt64, math.MaxInt64}) // harmless
	Load(a, at, at)                                       // in place
	require.Equal(t, want, at)
}

// Pieces that end anywhere are packed at the same time, and share the words at their ends.
func TestNumbersOfEveryWidth(t *testing.T) {
	for width := 1; width <= mostWidth; width++ {
		rng := rand.New(rand.NewPCG(uint64(width), 1))
		for _, n := range []int64{0, 1, 2, 31, 1000} {
			want := random(rng, n, width)
			memory := make([]byte, Bytes(n, width)+8)
			for i := range memory[len(memory)-8:] {
				memory[len(memory)-8+i] = 0xa5
			}
			a := Of(memory, n, width)
			var pieces sync.WaitGroup
			for first := int64(0); first < n; {
				end := min(n, first+1+rng.Int64N(1+rng.Int64N(200)))
				part, split := want[first:end], rng.Int64N(end-first+1)
				p := a.Packer(first)
				pieces.Go(func() {
					Put(&p, part[:split]) // a packer goes on where it ended
					if width <= 32 {
						narrow := make([]uint32, len(part[split:]))
						for i, v := range part[split:] {
							narrow[i] = uint32(v)
						}
						Put(&p, narrow)
					} else {
						Put(&p, part[split:])
					}
					p.End()
				})
				first = end
			}
			pieces.Wait()
			requireNumbers(t, want, a)
			for _, b := range memory[len(memory)-8:] {
				require.EqualValues(t, 0xa5, b, "what lies behind the array was written")
			}
		}
	}
}

// Cut keeps runs of numbers in the memory of all of them, which wider numbers or as wide ones fill.
func TestCutInPlace(t *testing.T) {
	for width := 1; width <= mostWidth; width++ {
		rng := rand.New(rand.NewPCG(uint64(width), 2))
		for _, n := range []int64{1, 40, 3000} {
			all := random(rng, n, width)
			for _, share := range []int{0, 1, 2} { // of the numbers, in halves
				var want []int64
				var runs [][2]int64
				for from := int64(0); from < n; {
					to := min(n, from+1+rng.Int64N(700))
					if share == 2 || share == 1 && rng.IntN(2) == 0 {
						runs, want = append(runs, [2]int64{from, to}), append(want, all[from:to]...)
					}
					from = to
				}
				a := Of(make([]byte, Bytes(n, width)), n, width)
				p := a.Packer(0)
				Put(&p, all)
				p.End()
				got := Cut(a.data, int64(len(want)), width, func(yield func(from, to int64) bool) {
					for _, r := range runs {
						if !yield(r[0], r[1]) {
							return
						}
					}
				}, a.Unpack)
				requireNumbers(t, append([]int64{}, want...), got)
			}
		}
	}
}

func TestWidth(t *testing.T) {
	for limit, want := range map[int64]int{
		0: 1, 1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 111_059_956: 27, 1 << 27: 27, 1<<27 + 1: 28, 1 << 32: 32, 1 << 40: 40,
	} {
		require.Equal(t, want, Width(limit), fmt.Sprint(limit))
	}
	require.EqualValues(t, 4*(27+2), Bytes(32, 27))
	require.Panics(t, func() { Of(make([]byte, Bytes(32, 27)-1), 32, 27) })
	require.Panics(t, func() { Of(make([]byte, 100), 1, mostWidth+1) })
}
