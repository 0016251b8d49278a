package loader

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/history"
	"freshgo/core/mem"
	"freshgo/core/prune"
)

// embedding is the size of a row in these tests: its layer, node and iteration.
const embedding = 24

// trainer consumes batches as a training loop does: it looks at what the history
// gives, judges the rows by made-up gradients and writes what is to be kept.
type trainer struct {
	*testing.T
	d     *dataset
	l     *Loader
	stale int64
	hits  int
}

func withHistory(o Options, policy string) Options {
	o.Fanouts = []int64{4, 3, 3}
	o.History = &HistoryOptions{
		GradFraction: 0.7, Stale: Span{Count: 20}, Policy: policy, Memory: 30000, Lag: 2, Features: true,
	}
	o.Prefetch = max(o.Prefetch, 2)
	return o
}

func train(t *testing.T, d *dataset, l *Loader) *trainer {
	r := &trainer{T: t, d: d, l: l, stale: l.options.History.Stale.iterations(l.NumBatches())}
	if l.options.History.Policy == history.All {
		r.stale = history.Forever
	}
	return r
}

// turnLoops leads edges from a node to itself from its neighbour.
func (d *dataset) turnLoops() {
	for e := range d.sources {
		if d.sources[e] == d.targets[e] {
			d.sources[e] = (d.sources[e] + 1) % d.nodes
		}
	}
}

// norm is a made-up gradient, with ties.
func norm(i int64, layer int, node int64) float32 {
	h := uint64(i*31+int64(layer)*17+node) * 0x9e3779b97f4a7c15
	return float32(h>>60) + 0.5
}

// next takes a batch, or nil at the end of the epoch.
func (r *trainer) next() *seen {
	b, err := r.l.Next(context.Background())
	if errors.Is(err, io.EOF) {
		return nil
	}
	require.NoError(r, err)
	s := look(b)
	b.Release()
	r.check(s)
	return s
}

// row is what lies in a slot.
func (r *trainer) row(slot int64) []byte {
	return r.l.embeddings.Bytes()[slot*embedding:][:embedding]
}

func (r *trainer) check(b *seen) {
	nodes, x := b.int64s("n_id"), b.float32s("x")
	loaded := make([]bool, len(nodes))
	for seed := range b.numSeeds {
		loaded[seed] = true
	}
	if _, pruned := b.arrays["history_counts"]; !pruned {
		for at := range loaded {
			loaded[at] = true
		}
	}
	for _, at := range b.int64s("history_nodes_0") {
		loaded[at] = true
	}
	y, wide := b.int64s("y"), b.arrays["wide"]
	for at, node := range nodes {
		want, wantWide, wantY := make([]float32, width), make([]byte, wideWidth), int64(0)
		if loaded[at] {
			want, wantWide, wantY = r.d.x[node*width:][:width], r.d.wide[node*wideWidth:][:wideWidth], r.d.y[node]
		}
		if !slices.Equal(want, x[at*width:][:width]) || string(wantWide) != string(wide[at*wideWidth:][:wideWidth]) ||
			wantY != y[at] {
			require.Failf(r, "wrong row", "batch %d: node %d, loaded %v: got x %v, y %d", b.index, node, loaded[at],
				x[at*width:][:width], y[at])
		}
	}
	edge := b.int64s("edge_index")
	targets := edge[len(edge)/2:]
	for i, e := range b.int64s("e_id") { // plain comparisons: millions of calls of testify take minutes
		if r.d.sources[e] != nodes[edge[i]] || r.d.targets[e] != nodes[targets[i]] ||
			uint32(-e) != binary.LittleEndian.Uint32(b.arrays["edge_attr"][8*i:]) {
			require.Failf(r, "wrong edge", "batch %d: edge %d is from %d to %d, got one from %d to %d", b.index, e,
				r.d.sources[e], r.d.targets[e], nodes[edge[i]], nodes[targets[i]])
		}
	}
	r.checkHits(b)
}

// checkHits holds that every hit is an embedding of that node and layer, of an age
// that is allowed.
func (r *trainer) checkHits(b *seen) {
	if b.arrays["history_counts"] == nil {
		return
	}
	i, nodes := b.int64s("history_counts")[0], b.int64s("n_id")
	for layer := 1; layer < len(r.l.options.Fanouts); layer++ {
		level := b.int64s(fmt.Sprint("history_nodes_", layer))
		slots := b.int64s(fmt.Sprint("history_slot_", layer))
		for k, at := range b.int64s(fmt.Sprint("history_hit_", layer)) {
			tag := mem.View[int64](r.row(slots[k]))
			if age := i - tag[2]; tag[0] != int64(layer) || tag[1] != nodes[level[at]] || age < 1 || age > r.stale {
				require.Failf(r, "wrong hit", "iteration %d: node %d of layer %d finds layer, node, admission %v", i,
					nodes[level[at]], layer, tag)
			}
			r.hits++
		}
	}
}

// update judges a batch and writes the rows that are kept.
func (r *trainer) update(b *seen) {
	if b.arrays["history_counts"] == nil {
		return
	}
	r.checkHits(b) // still there
	i, nodes := b.int64s("history_counts")[0], b.int64s("n_id")
	var norms []prune.Norms
	of := make([][]int64, len(r.l.options.Fanouts))
	for layer := 1; layer < len(r.l.options.Fanouts); layer++ {
		level := b.int64s(fmt.Sprint("history_nodes_", layer))
		var n prune.Norms
		for _, at := range b.int64s(fmt.Sprint("history_computed_", layer)) {
			of[layer] = append(of[layer], nodes[level[at]])
			n.Computed = append(n.Computed, norm(i, layer, nodes[level[at]]))
		}
		for _, at := range b.int64s(fmt.Sprint("history_hit_", layer)) {
			n.Hits = append(n.Hits, norm(i, layer, nodes[level[at]]))
		}
		norms = append(norms, n)
	}
	admitted, err := r.l.UpdateHistory(context.Background(), i, embedding, norms)
	require.NoError(r, err)
	for l, a := range admitted {
		for k, row := range a.Rows {
			copy(mem.View[int64](r.row(int64(a.Slots[k]))), []int64{int64(l + 1), of[l+1][row], i})
		}
	}
}

// epoch trains on the rest of the running epoch and returns what it saw.
func (r *trainer) epoch() (all []*seen) {
	for b := r.next(); b != nil; b = r.next() {
		r.update(b)
		all = append(all, b)
	}
	return all
}

func (r *trainer) epochOf(epoch int64) []*seen {
	require.NoError(r, r.l.Start(epoch, 0, Train))
	return r.epoch()
}
