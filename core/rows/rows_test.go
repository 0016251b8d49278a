package rows

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// aligned returns n bytes whose address is off bytes past a multiple of 64.
func aligned(n, off int) []byte {
	p := make([]byte, n+128)
	skip := (64 - int(uintptr(unsafe.Pointer(&p[0]))%64)) % 64 // unsafe: only the address is looked at
	return p[skip+off : skip+off+n : skip+off+n]
}

func fill(p []byte, rng *rand.ChaCha8) []byte {
	_, _ = rng.Read(p) // never fails
	return p
}

func TestPortableKernelIsAlwaysOffered(t *testing.T) {
	ks := kernels()
	require.Equal(t, portable, ks[len(ks)-1])
	require.Equal(t, ks[0], best)
}

func TestKernelsCopyRows(t *testing.T) {
	const srcRows, margin = 700, 64
	for _, k := range kernels() {
		for _, rowBytes := range []int{1, 4, 7, 31, 32, 33, 63, 64, 65, 96, 127, 128, 160, 192, 400, 512, 513, 1000} {
			for _, off := range []int{0, 32, 1} { // aligned to either vector, to the shorter one, to none
				t.Run(fmt.Sprintf("%s/row=%d/off=%d", k, rowBytes, off), func(t *testing.T) {
					bits := rand.NewChaCha8([32]byte{byte(rowBytes)})
					rng := rand.New(bits)
					src := fill(aligned(srcRows*rowBytes, 0), bits)
					for _, n := range []int{0, 1, 15, 16, 17, 63, 64, 65, 80, 81, 300} {
						idx, perm := make([]int64, n), make([]int32, n)
						for i, p := range rng.Perm(n) {
							idx[i], perm[i] = rng.Int64N(srcRows), int32(p)
						}
						got := fill(aligned(n*rowBytes+margin, off), bits)
						want := slices.Clone(got)
						for i, r := range idx {
							copy(want[i*rowBytes:(i+1)*rowBytes], src[int(r)*rowBytes:])
						}
						copyRows(k, got[:n*rowBytes], nil, src, idx, rowBytes)
						require.True(t, slices.Equal(want, got), "in order, n=%d", n)
						for i, r := range idx {
							copy(want[int(perm[i])*rowBytes:int(perm[i]+1)*rowBytes], src[int(r)*rowBytes:])
						}
						copyRows(k, got[:n*rowBytes], perm, src, idx, rowBytes)
						require.True(t, slices.Equal(want, got), "permuted, n=%d", n)
					}
				})
			}
		}
	}
}

func TestGatherAndCopyTakeBothIndexTypes(t *testing.T) {
	src := []byte("aabbccdd")
	dst := make([]byte, 4)
	Gather(dst, src, 2, []int64{3, 1})
	require.Equal(t, "ddbb", string(dst))
	Gather(dst, src, 2, []int32{0, 2})
	require.Equal(t, "aacc", string(dst))
	Copy(dst, []int32{1, 0}, src, []int64{3, 1}, 2)
	require.Equal(t, "bbdd", string(dst))
	Gather(nil, nil, 0, []int64{5}) // rows without bytes: any index is a row
}

// TestNothingIsAllocated: a plan that sets rows aside copies a dozen of them at a time.
func TestNothingIsAllocated(t *testing.T) {
	src, dst := make([]byte, 4096), make([]byte, 4096)
	require.Zero(t, testing.AllocsPerRun(100, func() { Gather(dst, src, 128, []int32{3, 1}) }))
	require.Zero(t, testing.AllocsPerRun(100, func() { Copy(dst, []int32{1, 0}, src, []int64{3, 1}, 128) }))
}

func TestRowIndicesAreChecked(t *testing.T) {
	src, dst := make([]byte, 8), make([]byte, 4)
	tests := []struct {
		name string
		call func()
		want string
	}{
		{"source too large", func() { Gather(dst, src, 2, []int64{0, 4}) }, "rows: source row 4 of index 1 is not in [0, 4)"},
		{"source negative", func() { Gather(dst, src, 2, []int32{-1}) }, "rows: source row -1 of index 0 is not in [0, 4)"},
		{"destination too small", func() { Gather(dst, src, 2, []int64{0, 1, 2}) },
			"rows: 3 rows do not fit a destination of 2"},
		{"destination row too large", func() { Copy(dst, []int32{2}, src, []int64{0}, 2) },
			"rows: destination row 2 of index 0 is not in [0, 2)"},
		{"destination row negative", func() { Copy(dst, []int32{-1}, src, []int64{0}, 2) },
			"rows: destination row -1 of index 0 is not in [0, 2)"},
		{"lengths differ", func() { Copy(dst, []int32{1}, src, []int64{0, 1}, 2) },
			"rows: 1 destination rows for 2 source rows"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.PanicsWithValue(t, tt.want, tt.call)
			require.Equal(t, make([]byte, 4), dst)
		})
	}
}
