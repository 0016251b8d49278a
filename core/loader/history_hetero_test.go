package loader

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/cache"
	"freshgo/core/history"
	"freshgo/core/mem"
	"freshgo/core/prune"
	"freshgo/core/sample"
	"freshgo/core/ssd"
)

// heteroTrainer is a trainer of a heterogeneous graph. Nodes are global numbers.
type heteroTrainer struct {
	*testing.T
	d     *heteroDataset
	l     *Loader
	stale int64
	hits  int
}

func (d *heteroDataset) withHistory(o Options, policy string) Options {
	o.RelationFanouts = [][]int64{{4, 3, 2}, {3, 2, 2}, {2, 2, 2}, {5, 0, 1}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}}
	o.History = &HistoryOptions{GradFraction: 0.7, Stale: Span{Count: 20}, Policy: policy, Memory: 60000, Lag: 2,
		Features: true}
	o.Prefetch = max(o.Prefetch, 2)
	return o
}

func (d *heteroDataset) train(t *testing.T, l *Loader) *heteroTrainer {
	r := &heteroTrainer{T: t, d: d, l: l, stale: l.options.History.Stale.iterations(l.NumBatches())}
	if l.options.History.Policy == history.All {
		r.stale = history.Forever
	}
	return r
}

// heteroTables is what a batch says of its levels: of each the node of each row by global number, and the targets.
type heteroTables struct {
	iteration int64
	nodes     [][]int64
	targets   [][]bool
	size      [][]int64 // by level and type
}

func (r *heteroTrainer) tables(b *seen) *heteroTables {
	if b.arrays["history_counts"] == nil {
		return nil
	}
	counts := b.int64s("history_counts")
	s := r.l.parts.types
	t := &heteroTables{iteration: counts[0]}
	sizes := counts[4+2*s.types():]
	for l := range r.l.options.hops() {
		local := b.int64s(fmt.Sprint("history_nodes_", l))
		var nodes, size []int64
		var targets []bool
		for typ := range s.types() {
			rows, dst := sizes[2*(l*s.types()+typ)], sizes[2*(l*s.types()+typ)+1]
			ids := b.int64s(nodeName(typ, "n_id"))
			for k, v := range local[len(nodes):][:rows] {
				nodes, targets = append(nodes, s.first[typ]+ids[v]), append(targets, int64(k) < dst)
			}
			size = append(size, rows)
		}
		require.Len(r, local, len(nodes))
		t.nodes, t.targets, t.size = append(t.nodes, nodes), append(t.targets, targets), append(t.size, size)
	}
	return t
}

func (r *heteroTrainer) row(slot int64) []byte {
	return r.l.embeddings.Bytes()[slot*embedding:][:embedding]
}

func (r *heteroTrainer) next() *seen {
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

// check holds that rows and edges are the user's, and every hit an embedding of that node and layer, of an age that is
// allowed; a row that the cache has and the batch computes there is none, as far as can be known now.
func (r *heteroTrainer) check(b *seen) {
	tables, s := r.tables(b), r.l.parts.types
	for typ := range s.types() {
		ids := b.int64s(nodeName(typ, "n_id"))
		loaded := make([]bool, len(ids))
		if tables == nil {
			loaded = slices.Repeat([]bool{true}, len(ids))
		} else {
			at := int64(0)
			for _, n := range tables.size[0][:typ] {
				at += n
			}
			for _, v := range b.int64s("history_nodes_0")[at:][:tables.size[0][typ]] {
				loaded[v] = true
			}
			for seed := range b.int64s(nodeName(typ, "num_sampled_nodes"))[0] {
				loaded[seed] = true
			}
			count := int64(0)
			for _, is := range loaded {
				if is {
					count++
				}
			}
			require.Equal(r, b.int64s("history_counts")[4+2*typ], count)
		}
		for _, x := range r.d.nodes[typ] {
			got, width := b.arrays[nodeName(typ, x.Name)], int(x.RowShape[0])
			for i, v := range ids {
				want := make([]byte, width)
				if loaded[i] {
					want = x.Rows[int(v)*width:][:width]
				}
				if !slices.Equal(want, got[i*width:][:width]) {
					require.Failf(r, "wrong row", "batch %d: row %d of type %d, node %d, loaded %v", b.index, i, typ, v, loaded[i])
				}
			}
		}
	}
	if tables != nil {
		r.checkHits(b, tables)
	}
}

// known is what the history has now, where a batch is pruned by just that: nil elsewhere.
func (r *heteroTrainer) known() *history.History {
	o := &r.l.options
	if o.History.Lag > 0 || o.History.Policy == history.All || r.l.hot != nil {
		return nil
	}
	state, err := r.l.SaveHistory()
	require.NoError(r, err)
	c := o.historyConfig(&r.l.parts, o.History.Memory, r.l.NumBatches())
	c.Reuse = func(int, int64) float32 { return 0 }
	h, err := history.New(mem.NewBudget(0), c)
	require.NoError(r, err)
	require.NoError(r, h.Restore(state[bytes.Index(state, []byte("fghist01")):len(state)-4]))
	return h
}

func (r *heteroTrainer) checkHits(b *seen, tables *heteroTables) {
	known := r.known()
	if known != nil {
		defer known.Close()
	}
	for l := 1; l < len(tables.nodes); l++ {
		slots, hits := b.int64s(fmt.Sprint("history_slot_", l)), b.int64s(fmt.Sprint("history_hit_", l))
		computed := b.int64s(fmt.Sprint("history_computed_", l))
		require.True(r, slices.IsSorted(computed) && slices.IsSorted(hits))
		require.Equal(r, len(tables.nodes[l]), len(computed)+len(hits))
		for k, at := range hits {
			tag := mem.View[int64](r.row(slots[k]))
			if age := tables.iteration - tag[2]; tag[0] != int64(l) || tag[1] != tables.nodes[l][at] || age < 1 ||
				age > r.stale {
				require.Failf(r, "wrong hit", "iteration %d: node %d of layer %d finds layer, node, admission %v", tables.iteration,
					tables.nodes[l][at], l, tag)
			}
			r.hits++
		}
		if known != nil {
			for _, at := range computed {
				require.EqualValues(r, history.Miss, known.Find(tables.iteration, l, tables.nodes[l][at]))
			}
		}
	}
}

func (r *heteroTrainer) update(b *seen) {
	tables := r.tables(b)
	if tables == nil {
		return
	}
	r.checkHits(b, tables)
	var norms []prune.Norms
	of := make([][]int64, len(tables.nodes))
	for l := 1; l < len(tables.nodes); l++ {
		var n prune.Norms
		for _, at := range b.int64s(fmt.Sprint("history_computed_", l)) {
			of[l] = append(of[l], tables.nodes[l][at])
			n.Computed = append(n.Computed, norm(tables.iteration, l, tables.nodes[l][at]))
		}
		for _, at := range b.int64s(fmt.Sprint("history_hit_", l)) {
			n.Hits = append(n.Hits, norm(tables.iteration, l, tables.nodes[l][at]))
		}
		norms = append(norms, n)
	}
	admitted, err := r.l.UpdateHistory(context.Background(), tables.iteration, embedding, norms)
	require.NoError(r, err)
	for l, a := range admitted {
		for k, row := range a.Rows {
			copy(mem.View[int64](r.row(int64(a.Slots[k]))), []int64{int64(l + 1), of[l+1][row], tables.iteration})
		}
	}
}

func (r *heteroTrainer) epochOf(epoch int64) (all []*seen) {
	require.NoError(r, r.l.Start(epoch, 0, Train))
	for b := r.next(); b != nil; b = r.next() {
		r.update(b)
		all = append(all, b)
	}
	return all
}

// heteroEdge is a drawn edge: its relation and its user's number. Positions of one that was drawn twice differ.
type heteroEdge struct {
	relation int
	id       int64
	source   int64 // global numbers
	target   int64
}

// edgesOf lists the edges of a batch by target, in the order of relations.
func (r *heteroTrainer) edgesOf(b *seen) map[int64][]heteroEdge {
	s, out := r.l.parts.types, map[int64][]heteroEdge{}
	for i, of := range s.relations {
		index, ids := b.int64s(edgeName(i, "edge_index")), b.int64s(edgeName(i, "e_id"))
		sources, targets := b.int64s(nodeName(of.source, "n_id")), b.int64s(nodeName(of.target, "n_id"))
		for e, id := range ids {
			edge := heteroEdge{i, id, s.first[of.source] + sources[index[e]], s.first[of.target] + targets[index[len(ids)+e]]}
			out[edge.target] = append(out[edge.target], edge)
		}
	}
	return out
}

// requirePruned compares a batch with the plain one, level by level from the seeds (breadth first, over all relations),
// given which rows were found.
func (r *heteroTrainer) requirePruned(plain, b *seen) {
	s, tables, drawn := r.l.parts.types, r.tables(b), r.edgesOf(plain)
	computed := map[int64]bool{}
	for typ := range s.types() {
		for _, v := range b.int64s(nodeName(typ, "n_id"))[:b.int64s(nodeName(typ, "num_sampled_nodes"))[0]] {
			computed[s.first[typ]+v] = true
		}
		require.Equal(r, plain.int64s(nodeName(typ, "input_id")), b.int64s(nodeName(typ, "input_id")))
	}
	remain, edges := maps.Clone(computed), map[int64]bool{}
	for l := len(tables.nodes) - 1; l >= 0; l-- {
		table, targets := map[int64]bool{}, map[int64]bool{}
		var layer []heteroEdge
		for v := range computed {
			table[v], edges[v] = true, true
			layer = append(layer, drawn[v]...)
			for _, e := range drawn[v] {
				table[e.source] = true
			}
		}
		got := map[int64]bool{}
		for at, v := range tables.nodes[l] {
			got[v], remain[v] = true, true
			if tables.targets[l][at] {
				targets[v] = true
			}
		}
		require.Equal(r, table, got, "level %d of batch %d", l, b.index)
		require.Equal(r, computed, targets, "targets of level %d of batch %d", l, b.index)
		r.requireLayer(b, tables, l, layer)
		computed = map[int64]bool{}
		if l > 0 {
			for _, at := range b.int64s(fmt.Sprint("history_computed_", l)) {
				computed[tables.nodes[l][at]] = true
			}
		}
	}
	var want, got []heteroEdge
	for v := range edges {
		want = append(want, drawn[v]...)
	}
	for _, of := range r.edgesOf(b) {
		got = append(got, of...)
	}
	require.Equal(r, sorted(want), sorted(got), "edges of batch %d", b.index)
	r.requireOrder(plain, b, remain, func(v int64) []heteroEdge {
		if edges[v] {
			return drawn[v]
		}
		return nil
	})
}

// requireOrder holds that nodes stand in the order of the plain batch, hop by hop, and those of the last hop in the
// order in which the edges that are left name them.
func (r *heteroTrainer) requireOrder(plain, b *seen, remain map[int64]bool, edges func(node int64) []heteroEdge) {
	s := r.l.parts.types
	leaf, leaves := map[int64]bool{}, make([][]int64, s.types()) // of the plain batch; those that are left
	inner, last := make([][]int64, s.types()), make([][]int64, s.types())
	for typ := range s.types() {
		ids, hops := plain.int64s(nodeName(typ, "n_id")), plain.int64s(nodeName(typ, "num_sampled_nodes"))
		before, end := sumOf(hops[:len(hops)-2]), sumOf(hops[:len(hops)-1])
		for at, v := range ids {
			switch v += s.first[typ]; {
			case int64(at) >= end:
				leaf[v] = true
			case remain[v]:
				inner[typ] = append(inner[typ], v)
				if int64(at) >= before {
					last[typ] = append(last[typ], v)
				}
			}
		}
	}
	for _, v := range slices.Concat(last...) {
		for _, e := range edges(v) {
			if leaf[e.source] {
				leaf[e.source] = false
				leaves[sample.TypeOf(s.first, e.source)] = append(leaves[sample.TypeOf(s.first, e.source)], e.source)
			}
		}
	}
	for typ := range s.types() {
		got := b.int64s(nodeName(typ, "n_id"))
		want := []int64{}
		for _, v := range append(inner[typ], leaves[typ]...) {
			want = append(want, v-s.first[typ])
		}
		require.Equal(r, want, append([]int64{}, got...), "nodes of type %d of batch %d", typ, b.index)
		require.EqualValues(r, len(got), sumOf(b.int64s(nodeName(typ, "num_sampled_nodes"))))
	}
}

// requireLayer compares the edges of the layer above a level.
func (r *heteroTrainer) requireLayer(b *seen, tables *heteroTables, l int, want []heteroEdge) {
	s := r.l.parts.types
	var got []heteroEdge
	first := make([]int64, s.types()+1)
	for typ, n := range tables.size[l] {
		first[typ+1] = first[typ] + n
	}
	for i, of := range s.relations {
		name := func(part string) string { return edgeName(i, fmt.Sprintf("history_%s_%d", part, l+1)) }
		index, ids, ptr := b.int64s(name("edge_index")), b.int64s(name("edge")), b.int64s(name("ptr"))
		all := b.int64s(edgeName(i, "e_id"))
		for e, at := range ids {
			source, target := index[e], index[len(ids)+e]
			require.True(r, ptr[target] <= int64(e) && int64(e) < ptr[target+1])
			got = append(got, heteroEdge{i, all[at], tables.nodes[l][first[of.source]+source],
				tables.nodes[l][first[of.target]+target]})
		}
	}
	require.Equal(r, sorted(want), sorted(got), "layer %d of batch %d", l+1, b.index)
}

func sorted(edges []heteroEdge) []heteroEdge {
	return slices.SortedFunc(slices.Values(edges), func(a, b heteroEdge) int {
		return cmp.Or(cmp.Compare(a.relation, b.relation), cmp.Compare(a.target, b.target), cmp.Compare(a.id, b.id),
			cmp.Compare(a.source, b.source))
	})
}

// TestHeteroHistoryPrunesBreadthFirst holds that a pruned batch is the part of the plain one that a search from the
// seeds reaches over all relations.
func TestHeteroHistoryPrunesBreadthFirst(t *testing.T) {
	d := newHeteroDataset()
	g := d.graph(t)
	for _, policy := range []string{history.Gradient, history.Performance, history.All} {
		for _, lag := range []int{0, 2} {
			o := d.withHistory(d.options(), policy)
			o.Seeds, o.History.Lag = o.Seeds[:len(o.Seeds)-2], lag
			o.Seeds = slices.Compact(slices.Clone(o.Seeds[:400])) // each once, so that nodes name rows
			r := d.train(t, open(t, g, o))
			o.History = nil
			plain := open(t, g, o)
			rows, before := int64(0), int64(0)
			for epoch := range int64(3) {
				whole := epochOf(t, plain, epoch)
				for i, b := range r.epochOf(epoch) {
					r.requirePruned(whole[i], b)
					counts := b.int64s("history_counts")
					rows, before = rows+counts[1], before+counts[2]
				}
			}
			require.Positive(t, r.hits)
			require.Less(t, rows, before*9/10)
		}
	}
}

// TestHeteroHistoryDecidesAlike: caches, threads, memory and where the graph lies change nothing of what is pruned.
func TestHeteroHistoryDecidesAlike(t *testing.T) {
	d := newHeteroDataset()
	s := d.store(t, ssd.OS)
	for _, lag := range []int{0, 2} {
		o := d.withHistory(d.options(), history.Gradient)
		o.History.Lag, o.Prefetch = lag, 5
		reference := d.train(t, open(t, d.graph(t), o))
		var want [][]*seen
		for epoch := range int64(2) {
			want = append(want, reference.epochOf(epoch))
		}
		require.Positive(t, reference.hits)
		for name, change := range map[string]func(o *Options){
			"threads":         func(o *Options) { o.Workers, o.Prefetch = 8, 6 },
			"topology":        func(o *Options) { o.NeighborCache, o.FeatureCache, o.Workers = 0, 0, 1 },
			"degree":          func(o *Options) { o.Cache, o.FeatureCache = "degree", 60<<10 },
			"presc":           func(o *Options) { o.Cache, o.FeatureCache = "presc", 60<<10 },
			"lru":             func(o *Options) { o.Cache, o.FeatureCache = "lru", 60<<10 },
			"belady":          func(o *Options) { o.Cache, o.FeatureCache, o.Superbatch = "belady", 120<<10, 5 },
			"belady, forward": func(o *Options) { o.Cache, o.FeatureCache, o.Transfer = "belady", 120<<10, "scan+forward" },
			"budget":          func(o *Options) { o.Cache, o.Memory = "auto", 24<<20 },
		} {
			o := o
			change(&o)
			r := d.train(t, open(t, OpenStore(s), o))
			for epoch := range want {
				got := r.epochOf(int64(epoch))
				for i, b := range got {
					r.requirePlainCounts(want[epoch][i], b)
				}
				requireSame(t, want[epoch], got)
			}
			require.Equal(t, name == "topology", r.l.sparesLists, name)
			require.Equal(t, reference.hits, r.hits, name)
			require.Equal(t, name == "degree" || name == "presc", r.l.hot != nil, name)
			st := r.l.Stats()
			require.Equal(t, st.Rows, st.Hits+st.Packed+st.Misses, name)
		}
	}
}

// requirePlainCounts makes of the sizes that a plain batch would have had those that are wanted: lists that were not
// read named nodes that are not counted.
func (r *heteroTrainer) requirePlainCounts(want, got *seen) {
	counts, exact := mem.View[int64](got.arrays["history_counts"]), want.int64s("history_counts")
	at := []int{2}
	for typ := range r.l.parts.types.types() {
		at = append(at, 4+2*typ+1)
	}
	for _, k := range at {
		require.LessOrEqual(r, counts[k], exact[k])
		require.True(r, r.l.sparesLists || counts[k] == exact[k])
		counts[k] = exact[k]
	}
}

// TestHeteroListsThatAreNotRead: of several node types and relations too pruned lists on disk are left alone.
func TestHeteroListsThatAreNotRead(t *testing.T) {
	d := newHeteroDataset()
	s := d.store(t, ssd.OS)
	o := d.withHistory(d.options(), history.Gradient)
	o.NeighborCache, o.History.Memory = 0, 1<<20
	r := d.train(t, open(t, OpenStore(s), o))
	require.True(t, r.l.sparesLists)
	o.History = nil
	plain := open(t, OpenStore(s), o)
	for epoch := range int64(3) {
		r.epochOf(epoch)
		epochOf(t, plain, epoch)
	}
	require.Positive(t, r.hits)
	fetched := func(st Stats) int64 { return st.NeighborHits + st.NeighborMisses }
	require.Positive(t, fetched(plain.Stats()))
	require.Less(t, fetched(r.l.Stats()), fetched(plain.Stats())*9/10)
}

// TestHeteroHistoryThatDoesNothing: before it starts and in plain epochs batches are the plain ones.
func TestHeteroHistoryThatDoesNothing(t *testing.T) {
	d := newHeteroDataset()
	g := d.graph(t)
	o := d.withHistory(d.options(), history.Gradient)
	late := *o.History
	late.Start = Span{Count: 1, Epochs: true}
	o.History = nil
	var want [][]*seen
	for epoch := range int64(3) {
		want = append(want, epochOf(t, open(t, g, o), epoch))
	}
	o.History = &late
	r := d.train(t, open(t, g, o))
	requireSame(t, want[0], r.epochOf(0))
	r.epochOf(1)
	require.Positive(t, r.hits)
	require.NoError(t, r.l.Start(2, 0, Plain))
	requireSame(t, want[2], rest(t, r.l))
}

// TestHeteroHistoryResumes: a run that is saved in the middle goes on with the same hits.
func TestHeteroHistoryResumes(t *testing.T) {
	d := newHeteroDataset()
	g := d.graph(t)
	o := d.withHistory(d.options(), history.Gradient)
	r := d.train(t, open(t, g, o))
	r.epochOf(0)
	require.NoError(t, r.l.Start(1, 0, Train))
	for range 3 {
		r.update(r.next())
	}
	state, err := r.l.SaveHistory()
	require.NoError(t, err)
	buffer := slices.Clone(r.l.embeddings.Bytes())
	var want []*seen
	for b := r.next(); b != nil; b = r.next() {
		r.update(b)
		want = append(want, b)
	}
	other := d.train(t, open(t, g, o))
	require.NoError(t, other.l.RestoreHistory(state))
	copy(other.l.embeddings.Bytes(), buffer)
	require.NoError(t, other.l.Start(1, 3, Train))
	var got []*seen
	for b := other.next(); b != nil; b = other.next() {
		other.update(b)
		got = append(got, b)
	}
	requireSame(t, want, got)
	require.Positive(t, other.hits)
}

// TestHeteroHistoryStaysWithinItsMemory: whatever the memory, batches are right or the smallest that works is named.
func TestHeteroHistoryStaysWithinItsMemory(t *testing.T) {
	d := newHeteroDataset()
	g, s := d.graph(t), d.store(t, ssd.OS)
	for i, source := range []Source{g, OpenStore(s), OpenStore(s)} {
		o := d.withHistory(d.options(), history.Gradient)
		o.History.Policy, o.Memory, o.Cache, o.Transpose = history.Performance, 1<<20, "auto", true
		if i == 2 {
			o.Cache = "expected" // in the history's buffer
		}
		_, err := Open(context.Background(), source, o, mem.NewAllocator())
		var short *mem.BudgetError
		require.ErrorAs(t, err, &short)
		for _, more := range []int64{0, 300 << 10} {
			o.Memory = short.Need + more
			r := d.train(t, open(t, source, o))
			if i == 2 && more == 0 {
				require.NotNil(t, r.l.hot)
			}
			r.epochOf(0)
			r.epochOf(1)
			require.Positive(t, r.hits)
			require.LessOrEqual(t, r.l.Stats().MemoryPeak, o.Memory)
		}
	}
}

// TestHeteroHistoryOfOneType: with all neighbours, one type and one relation what is decided is what is decided without
// types.
func TestHeteroHistoryOfOneType(t *testing.T) {
	d := newDataset(300, 1500)
	o := withHistory(plain(), history.Gradient)
	o.Fanouts, o.BatchSize = []int64{-1, -1, -1}, 10
	one := train(t, d, open(t, d.graph(t), o))
	hetero := &heteroDataset{names: []string{"node"}, counts: []int64{d.nodes}, nodes: [][]GraphTensor{nil},
		edges: []GraphEdges{{
			Source: "node", Relation: "to", Target: "node", EdgeIndex: d.edgeIndex(),
		}}}
	o.RelationFanouts = [][]int64{o.Fanouts}
	r := hetero.train(t, open(t, hetero.graph(t), o))
	for epoch := range int64(3) {
		want := one.epochOf(epoch)
		for i, b := range r.epochOf(epoch) {
			tables := r.tables(b)
			for l := 1; l < 3; l++ {
				var nodes []int64
				for _, at := range want[i].int64s(fmt.Sprint("history_nodes_", l)) {
					nodes = append(nodes, want[i].int64s("n_id")[at])
				}
				require.Equal(t, nodes, tables.nodes[l])
				for _, part := range []string{"computed", "hit", "slot"} {
					name := fmt.Sprintf("history_%s_%d", part, l)
					require.Equal(t, want[i].int64s(name), b.int64s(name))
				}
			}
			require.Equal(t, want[i].int64s("history_counts"), b.int64s("history_counts"))
			require.Equal(t, want[i].int64s("n_id"), b.int64s(nodeName(0, "n_id")))
			require.Equal(t, want[i].int64s("history_degree"), b.int64s("history_degree"))
		}
	}
	require.Positive(t, r.hits)
	require.Equal(t, one.hits, r.hits)
}

// TestHeteroHistoryLeavesFeaturesAlone holds the two ends of the buffer apart while embeddings come and go: rows of all
// types are right, whatever their width, those of batches that read them again come back, and batches are those of a
// history that has the buffer to itself.
func TestHeteroHistoryLeavesFeaturesAlone(t *testing.T) {
	d := newHeteroDataset()
	s := d.store(t, ssd.OS)
	for _, policy := range []string{history.Gradient, history.Performance, history.All} {
		o := d.withHistory(d.options(), policy)
		o.Cache, o.FeatureCache, o.Prefetch = "expected", 1, 4 // no room to hold a type whole
		o.History.Memory, o.History.Stale = 120<<10, Span{Count: 9}
		r := d.train(t, open(t, OpenStore(s), o))
		full, widths, types, bytes := r.l.hot.Held(), make([]int64, r.l.parts.types.types()), map[int]bool{}, int64(0)
		for _, table := range r.l.onDisk {
			widths[table.typ] += int64(table.width)
		}
		for row := range uint32(r.l.parts.numNodes) {
			if r.l.policy.(*cache.Static).Slot(row) >= 0 {
				typ := sample.TypeOf(r.l.parts.types.first, int64(row))
				types[typ] = true
				bytes += widths[typ]
			}
		}
		require.Len(t, types, 2)
		require.NotEqual(t, widths[0], widths[1])
		require.LessOrEqual(t, bytes, o.History.Memory)
		require.Less(t, o.History.Memory-bytes, widths[1])
		require.Equal(t, full, r.l.Stats().CachedRows)
		o.History.Features = false
		alone := d.train(t, open(t, OpenStore(s), o))
		require.Nil(t, alone.l.hot)
		least := full
		for epoch := range int64(3) {
			require.NoError(t, r.l.Start(epoch, 0, Train))
			require.NoError(t, alone.l.Start(epoch, 0, Train))
			for b := r.next(); b != nil; b = r.next() {
				if policy != history.Performance { // which asks what features are worth
					requireSame(t, []*seen{alone.next()}, []*seen{b})
				}
				r.update(b)
				if policy != history.Performance {
					alone.update(b)
				}
				held := r.l.Stats().CachedRows
				least = min(least, held)
				stats, err := r.l.HistoryStats()
				require.NoError(t, err)
				require.LessOrEqual(t, held, stats.FeatureRows)
				require.LessOrEqual(t, stats.EmbeddingBytes+stats.FeatureBytes, stats.Bytes)
			}
		}
		require.Positive(t, r.hits)
		require.Less(t, least, full, "embeddings displaced no feature")
		if policy == history.All {
			continue
		}
		// everything grows old: batches that are not updated; those that are prepared after that bring rows back
		for range 100 {
			if r.next() == nil {
				require.NoError(t, r.l.Start(7, 0, Train))
			}
		}
		require.Greater(t, r.l.Stats().CachedRows, least, "no feature came back")
	}
}
