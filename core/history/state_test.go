package history

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// castagnoli is the table of the standard library, whose sums ours equal.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// lived is a history with something of everything.
func lived(t testing.TB, c Config) *History {
	h := newHistory(t, c, 8)
	rng := rand.New(rand.NewPCG(2, 2))
	out := make([]Admitted, c.Layers)
	for i := range int64(30) {
		layers := make([]Observed, c.Layers)
		for l := range layers {
			o := &layers[l]
			for _, node := range rng.Perm(int(c.NumNodes))[:4] {
				if looked(h, i, l+1, int64(node)) == Miss {
					o.Nodes, o.Norms, o.Saves = append(o.Nodes, int64(node)), append(o.Norms, rng.Float32()),
						append(o.Saves, 9*rng.Float32())
				} else {
					o.HitNodes, o.HitNorms = append(o.HitNodes, int64(node)), append(o.HitNorms, rng.Float32())
				}
			}
		}
		require.NoError(t, h.Update(i, layers, out))
	}
	require.Greater(t, h.entries.live, int64(3))
	return h
}

func ofPolicy(policy string) Config {
	c := Config{NumNodes: 20, Layers: 2, Bytes: 8 * 16, Stale: 7, GradFraction: 0.8, Policy: policy}
	c.Reuse = func(layer int, node int64) float32 { return 1 / float32(node+1) }
	return c
}

var policies = []string{Gradient, Performance, All}

// TestStateAfterALifeIsCut: a state that is saved when entries live for less time from now on has none that are older.
func TestStateAfterALifeIsCut(t *testing.T) {
	h, c := lived(t, ofPolicy(Gradient)), ofPolicy(Gradient)
	live := h.entries.live
	c.Stale = 2
	h.SetSpans(c.Stale, c.Start)
	require.Less(t, h.entries.live, live)
	require.Positive(t, h.entries.live)
	verify(t, h)
	again := newHistory(t, c, 0)
	require.NoError(t, again.Restore(h.Save()))
	require.Equal(t, h.Stats(), again.Stats())
}

// TestStateRoundTrip: a state is restored whole, over whatever is there.
func TestStateRoundTrip(t *testing.T) {
	for _, policy := range policies {
		h := lived(t, ofPolicy(policy))
		state := h.Save()
		again := newHistory(t, ofPolicy(policy), 0)
		require.NoError(t, again.Restore(state))
		require.True(t, bytes.Equal(state, again.Save()))
		require.Equal(t, h.Stats(), again.Stats())
		verify(t, again)
		require.NoError(t, again.Restore(newHistory(t, ofPolicy(policy), 0).Save()), "over what is there")
		verify(t, again)
		require.Zero(t, again.entries.live)
		require.Zero(t, again.entries.top)
	}
}

// seal replaces the checksum.
func seal(state []byte) []byte {
	body := state[:max(len(state)-8, 0)]
	return binary.LittleEndian.AppendUint64(append([]byte{}, body...), uint64(crc32.Checksum(body, castagnoli)))
}

// TestRestoreRefuses: anything that is not a whole state of this history, which then is as it was.
func TestRestoreRefuses(t *testing.T) {
	for _, policy := range policies {
		h := lived(t, ofPolicy(policy))
		good := h.Save()
		other := newHistory(t, ofPolicy(policy), 0)
		untouched := other.Save()
		refused := func(state []byte, target error, name string, args ...any) {
			t.Helper()
			for _, into := range []*History{h, other} {
				before := into.Save()
				require.ErrorIs(t, into.Restore(state), target, append([]any{name}, args...)...)
				require.True(t, bytes.Equal(before, into.Save()), name)
			}
		}
		for n := range len(good) {
			refused(good[:n], ErrState, "cut at %d", n)
			refused(seal(good[:n]), ErrState, "cut at %d, with a checksum", n)
			flipped := append([]byte{}, good...)
			flipped[n] ^= 1 << (n % 8)
			refused(flipped, ErrState, "byte %d flipped", n)
		}
		refused(append(append([]byte{}, good...), 0), ErrState, "longer")
		refused(seal(append(append([]byte{}, good...), make([]byte, 24)...)), ErrState, "longer by an entry, with a checksum")

		// An entry that is wrong behind a right checksum.
		entries := len(good) - 8 - entryWords*8*int(h.entries.live)
		for name, change := range map[string]func(state []byte){
			"slot twice":       func(s []byte) { copy(s[36:40], s[12:16]) },
			"row twice":        func(s []byte) { copy(s[32:36], s[8:12]); s[46] = s[22] },
			"slot beyond":      func(s []byte) { binary.LittleEndian.PutUint32(s[12:], 16) },
			"slot negative":    func(s []byte) { binary.LittleEndian.PutUint32(s[12:], 1<<31) },
			"node beyond":      func(s []byte) { binary.LittleEndian.PutUint32(s[8:], 20) },
			"layer 0":          func(s []byte) { s[22] = 0 },
			"layer beyond":     func(s []byte) { s[22] = 3 },
			"spare byte":       func(s []byte) { s[23] = 1 },
			"from the future":  func(s []byte) { binary.LittleEndian.PutUint64(s, 1000) },
			"before the start": func(s []byte) { binary.LittleEndian.PutUint64(s, 1<<63) },
			"bucket beyond":    func(s []byte) { binary.LittleEndian.PutUint16(s[20:], numBuckets) },
			"need beyond":      func(s []byte) { binary.LittleEndian.PutUint32(s[16:], 1<<32-1) },
		} {
			state := append([]byte{}, good...)
			change(state[entries:])
			refused(seal(state), ErrState, name)
		}
		negative := append([]byte{}, good...)
		negative[8+9*8+2*8+7] = 0x80 // the first counter
		refused(seal(negative), ErrState, "a negative counter")
		for name, change := range map[string]func(c *Config){
			"nodes":    func(c *Config) { c.NumNodes++ },
			"layers":   func(c *Config) { c.Layers++ },
			"bytes":    func(c *Config) { c.Bytes += 8 },
			"stale":    func(c *Config) { c.Stale, c.Policy = 8, Gradient },
			"fraction": func(c *Config) { c.GradFraction, c.Policy = 0.7, Gradient },
			"start":    func(c *Config) { c.Start = 1 },
			"levels":   func(c *Config) { c.Levels = 1 },
		} {
			c := ofPolicy(policy)
			change(&c)
			require.ErrorIs(t, newHistory(t, c, 0).Restore(good), ErrState, name)
		}
		require.True(t, bytes.Equal(untouched, other.Save()))

		wide := newHistory(t, ofPolicy(policy), 16)
		require.ErrorIs(t, wide.Restore(good), ErrRow)
		h.Pin(99, []int32{0})
		require.ErrorIs(t, h.Restore(good), ErrOrder)
		h.Unpin(99)
		require.NoError(t, h.Restore(good))
	}
}

// FuzzRestore: what is taken is a state, whatever the checksum says; what is not changes nothing.
func FuzzRestore(f *testing.F) {
	var before [][]byte // what a state is restored over
	for k, policy := range policies {
		before = append(before, lived(f, ofPolicy(policy)).Save())
		f.Add(before[k], uint8(k))
		f.Add(newHistory(f, ofPolicy(policy), 0).Save(), uint8(k))
	}
	f.Fuzz(func(t *testing.T, state []byte, policy uint8) {
		k := int(policy) % len(policies)
		h := newHistory(t, ofPolicy(policies[k]), 8)
		require.NoError(t, h.Restore(before[k]))
		for _, data := range [][]byte{state, seal(state)} {
			before := h.Save()
			if h.Restore(data) != nil {
				require.True(t, bytes.Equal(before, h.Save()))
			} else {
				require.True(t, bytes.Equal(data, h.Save()))
			}
			verify(t, h)
		}
		if h.rowBytes == 0 {
			require.NoError(t, h.SetRow(8))
		}
		require.NoError(t, h.Update(h.updated+1, make([]Observed, 2), make([]Admitted, 2)))
		verify(t, h)
	})
}
