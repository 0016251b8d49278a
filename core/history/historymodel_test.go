package history

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
)

// verify ends the test unless what holds between two calls holds.
func verify(t testing.TB, h *History) {
	t.Helper()
	defer func() {
		if broken := recover(); broken != nil {
			t.Helper()
			t.Fatal(broken)
		}
	}()
	h.entries.check()
}

// trainer runs a History and its reference against a buffer of real bytes, as a training loop would.
type trainer struct {
	t      *testing.T
	rng    *rand.Rand
	h      *History
	budget *mem.Budget
	ref    *historyReference
	c      Config
	row    int64
	buffer []byte
	ahead  map[int64]*aheadBatch
	norms  int // how norms are drawn
}

type aheadBatch struct {
	layers  []Observed
	lookups *Lookups
	relied  map[int32][]byte // what the slots held when they were pinned
}

// stamp is the content of a row.
func stamp(n int64, a, b, c int64) []byte {
	row := make([]byte, n)
	rng := rand.NewPCG(uint64(a*1000+b), uint64(c))
	for k := range row {
		row[k] = byte(rng.Uint64())
	}
	return row
}

func (r *trainer) at(slot int32) []byte { return r.buffer[int64(slot)*r.row:][:r.row] }

// check compares every byte that must be there.
func (r *trainer) check() {
	for i, b := range r.ahead {
		for slot, row := range b.relied {
			if !bytes.Equal(row, r.at(slot)) {
				r.t.Fatalf("slot %d, which iteration %d relies on, is written over", slot, i)
			}
		}
	}
	for key, e := range r.ref.entries {
		if !bytes.Equal(stamp(r.row, int64(key.layer), key.node, e.admitted), r.at(e.slot)) {
			r.t.Fatalf("slot %d has not the row of node %d at layer %d", e.slot, key.node, key.layer)
		}
	}
	require.Equal(r.t, r.ref.figures(), r.h.Stats())
	verify(r.t, r.h)
}

// prune looks up random rows of a batch.
func (r *trainer) prune(i int64) {
	b := &aheadBatch{layers: make([]Observed, r.c.Layers), lookups: NewLookups(r.c.Layers), relied: map[int32][]byte{}}
	for l := range b.layers {
		o := &b.layers[l]
		var slots []int32
		for _, node := range r.rng.Perm(int(r.c.NumNodes))[:r.rng.IntN(int(r.c.NumNodes)+1)] {
			if r.rng.IntN(2) == 0 {
				node = node * node / int(r.c.NumNodes) // some are popular, and so come twice
			}
			node := int64(node)
			want, one := r.ref.lookup(i, l+1, node), []int32{0}
			r.h.Lookup(i, l+1, []int64{node}, one, b.lookups)
			slot := one[0]
			require.Equal(r.t, want, slot)
			require.Equal(r.t, want, r.h.Find(i, l+1, node))
			if slot == Miss {
				o.Nodes = append(o.Nodes, node)
				continue
			}
			admitted := r.h.Admission(l+1, node)
			require.True(r.t, i-admitted >= 1+min(i-r.oldestOpen(i), r.c.Lag) && i-admitted <= r.ref.c.Stale,
				"admitted at %d, read at %d", admitted, i)
			require.Equal(r.t, stamp(r.row, int64(l+1), node, admitted), r.at(slot))
			o.HitNodes = append(o.HitNodes, node)
			b.relied[slot] = slices.Clone(r.at(slot))
			slots = append(slots, slot)
		}
		r.h.Pin(i, slots)
		if len(slots) > 0 {
			r.ref.pinned[i] = append(r.ref.pinned[i], slots...)
		}
	}
	r.ahead[i] = b
}

// oldestOpen is the first iteration that is not updated when i is pruned.
func (r *trainer) oldestOpen(i int64) int64 {
	for open := range r.ahead {
		i = min(i, open)
	}
	return i
}

func (r *trainer) norm() float32 {
	switch r.norms {
	case 0:
		return 1
	case 1:
		return 0
	case 2:
		return float32(r.rng.IntN(4))
	case 3:
		nan, inf, zero := float32(math.NaN()), float32(math.Inf(1)), float32(0)
		return []float32{nan, inf, -inf, zero, -zero, 1, math.MaxFloat32, 1e-45}[r.rng.IntN(8)]
	case 4:
		return float32(math.NaN())
	}
	return r.rng.Float32()
}

// update judges a batch, or skips it.
func (r *trainer) update(i int64) {
	b := r.ahead[i]
	r.h.Count(b.lookups)
	r.ref.use(i)
	var layers []Observed
	if r.rng.IntN(10) > 0 {
		r.norms = r.rng.IntN(8)
		layers = b.layers
		for l := range layers {
			o := &layers[l]
			for range o.Nodes {
				o.Norms = append(o.Norms, r.norm())
				o.Saves = append(o.Saves, []float32{0, 1, 2, 8 * r.rng.Float32(), float32(math.NaN())}[r.rng.IntN(5)])
			}
			for range o.HitNodes {
				o.HitNorms = append(o.HitNorms, r.norm())
			}
			if r.rng.IntN(8) == 0 { // the layer is not judged
				o.Norms, o.HitNorms = nil, nil
			}
		}
		require.NoError(r.t, r.h.SetRow(r.row))
		r.ref.row = r.row
	}
	want := r.ref.update(i, layers)
	got := make([]Admitted, r.c.Layers)
	require.NoError(r.t, r.h.Update(i, layers, got))
	written := map[int32]bool{}
	for l := range layers {
		require.Equal(r.t, len(want[l].Rows), len(got[l].Rows))
		require.Equal(r.t, want[l].Rows, append([]int32(nil), got[l].Rows...))
		require.Equal(r.t, want[l].Slots, append([]int32(nil), got[l].Slots...))
		for k, slot := range got[l].Slots {
			require.False(r.t, written[slot], "slot %d is written twice", slot)
			written[slot] = true
			copy(r.at(slot), stamp(r.row, int64(l+1), layers[l].Nodes[got[l].Rows[k]], i))
		}
	}
	r.check()
	delete(r.ahead, i)
	r.ref.unpin(i)
	r.h.Unpin(i)
	r.check()
}

// restart goes on with another History.
func (r *trainer) restart() {
	state := r.h.Save()
	require.True(r.t, bytes.Equal(state, r.h.Save()))
	r.h.Close()
	require.Zero(r.t, r.budget.Used())
	h, err := New(r.budget, r.c)
	require.NoError(r.t, err)
	r.h = h
	require.NoError(r.t, h.Restore(state))
	require.True(r.t, bytes.Equal(state, h.Save()))
	for i, b := range r.ahead {
		for l, o := range b.layers {
			for _, node := range o.HitNodes {
				// What the loader would find in its own state: the slots of the hits.
				for slot, row := range b.relied {
					if e := r.ref.entries[refKey{l + 1, node}]; e != nil && e.slot == slot &&
						bytes.Equal(row, stamp(r.row, int64(l+1), node, e.admitted)) {
						require.True(r.t, h.Pinnable(i, l+1, node, slot))
					}
				}
			}
		}
		h.Pin(i, r.ref.pinned[i])
	}
	r.check()
}

func randomConfig(rng *rand.Rand, policy string) (c Config, row int64) {
	c = Config{NumNodes: 1 + rng.Int64N(40), Layers: 1 + rng.IntN(3), RowBytes: 1, Policy: policy, Lag: rng.Int64N(5)}
	row = 1 + rng.Int64N(24)
	all := c.NumNodes * int64(c.Layers)
	c.Bytes = row*(1+rng.Int64N(all+all/4+1)) + rng.Int64N(row)
	c.Stale = []int64{0, 1, 2, 3, 5, 20, Forever}[rng.IntN(7)]
	c.Start = []int64{0, 0, 0, 7}[rng.IntN(4)]
	c.GradFraction = []float64{0, 0.1, 0.5, 0.9, 0.9, 1}[rng.IntN(6)]
	kinds := int64(4 + rng.IntN(2))
	c.Reuse = func(layer int, node int64) float32 {
		return []float32{0, 0.5, 1 / float32(node+1), 5, float32(math.NaN())}[node%kinds] / float32(layer)
	}
	return c, row
}

// TestHistoryEqualsReference: every decision, every figure and every byte of the buffer, over random runs with batches
// ahead, skipped updates, aborted batches, ends of epochs and restarts.
func TestHistoryEqualsReference(t *testing.T) {
	for _, policy := range []string{Gradient, Performance, All} {
		for seed := range uint64(100) {
			t.Run(fmt.Sprintf("%s/%d", policy, seed), func(t *testing.T) {
				rng := explore.Rand(t, seed, 7)
				c, row := randomConfig(rng, policy)
				r := &trainer{t: t, rng: rng, c: c, row: row, ref: newHistoryReference(c), budget: mem.NewBudget(0),
					buffer: make([]byte, c.Bytes), ahead: map[int64]*aheadBatch{}}
				var err error
				r.h, err = New(r.budget, c)
				require.NoError(t, err)
				require.Equal(t, MetadataBytes(c), r.budget.Used())
				pruned, updated := int64(0), int64(0)
				for updated < 40 {
					epoch := updated + 1 + rng.Int64N(12)
					for updated < epoch {
						for pruned < epoch && pruned <= updated+c.Lag {
							r.prune(pruned)
							pruned++
						}
						if rng.IntN(30) == 0 { // the epoch is given up, and what was ahead is forgotten
							for i := updated; i < pruned; i++ {
								delete(r.ahead, i)
								delete(r.ref.asked, i)
								r.ref.unpin(i)
								r.h.Unpin(i)
							}
							pruned = updated
							r.check()
							break
						}
						r.update(updated)
						updated++
						if rng.IntN(12) == 0 {
							r.restart()
						}
					}
				}
				r.h.Close()
				require.Zero(t, r.budget.Used())
			})
		}
	}
}
