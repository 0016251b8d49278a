package narrow

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// halves are the two formats of two bytes: how each is read, and what its infinity is.
var halves = []struct {
	form     Form
	from     func(uint16) float32
	infinite uint16
	beyond   float64 // the number that would follow the largest
}{
	{Float16, FromFloat16, 0x7c00, 1 << 16},
	{BFloat16, FromBFloat16, 0x7f80, 1 << 128},
}

func rounded(form Form, v float64) uint16 {
	var h [2]byte
	Round(form, h[:], []float64{v})
	return binary.LittleEndian.Uint16(h[:])
}

func TestValuesOfHalves(t *testing.T) {
	for h, want := range map[uint16]float64{
		0x3c00: 1, 0xc000: -2, 0x7bff: MaxFloat16, 0x0001: 0x1p-24, 0x0400: 0x1p-14, 0x8000: 0,
	} {
		require.Equal(t, want, float64(FromFloat16(h))) //nolint:testifylint // exact
	}
	for h, want := range map[uint16]float64{0x3f80: 1, 0xc000: -2, 0x0001: 0x1p-133, 0x0080: 0x1p-126} {
		require.Equal(t, want, float64(FromBFloat16(h))) //nolint:testifylint // exact
	}
}

func TestEveryHalfSurvivesBothWays(t *testing.T) {
	for _, f := range halves {
		quiet := uint16(0x8000-int(f.infinite)) >> 1
		for h := range 1 << 16 {
			want, v := uint16(h), f.from(uint16(h))
			if v != v {
				want |= quiet
			}
			require.Equal(t, want, rounded(f.form, float64(v)), "%s %04x", f.form, h)
		}
	}
}

// Rounding is to the nearest neighbour, and to the even one of two that are equally near: it changes halfway between
// each two, and nowhere else.
func TestRoundingIsToTheNearestEven(t *testing.T) {
	for _, f := range halves {
		for h := range f.infinite {
			high := f.beyond
			if h+1 < f.infinite {
				high = float64(f.from(h + 1))
			}
			halfway, even := (float64(f.from(h))+high)/2, h+h&1
			for sign, v := range map[uint16]float64{0: halfway, 0x8000: -halfway} {
				require.Equal(t, even|sign, rounded(f.form, v), "%s %04x", f.form, h)
				require.Equal(t, h|sign, rounded(f.form, math.Nextafter(v, 0)), "%s %04x", f.form, h)
				require.Equal(t, (h+1)|sign, rounded(f.form, math.Nextafter(v, 2*v)), "%s %04x", f.form, h)
			}
		}
		require.Equal(t, f.infinite, rounded(f.form, math.MaxFloat64))
		require.EqualValues(t, 0x8000, rounded(f.form, -math.SmallestNonzeroFloat64))
	}
}
