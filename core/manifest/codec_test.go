package manifest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
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
	file := sealed([]byte("\xff\xff\xff\xff\xff"))
	_, err := Decode(file)
	require.ErrorIs(t, err, ErrCorrupt)
}

// TestVersionIsTheOldest: a manifest has the version of what it describes, so that older programs read what they can
// and refuse what they would misread.
func TestVersionIsTheOldest(t *testing.T) {
	m := sample()
	for version, unnumbered := range map[uint32]bool{1: false, 2: true} {
		m.EdgeTypes[0].Unnumbered = unnumbered
		file, err := Encode(m)
		require.NoError(t, err)
		require.Equal(t, version, binary.LittleEndian.Uint32(file[8:]))
		got, err := Decode(file)
		require.NoError(t, err)
		require.Equal(t, unnumbered, got.EdgeTypes[0].Unnumbered)
		binary.LittleEndian.PutUint32(file[8:], 3-version)
		binary.LittleEndian.PutUint32(file[16:], checksum(file))
		_, err = Decode(file)
		require.ErrorIs(t, err, ErrCorrupt)
	}
}

func TestTooLarge(t *testing.T) {
	_, err := Encode(&Manifest{Generator: string(make([]byte, MaxPayloadBytes+1))})
	require.Error(t, err)
}

// sealed is a manifest file with any payload.
func sealed(payload []byte) []byte {
	file := make([]byte, HeaderBytes, HeaderBytes+len(payload))
	copy(file, magic)
	binary.LittleEndian.PutUint32(file[8:], 1)
	binary.LittleEndian.PutUint32(file[12:], uint32(len(payload)))
	file = append(file, payload...)
	binary.LittleEndian.PutUint32(file[16:], checksum(file))
	return file
}

// TestManyParts: a file of empty messages, or of small integers, allocates little more than its own size.
func TestManyParts(t *testing.T) {
	shape := protowire.AppendTag(nil, 6, protowire.BytesType)
	shape = protowire.AppendBytes(shape, make([]byte, MaxPayloadBytes/2))
	nested := func(numbers []protowire.Number, inner []byte) []byte {
		for _, number := range numbers {
			inner = protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), inner)
		}
		return inner
	}
	nodeTypes, tensors, data := fieldOf(t, "node_types"), fieldOf(t, "node_types", "tensors"),
		fieldOf(t, "node_types", "tensors", "data")
	empty := bytes.Repeat(nested([]protowire.Number{nodeTypes}, nil), MaxPayloadBytes/4)
	for name, payload := range map[string][]byte{
		"node types": empty,
		"tensors": nested([]protowire.Number{nodeTypes},
			bytes.Repeat(nested([]protowire.Number{tensors}, nil), MaxPayloadBytes/4)),
		"shape": nested([]protowire.Number{data, tensors, nodeTypes}, shape),
		"unpacked shape": nested([]protowire.Number{data, tensors, nodeTypes},
			bytes.Repeat(protowire.AppendVarint(protowire.AppendTag(nil, 6, protowire.VarintType), 1), maxParts+1)),
	} {
		t.Run(name, func(t *testing.T) {
			file := sealed(payload)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Decode(file)
			runtime.ReadMemStats(&after)
			require.ErrorIs(t, err, ErrCorrupt)
			require.ErrorContains(t, err, "parts")
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
		})
	}
	most := sealed(empty[:2*maxParts])
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := Decode(most)
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Len(t, m.NodeTypes, maxParts)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(80<<20))
	_, err = Decode(sealed(empty[:2*maxParts+2]))
	require.ErrorIs(t, err, ErrCorrupt)
}

// fieldOf returns the number of a field of the message that fields of the manifest lead to.
func fieldOf(t *testing.T, path ...string) protowire.Number {
	kind := new(Manifest).ProtoReflect().Descriptor()
	for _, name := range path[:len(path)-1] {
		kind = kind.Fields().ByName(protoreflect.Name(name)).Message()
	}
	field := kind.Fields().ByName(protoreflect.Name(path[len(path)-1]))
	require.NotNil(t, field)
	return field.Number()
}

func TestDTypes(t *testing.T) {
	seen := map[string]bool{}
	for d := DType_BOOL; d.Known(); d++ {
		require.Contains(t, []int{1, 2, 4, 8}, d.Size())
		require.False(t, seen[d.Label()])
		seen[d.Label()] = true
		require.False(t, d.IsInteger() && d.IsFloat())
	}
	require.Equal(t, 5, DType_UINT40.Size())
	require.False(t, DType_UINT40.Known(), "no tensor has it")
	require.Len(t, seen, len(DType_name)-2, "every type of the schema has a name and a size")
	require.False(t, DType_BOOL.IsInteger())
	require.True(t, DType_BFLOAT16.IsFloat())
	require.True(t, DType_UINT64.IsInteger())
	for _, d := range []DType{DType_UNSPECIFIED, -1, 15} {
		require.False(t, d.Known())
		require.Contains(t, d.Label(), "dtype(")
	}
}

// FuzzDecode: whatever decodes encodes to something that decodes to the same. Each file is tried with a header that
// fits it, too.
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
		for range 2 {
			if m, err := Decode(file); err == nil {
				again, err := Encode(m)
				require.NoError(t, err)
				_, err = Decode(again)
				require.NoError(t, err)
			}
			if len(file) < HeaderBytes {
				return
			}
			file = append([]byte(magic+"\x01\x00\x00\x00"), file[12:]...)
			binary.LittleEndian.PutUint32(file[12:], uint32(len(file)-HeaderBytes))
			binary.LittleEndian.PutUint32(file[16:], checksum(file))
		}
	})
}
