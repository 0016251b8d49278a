package sample

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/asm"
	"freshgo/core/internal/explore"
)

// kinds of weights, each a function of the generator and the offset.
var weightKinds = map[string]func(rng *rand.Rand, i int) float32{
	"equal":   func(*rand.Rand, int) float32 { return 0.1 },
	"uniform": func(rng *rand.Rand, _ int) float32 { return 1 - rng.Float32() },
	"zeros":   func(rng *rand.Rand, _ int) float32 { return float32(rng.IntN(3)) },
	"signed zero": func(rng *rand.Rand, i int) float32 {
		return float32(i%2) * float32(math.Copysign(1, float64(i%4-2))) * 0
	},
	"wide":     func(rng *rand.Rand, _ int) float32 { return float32(math.Exp2(rng.Float64()*250 - 126)) },
	"tiny":     func(rng *rand.Rand, _ int) float32 { return math.Float32frombits(uint32(rng.IntN(50))) },
	"one huge": func(_ *rand.Rand, i int) float32 { return map[bool]float32{true: math.MaxFloat32, false: 1}[i == 3] },
}

// referenceShort is drawShort with numbers of any size, from its definition.
func referenceShort(next func() uint64, list []float64, k int, replace bool) (offsets []int64) {
	left := slices.Clone(list)
	var units []*big.Int
	total := new(big.Int)
	measure := func() {
		_, exponent := math.Frexp(slices.Max(left))
		units, total = nil, new(big.Int)
		for _, w := range left {
			scaled := new(big.Float).SetMantExp(big.NewFloat(w), unitsOfMost+1-exponent)
			u, _ := scaled.Int(nil)
			units = append(units, u)
			total.Add(total, u)
		}
	}
	measure()
	for n := range k {
		point := new(big.Int).Mul(new(big.Int).SetUint64(next()), total)
		point.Rsh(point, 64)
		i, sum := 0, new(big.Int).Set(units[0])
		for sum.Cmp(point) <= 0 {
			i++
			sum.Add(sum, units[i])
		}
		offsets = append(offsets, int64(i))
		if replace {
			continue
		}
		total.Sub(total, units[i])
		left[i], units[i] = 0, new(big.Int)
		if total.Cmp(big.NewInt(unitsEnough)) < 0 && n+1 < k {
			measure()
		}
	}
	return offsets
}

func TestShortListsAreDrawnAsDefined(t *testing.T) {
	explore.Figures(t)
	for name, kind := range weightKinds {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			var room short
			answers := 0
			for n := 1; n <= shortList; n++ {
				list, wide, have := make([]float32, n+1, n+4)[1:], make([]float64, n), 0 // not aligned
				for i := range list {
					list[i] = kind(rng, i)
					wide[i] = float64(list[i])
					if list[i] > 0 {
						have++
					}
				}
				for k := 1; k < have; k++ {
					s := stream(rng.Uint64())
					drawn := s
					next := func() (x uint64) {
						x, drawn = drawn.next()
						return x
					}
					want := referenceShort(next, wide, k, false)
					out := make([]int64, k)
					require.Equal(t, k, drawShort(&room, s, list, false, out))
					require.Equal(t, want, out, "%d of %v", k, list)
					require.Equal(t, k, drawShort(&room, s, wide, false, out))
					require.Equal(t, want, out, "%d of %v", k, wide)
					if asm.Sequence(list, uint64(s), 7, out) {
						answers++
						for i := range out {
							out[i] -= 7
						}
						require.Equal(t, want, out, "%d of %v in vectors", k, list)
					}
				}
				if have < n { // as many as there are, in order
					out := make([]int64, max(1, have))
					require.False(t, asm.Sequence(list, 1, 0, out))
					require.Equal(t, have, drawShort(&room, 1, list, false, out))
				}
			}
			switch name {
			case "equal", "uniform", "zeros":
				require.Equal(t, asm.Lanes, answers > 50)
			}
		})
	}
}
