package sample

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// vectors returns arguments of logarithm, all in [2^-54, 1), and of exponentialMinus1, all at most 0: edges of their
// cases, and bits at random.
func vectors() (logs, exps []float64) {
	s := stream(7)
	var x uint64
	for range 100 {
		x, s = s.next()
		logs = append(logs, (float64(x>>11)+0.5)*0x1p-53, math.Float64frombits(x>>12|(1023-54+x%54)<<52))
		x, s = s.next()
		exps = append(exps, -math.Float64frombits(x>>12|(1023-60+x%68)<<52))
	}
	for _, at := range []float64{0x1p-54, 0.5, math.Sqrt2 / 2, 1} {
		logs = append(logs, at, math.Nextafter(at, 0), math.Nextafter(at, 2))
	}
	for _, at := range []float64{0x1p-54, math.Ln2 / 2, 1.5 * math.Ln2, 2.5 * math.Ln2, 56 * math.Ln2, 1e300} {
		exps = append(exps, -at, -math.Nextafter(at, 0), -math.Nextafter(at, math.Inf(1)))
	}
	return logs, append(exps, 0, math.Copysign(0, -1), math.Inf(-1))
}

// TestLogarithmBits: the bits of results are those of testdata/logarithm.txt, which the device is held to as well.
func TestLogarithmBits(t *testing.T) {
	logs, exps := vectors()
	var have []string
	for _, x := range logs {
		have = append(have, fmt.Sprintf("log %016x %016x", math.Float64bits(x), math.Float64bits(logarithm(x))))
	}
	for _, x := range exps {
		have = append(have, fmt.Sprintf("exp %016x %016x", math.Float64bits(x), math.Float64bits(exponentialMinus1(x))))
	}
	file, err := os.Open("testdata/logarithm.txt")
	require.NoError(t, err)
	defer file.Close()
	var want []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		want = append(want, lines.Text())
	}
	require.Equal(t, want, have)
}

// TestLogarithmIsGos: results are those of package math, whose compiler or assembler fuses nothing on amd64, and
// elsewhere close to them.
func TestLogarithmIsGos(t *testing.T) {
	same := func(want, have float64) {
		if runtime.GOARCH == "amd64" {
			require.Equal(t, math.Float64bits(want), math.Float64bits(have))
		}
		require.InDelta(t, want, have, 1e-15*max(1, math.Abs(want)))
	}
	s := stream(3)
	var x uint64
	for range 200_000 {
		x, s = s.next()
		u := (float64(x>>11) + 0.5) * 0x1p-53
		same(math.Log(u), logarithm(u))
		x, s = s.next()
		e := -math.Float64frombits(x>>12 | (1023-60+x%68)<<52)
		same(math.Expm1(e), exponentialMinus1(e))
	}
	logs, exps := vectors()
	for _, u := range logs {
		same(math.Log(u), logarithm(u))
	}
	for _, e := range exps[:len(exps)-1] {
		same(math.Expm1(e), exponentialMinus1(e))
	}
	require.EqualValues(t, -1, exponentialMinus1(math.Inf(-1)))
}
