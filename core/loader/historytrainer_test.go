package loader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/history"
	"freshgo/core/mem"
	"freshgo/core/prune"
)

// embedding is the size of a row in these tests: its layer, node and iteration.
const embedding = 24

// trainer consumes batches as a training loop does: it looks at what the history gives, judges the rows by made-up
// gradients and writes what is to be kept. Nodes are global numbers.
type trainer struct {
	*testing.T
	f     *form
	l     *Loader
	stale int64
	hits  int
	// Of a consumer that holds rows: of each type, whose they are.
	owners [][]int64
}

// withHistory adds a history, and a hop.
func (f *form) withHistory(o draw.Options, policy string) draw.Options {
	o.Fanouts = []int64{4, 3, 3}
	o.History = &draw.HistoryOptions{
		GradFraction: 0.7, Stale: draw.Span{Count: 20}, Policy: policy, Memory: 30000, Lag: 2,
	}
	if len(f.names) > 1 {
		o.RelationFanouts = [][]int64{{4, 3, 2}, {3, 2, 2}, {2, 2, 2}, {5, 0, 1}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}}
		o.History.Memory = 60000
	}
	o.Prefetch = max(o.Prefetch, 2)
	return o
}

func (f *form) train(t *testing.T, l *Loader) *trainer {
	r := &trainer{T: t, f: f, l: l, stale: l.draw.Options.History.Stale.Iterations(l.NumBatches())}
	if l.draw.Options.History.Policy == history.All {
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

// next ends a training step and begins the one of the next batch, or returns nil at the end of the epoch.
func (r *trainer) next() *seen {
	require.NoError(r, EndStep(context.Background(), r.l))
	s := r.take()
	if s != nil {
		require.NoError(r, BeginStep(r.l))
	}
	return s
}

// take takes a batch, or nil at the end of the epoch.
func (r *trainer) take() *seen {
	b, err := r.l.Next(context.Background())
	if errors.Is(err, io.EOF) {
		return nil
	}
	require.NoError(r, err)
	s := look(b)
	b.Release()
	for typ, owners := range r.owners {
		r.f.putTogether(r.T, r.l, typ, owners, s)
	}
	r.check(s)
	return s
}

// row returns the contents of a slot.
func (r *trainer) row(slot int64) []byte {
	return r.l.history.embeddings.Bytes()[slot*embedding:][:embedding]
}

// levels holds the levels of a batch: the global number of each row's node, and the targets.
type levels struct {
	iteration int64
	nodes     [][]int64
	targets   [][]bool
	size      [][]int64 // by level and type
}

func (r *trainer) levels(b *seen) *levels {
	if b.arrays["history_counts"] == nil {
		return nil
	}
	counts := b.int64s("history_counts")
	s := r.l.draw.Parts.Schema
	t := &levels{iteration: counts[0]}
	sizes := counts[4+2*s.NumTypes():]
	for l := range r.l.draw.Options.Hops() {
		local := b.int64s(fmt.Sprint("history_nodes_", l))
		var nodes, size []int64
		var targets []bool
		for typ := range s.NumTypes() {
			rows, dst := sizes[2*(l*s.NumTypes()+typ)], sizes[2*(l*s.NumTypes()+typ)+1]
			ids := b.int64s(s.NodeName(typ, "n_id"))
			for k, v := range local[len(nodes):][:rows] {
				nodes, targets = append(nodes, s.First[typ]+ids[v]), append(targets, int64(k) < dst)
			}
			size = append(size, rows)
		}
		require.Len(r, local, len(nodes))
		t.nodes, t.targets, t.size = append(t.nodes, nodes), append(t.targets, targets), append(t.size, size)
	}
	return t
}

// check holds that rows and edges are the user's, and every hit an embedding of that node and layer, of an age that is
// allowed; a row that the cache has and the batch computes there is none, as far as can be known now.
func (r *trainer) check(b *seen) {
	levels, s := r.levels(b), r.l.draw.Parts.Schema
	for typ := range s.NumTypes() {
		ids, loaded := b.int64s(s.NodeName(typ, "n_id")), r.loaded(b, levels, typ)
		for _, x := range r.f.nodes[typ] {
			r.checkRows(b, s.NodeName(typ, x.Name), x, ids, loaded)
		}
	}
	for i, of := range s.Relations {
		name := func(part string) string { return s.EdgeName(i, part) }
		index, ids := b.int64s(name("edge_index")), b.int64s(name("e_id"))
		from, to := b.int64s(s.NodeName(of.Source, "n_id")), b.int64s(s.NodeName(of.Target, "n_id"))
		sources, targets := r.f.ends(i)
		for k, e := range ids {
			if sources[e] != from[index[k]] || targets[e] != to[index[len(ids)+k]] {
				require.Failf(r, "wrong edge", "batch %d: edge %d of relation %d is from %d to %d, got one from %d to %d", b.index,
					e, i, sources[e], targets[e], from[index[k]], to[index[len(ids)+k]])
			}
		}
		for _, x := range r.f.edges[i].Tensors {
			r.checkRows(b, name(x.Name), x, ids, nil)
		}
	}
	if levels != nil {
		r.checkHits(b, levels)
	}
}

// loaded returns which nodes of a type have their rows in a batch.
func (r *trainer) loaded(b *seen, levels *levels, typ int) []bool {
	s := r.l.draw.Parts.Schema
	ids := b.int64s(s.NodeName(typ, "n_id"))
	if levels == nil {
		return slices.Repeat([]bool{true}, len(ids))
	}
	loaded, at := make([]bool, len(ids)), int64(0)
	for _, n := range levels.size[0][:typ] {
		at += n
	}
	for _, v := range b.int64s("history_nodes_0")[at:][:levels.size[0][typ]] {
		loaded[v] = true
	}
	for seed := range b.int64s(s.NodeName(typ, "num_sampled_nodes"))[0] {
		loaded[seed] = true
	}
	count := int64(0)
	for _, is := range loaded {
		if is {
			count++
		}
	}
	require.Equal(r, b.int64s("history_counts")[4+2*typ], count)
	return loaded
}

// checkRows holds that a tensor has the user's rows, and zeros for those that are not loaded; nil: all are. Plain
// comparisons: millions of calls of testify take minutes.
func (r *trainer) checkRows(b *seen, name string, x draw.GraphTensor, ids []int64, loaded []bool) {
	got, size := b.arrays[name], rowBytes(x)
	zeros := make([]byte, size)
	require.Len(r, got, len(ids)*size)
	for i, v := range ids {
		want := zeros
		if loaded == nil || loaded[i] {
			want = x.Rows[int(v)*size:][:size]
		}
		if !bytes.Equal(want, got[i*size:][:size]) {
			require.Failf(r, "wrong row", "batch %d: row %d of %s, which is %d: got %v, expected %v", b.index, i, name, v,
				got[i*size:][:size], want)
		}
	}
}

// known returns the history if a batch is pruned by its present state, else nil.
func (r *trainer) known() *history.History {
	o := &r.l.draw.Options
	if o.History.Lag > 0 || o.History.Policy == history.All {
		return nil
	}
	state, err := r.l.SaveHistory()
	require.NoError(r, err)
	c := o.HistoryConfig(&r.l.draw.Parts, o.History.Memory, r.l.NumBatches())
	c.Reuse = func(int, int64) float32 { return 0 }
	h, err := history.New(mem.NewBudget(0), c)
	require.NoError(r, err)
	require.NoError(r, h.Restore(state[bytes.Index(state, []byte("fghist02")):len(state)-4]))
	return h
}

func (r *trainer) checkHits(b *seen, levels *levels) {
	known := r.known()
	if known != nil {
		defer known.Close()
	}
	if b.arrays["history_probe_1"] != nil { // a batch that compares is whole
		known = nil
	}
	for l := 1; l < len(levels.nodes); l++ {
		slots, hits := b.int64s(fmt.Sprint("history_slot_", l)), b.int64s(fmt.Sprint("history_hit_", l))
		computed := b.int64s(fmt.Sprint("history_computed_", l))
		require.True(r, slices.IsSorted(computed) && slices.IsSorted(hits))
		require.Equal(r, len(levels.nodes[l]), len(computed)+len(hits))
		for k, at := range hits {
			tag := mem.View[int64](r.row(slots[k]))
			if age := levels.iteration - tag[2]; tag[0] != int64(l) || tag[1] != levels.nodes[l][at] || age < 1 ||
				age > r.stale {
				require.Failf(r, "wrong hit", "iteration %d: node %d of layer %d finds layer, node, admission %v", levels.iteration,
					levels.nodes[l][at], l, tag)
			}
			r.hits++
		}
		for _, at := range computed {
			if known != nil && known.Find(levels.iteration, l, levels.nodes[l][at]) != history.Miss {
				require.Failf(r, "a hit that was not used", "iteration %d: node %d of layer %d", levels.iteration,
					levels.nodes[l][at], l)
			}
		}
	}
}

func (r *trainer) update(b *seen) { r.updateWithin(context.Background(), b) }

func (r *trainer) updateWithin(ctx context.Context, b *seen) {
	levels := r.levels(b)
	if levels == nil {
		return
	}
	r.checkHits(b, levels)
	var norms []prune.Norms
	of := make([][]int64, len(levels.nodes))
	for l := 1; l < len(levels.nodes); l++ {
		var n prune.Norms
		for _, at := range b.int64s(fmt.Sprint("history_computed_", l)) {
			of[l] = append(of[l], levels.nodes[l][at])
			n.Computed = append(n.Computed, norm(levels.iteration, l, levels.nodes[l][at]))
		}
		for _, at := range b.int64s(fmt.Sprint("history_hit_", l)) {
			n.Hits = append(n.Hits, norm(levels.iteration, l, levels.nodes[l][at]))
		}
		norms = append(norms, n)
	}
	admitted, err := r.l.UpdateHistory(ctx, levels.iteration, embedding, norms)
	require.NoError(r, err)
	for l, a := range admitted {
		for k, row := range a.Rows {
			copy(mem.View[int64](r.row(int64(a.Slots[k]))), []int64{int64(l + 1), of[l+1][row], levels.iteration})
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
