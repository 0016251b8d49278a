package manifest

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func sample() *Manifest {
	return &Manifest{
		Uuid: []byte("0123456789abcdef"), CreatedUnixNs: 1, Generator: "test",
		NodeTypes: []*NodeType{{Count: 3, Tensors: []*Tensor{{Name: "x",
			Data: &Array{File: "x.bin", RowShape: []int64{4, 5}, CrcFileCrc: 9}}}}},
		EdgeTypes: []*EdgeType{{Count: 7, Indptr: &Array{Dtype: DType_INT64, Rows: 4}}},
	}
}

func TestRoundTrip(t *testing.T) {
	file, err := Encode(sample())
	require.NoError(t, err)
	require.True(t, HasMagic(file))
	got, err := Decode(file)
	require.NoError(t, err)
	again, err := Encode(got)
	require.NoError(t, err)
	require.Equal(t, file, again)
	require.Equal(t, []int64{4, 5}, got.NodeTypes[0].Tensors[0].Data.RowShape)
	require.EqualValues(t, 9, got.NodeTypes[0].Tensors[0].Data.CrcFileCrc)

	copied := Clone(got)
	copied.NodeTypes[0].Count = 99
	require.EqualValues(t, 3, got.NodeTypes[0].Count)
}

func TestDecodeRefuses(t *testing.T) {
	good, err := Encode(sample())
	require.NoError(t, err)
	newer := append([]byte{}, good...)
	binary.LittleEndian.PutUint32(newer[8:], Version+1)
	foreign := append([]byte{}, good...)
	foreign[7] = 1
	for name, tc := range map[string]struct {
		file   []byte
		target error
	}{
		"nothing":      {nil, ErrFormat},
		"foreign":      {foreign, ErrFormat},
		"magic alone":  {good[:8], ErrCorrupt},
		"header alone": {good[:HeaderBytes], ErrCorrupt},
		"cut":          {good[:len(good)-1], ErrCorrupt},
		"longer":       {append(append([]byte{}, good...), 0), ErrCorrupt},
		"newer":        {newer, ErrVersion},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode(tc.file)
			require.ErrorIs(t, err, tc.target)
		})
	}
	for at := range good {
		for bit := range 8 {
			bad := append([]byte{}, good...)
			bad[at] ^= 1 << bit
			_, err := Decode(bad)
			require.Error(t, err, "byte %d, bit %d", at, bit)
		}
	}
}

// TestChecksummedGarbage: a right checksum over a wrong payload is damage, not a panic.
func TestChecksummedGarbage(t *testing.T) {
	file := make([]byte, HeaderBytes+5)
	copy(file, magic)
	binary.LittleEndian.PutUint32(file[8:], Version)
	binary.LittleEndian.PutUint32(file[12:], 5)
	copy(file[HeaderBytes:], "\xff\xff\xff\xff\xff")
	binary.LittleEndian.PutUint32(file[16:], checksum(file))
	_, err := Decode(file)
	require.ErrorIs(t, err, ErrCorrupt)
}

func TestTooLarge(t *testing.T) {
	_, err := Encode(&Manifest{Generator: string(make([]byte, MaxPayloadBytes+1))})
	require.Error(t, err)
}

func TestDTypes(t *testing.T) {
	seen := map[string]bool{}
	for d := DType_BOOL; d.Known(); d++ {
		require.Contains(t, []int{1, 2, 4, 8}, d.Size())
		require.False(t, seen[d.Label()])
		seen[d.Label()] = true
		require.False(t, d.IsInteger() && d.IsFloat())
	}
	require.Len(t, seen, len(DType_name)-1, "every type of the schema has a name and a size")
	require.False(t, DType_BOOL.IsInteger())
	require.True(t, DType_BFLOAT16.IsFloat())
	require.True(t, DType_UINT64.IsInteger())
	for _, d := range []DType{DType_UNSPECIFIED, -1, 14} {
		require.False(t, d.Known())
		require.Contains(t, d.Label(), "dtype(")
	}
}

// FuzzDecode: whatever decodes encodes to something that decodes to the same.
func FuzzDecode(f *testing.F) {
	good, err := Encode(sample())
	require.NoError(f, err)
	f.Add(good)
	f.Add(good[:HeaderBytes])
	rng := rand.New(rand.NewPCG(1, 1))
	for range 10 {
		bad := append([]byte{}, good...)
		bad[rng.IntN(len(bad))]++
		f.Add(bad)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		m, err := Decode(file)
		if err != nil {
			return
		}
		again, err := Encode(m)
		require.NoError(t, err)
		_, err = Decode(again)
		require.NoError(t, err)
	})
}
