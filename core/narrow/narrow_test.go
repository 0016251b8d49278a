package narrow

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
)

var elements = []int{1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17, 31, 32, 33, 100, 128}

// stored is random stored rows: every bit pattern of float16 and bfloat16 occurs, NaN included.
func stored(c *Coding, rows int, rng *rand.Rand) []byte {
	p := make([]byte, rows*c.RowBytes())
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	if c.Form == Int8Rows {
		for r := range rows {
			putFloat(p[r*c.RowBytes():], rng.Float32())
			putFloat(p[r*c.RowBytes()+4:], rng.Float32()*100-50)
		}
	}
	if c.Form == Int8Columns {
		c.Scales, c.Offsets = make([]float32, c.Elements), make([]float32, c.Elements)
		for i := range c.Scales {
			c.Scales[i], c.Offsets[i] = rng.Float32(), rng.Float32()*100-50
		}
	}
	return p
}

func forms(n int) []Form {
	if n < MinRow {
		return []Form{Float16, BFloat16, Int8Columns}
	}
	return []Form{Float16, BFloat16, Int8Rows, Int8Columns}
}

func TestKernelsWidenInPlaceAsTheDefinitionSays(t *testing.T) {
	rng := explore.Rand(t, 1, 0)
	for _, k := range kernels() {
		for _, n := range elements {
			for _, form := range forms(n) {
				t.Run(fmt.Sprintf("%s/%s/%d", k.name, form, n), func(t *testing.T) {
					for _, rows := range []int{0, 1, 2, 3, 17, 64} {
						c := Coding{Form: form, Elements: n}
						raw := stored(&c, rows, rng)
						dst := make([]byte, rows*c.ValueBytes())
						copy(dst[len(dst)-len(raw):], raw)
						c.widen(k, dst)
						for i := range rows * n {
							row, column := i/n, i%n
							want := c.number(raw[row*c.RowBytes():], column)
							require.Equal(t, math.Float32bits(want), math.Float32bits(getFloat(dst[4*i:])), "row %d column %d", row, column)
						}
					}
				})
			}
		}
	}
}

func encoded(t *testing.T, c *Coding, values []float32) []float32 {
	t.Helper()
	rows := len(values) / c.Elements
	dst := make([]byte, rows*c.ValueBytes())
	require.NoError(t, c.Encode(dst[len(dst)-rows*c.RowBytes():], values, 0, false))
	c.Widen(dst)
	out := make([]float32, len(values))
	for i := range out {
		out[i] = getFloat(dst[4*i:])
	}
	return out
}

func TestInt8IsWithinHalfAStep(t *testing.T) {
	rng := explore.Rand(t, 1, 0)
	for _, n := range []int{8, 9, 32, 100} {
		values := make([]float32, 50*n)
		for i := range values {
			values[i] = float32(rng.NormFloat64()) * float32(math.Pow(10, float64(i%n%5)-2))
		}
		for _, form := range []Form{Int8, Int8Rows, Int8Columns} {
			m := NewMeasure(form, n)
			c := Coding{Form: form, Elements: n}
			if form != Int8Rows {
				require.NoError(t, m.Add(values, 0))
				c = m.Coding()
			}
			got := encoded(t, &c, values)
			for i := range values {
				low, high := values[i], values[i]
				for j := range values { // of its row or its column
					if c.Form == Int8Rows && j/n == i/n || c.Form == Int8Columns && j%n == i%n {
						low, high = min(low, values[j]), max(high, values[j])
					}
				}
				require.InDelta(t, values[i], got[i], float64(high-low)/(4*steps)*1.0001, "%s %d", c.Form, i)
			}
		}
	}
}

func TestTheFormOfInt8IsChosenByError(t *testing.T) {
	const n, rows = 16, 40
	byRow, byColumn := make([]float32, n*rows), make([]float32, n*rows)
	for i := range byRow {
		spread := float32(i%7) - 3
		byRow[i] = spread * float32(math.Pow(2, float64(i/n%20))) // rows differ in scale
		byColumn[i] = spread * float32(math.Pow(2, float64(i%n))) // columns do
	}
	for _, tt := range []struct {
		values []float32
		want   Form
	}{{byRow, Int8Rows}, {byColumn, Int8Columns}} {
		m := NewMeasure(Int8, n)
		require.NoError(t, m.Add(tt.values, 0))
		require.Equal(t, tt.want, m.Coding().Form)
	}
	m := NewMeasure(Int8, 4) // too short for a scale in each row
	require.NoError(t, m.Add(byRow, 0))
	require.Equal(t, Int8Columns, m.Coding().Form)
}

func TestEqualNumbersAreHeldExactly(t *testing.T) {
	floats := make([]float32, 32)
	for i := range floats {
		floats[i] = -3.1415927
	}
	for _, form := range []Form{Int8Rows, Int8Columns} {
		m := NewMeasure(form, 16)
		require.NoError(t, m.Add(floats, 0))
		c := m.Coding()
		require.Equal(t, floats, encoded(t, &c, floats))
	}
}

func TestExtremesOfFloat32AreHeld(t *testing.T) {
	const most = math.MaxFloat32
	least := float32(math.SmallestNonzeroFloat32)
	for _, row := range [][]float32{
		{-most, most, 0, 1, -1, most, -most, 0}, {0, least, -least, 0, 0, 0, 0, least}, {most, most, most, most, 0, 0, 0, 0},
	} {
		c := Coding{Form: Int8Rows, Elements: 8}
		for i, v := range encoded(t, &c, row) {
			require.True(t, finite(v), "%v became %v", row[i], v)
		}
	}
}

func TestNumbersThatAFormCannotHold(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	dst := make([]byte, 64)
	for _, tt := range []struct {
		form Form
		bad  float32
		want string
	}{
		{Float16, 65520, "row 101, column 2 is 65520, too large for float16"},
		{Float16, -1e10, "row 101, column 2 is -1e+10, too large for float16"},
		{BFloat16, math.MaxFloat32, "row 101, column 2 is 3.4028234663852886e+38, too large for bfloat16"},
		{Int8Rows, inf, "row 101, column 2 is +Inf, expected finite numbers to store as int8-per-row"},
		{Int8Rows, nan, "row 101, column 2 is NaN, expected finite numbers to store as int8-per-row"},
		{Int8Columns, nan, "row 101, column 2 is NaN, expected finite numbers to store as int8-per-column"},
	} {
		values := make([]float32, 16)
		values[8+2] = tt.bad
		c := Coding{Form: tt.form, Elements: 8, Scales: make([]float32, 8), Offsets: make([]float32, 8)}
		err := c.Encode(dst, values, 100, false)
		require.EqualError(t, err, tt.want)
		if tt.form == Int8Columns {
			require.EqualError(t, NewMeasure(tt.form, 8).Add(values, 100), tt.want)
		}
		if tt.form == Float16 || tt.form == BFloat16 {
			require.NoError(t, c.Encode(dst, values, 100, true))
			require.True(t, finite(FromFloat16(binary.LittleEndian.Uint16(dst[2*10:]))) || tt.form == BFloat16)
		}
	}
	for _, form := range []Form{Float16, BFloat16} { // these are numbers of theirs
		values := []float32{inf, -inf, nan, 0}
		c := Coding{Form: form, Elements: 4}
		got := encoded(t, &c, values)
		require.Equal(t, values[:2], got[:2])
		require.True(t, got[2] != got[2])
	}
}

func TestClippedNumbersBecomeTheLargest(t *testing.T) {
	c := Coding{Form: Float16, Elements: 2}
	dst := make([]byte, 8)
	require.NoError(t, c.Encode(dst[4:], []float32{1e9, -1e9}, 0, true))
	c.Widen(dst)
	require.Equal(t, []float32{MaxFloat16, -MaxFloat16}, []float32{getFloat(dst), getFloat(dst[4:])})
}
