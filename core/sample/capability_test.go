package sample

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
)

// trial asks a kind for a capability and finds out whether it has it.
type trial struct {
	g     *timedGraph
	typed bool // of two relations
	cfg   Config
	disk  bool
}

// ofKind is draws by a kind and nothing else.
func ofKind(g *timedGraph, k *Kind, times *Times) trial {
	t := trial{g: g, cfg: Config{Fanouts: [][]int64{{3, 2}}}}
	switch {
	case k.Key != "":
		t.cfg.Sampler = k.Options()
	case k.For == CanWeights:
		t.cfg.Weights = []*Weights{g.with("ram32")}
	case k.For == CanTimes:
		t.cfg.Temporal = []*Temporal{{Times: times}}
	case k.For == CanWalks:
		t.cfg.Metapaths = []Metapath{{Path: []int{0}, Walks: []Walk{{4, 3, .5}, {4, 3, .5}}}}
	}
	return t
}

// ask asks for a capability; false where a Config has no word for it.
func (t *trial) ask(c Capability, times *Times) bool {
	switch c {
	case CanWeights:
		t.cfg.Weights = []*Weights{t.g.with("ram32")}
	case CanTimes:
		t.cfg.Temporal = []*Temporal{{Times: times}}
	case CanTrees:
		t.cfg.Disjoint = true
	case CanReplace:
		t.cfg.Replace = true
	case CanTypes:
		t.doubled()
	case CanWalks:
		t.cfg.Metapaths = []Metapath{{Path: []int{0}, Walks: []Walk{{4, 3, .5}, {4, 3, .5}}}}
	case CanMetapaths:
		t.cfg.Metapaths = []Metapath{{Path: []int{0, 0}, Walks: []Walk{{4, 3, .5}, {4, 3, .5}}}}
		t.doubled()
	case CanBidirectional:
		t.cfg.Subgraph, t.cfg.Reverse = Bidirectional, []int{0}
	case CanInduced:
		t.cfg.Subgraph = Induced
	case CanDisk:
		t.disk = true
	case CanExclude, CanEdgeIDs, CanEdgeWeight: // of a request or a batch
	default:
		return false
	}
	return true
}

// doubled makes two relations of the one, with names.
func (t *trial) doubled() {
	t.typed = true
	t.cfg.Fanouts = append(t.cfg.Fanouts, t.cfg.Fanouts[0])
	for i := range len(t.cfg.Metapaths) {
		t.cfg.Metapaths = append(t.cfg.Metapaths, t.cfg.Metapaths[i])
	}
	if len(t.cfg.Weights) > 0 {
		t.cfg.Weights = append(t.cfg.Weights, t.cfg.Weights[0])
	}
	if len(t.cfg.Temporal) > 0 {
		t.cfg.Temporal = append(t.cfg.Temporal, t.cfg.Temporal[0])
	}
}

func (t *trial) graph() Graph {
	g := t.g.forms()["ram32"].graph()
	if t.disk {
		g = t.g.forms()["adjacency"].graph()
	}
	if t.typed {
		g.Named, g.Relations = true, append(g.Relations, g.Relations[0])
	}
	return g
}

// seedTime is the time of all seeds.
const seedTime = 40

// draw draws a batch that outlives its Worker.
func (t *trial) draw(batch uint64, r Request) (sub Subgraph, err error) {
	s, err := New(t.graph(), t.cfg)
	if err != nil {
		return sub, err
	}
	w, err := s.NewWorker(mem.NewBudget(0), false, 1)
	if err != nil {
		return sub, err
	}
	defer w.Close()
	if len(t.cfg.Temporal) > 0 {
		r.Times = slices.Repeat([]int64{seedTime}, len(r.Seeds))
	}
	if err = w.Draw(context.Background(), Key{Seed: 1, Batch: batch}, r, &sub); err != nil {
		return sub, err
	}
	w.check(&sub)
	if (sub.Pos != nil) != s.HasPositions() || (sub.Weight != nil) != s.HasWeights() {
		return sub, fmt.Errorf("%w: it brings positions or weights that its sampler does not", errWrong)
	}
	return Subgraph{
		Nodes: slices.Clone(sub.Nodes), Ptr: slices.Clone(sub.Ptr), Row: slices.Clone(sub.Row),
		Pos: slices.Clone(sub.Pos), Weight: slices.Clone(sub.Weight), Tree: slices.Clone(sub.Tree),
		EdgesPerHop: slices.Clone(sub.EdgesPerHop),
	}, nil
}

// errWrong is a batch that lacks what was asked for.
var errWrong = errors.New("wrong batch")

// has returns an error unless batches have what a capability promises.
func (t *trial) has(c Capability) error {
	return guard.Run(func() error {
		r := Request{Seeds: []int64{97, 3, 5, 194, 9}}
		switch c {
		case CanTrees:
			r.Seeds = []int64{97, 97}
		case CanReplace:
			r.Seeds = []int64{t.single()}
		case CanExclude:
			r.Exclude = [][]Link{t.allBut(97)}
		}
		for batch := range uint64(10) {
			sub, err := t.draw(batch, r)
			if err != nil {
				return err
			}
			if len(sub.Row) > 0 && t.promised(c, batch, r, &sub) {
				continue
			}
			return fmt.Errorf("%w: %v", errWrong, c)
		}
		return nil
	})
}

// single is a node with one in-edge, which has a weight and is old enough.
func (t *trial) single() int64 {
	for v := range t.g.nodes() {
		if p := t.g.indptr[v]; t.g.indptr[v+1] == p+1 && t.g.weights[p] > 0 && t.g.times[p] <= seedTime {
			return v
		}
	}
	panic("no such node")
}

// allBut are the links into a node but for those from its first source.
func (t *trial) allBut(v int64) (links []Link) {
	list := t.list(v)
	for _, u := range list {
		if u != list[0] {
			links = append(links, Link{u, v})
		}
	}
	return SortLinks(links)
}

func (t *trial) list(v int64) []int64 { return t.g.wide[t.g.indptr[v]:t.g.indptr[v+1]] }

// sources are the nodes that a target has edges from.
func sources(sub *Subgraph, target int) (out []int64) {
	for _, row := range sub.Row[sub.Ptr[target]:sub.Ptr[target+1]] {
		out = append(out, sub.Nodes[row])
	}
	return out
}

// promised reports whether a batch has what a capability promises, judged by the graph alone.
func (t *trial) promised(c Capability, batch uint64, r Request, sub *Subgraph) bool {
	every := func(ok func(pos int64) bool) bool {
		return sub.Pos != nil && !slices.ContainsFunc(sub.Pos, func(pos int64) bool { return !ok(pos) })
	}
	switch c {
	case CanWeights:
		return every(func(pos int64) bool { return t.g.weights[pos] > 0 })
	case CanTimes:
		return sub.Tree != nil && every(func(pos int64) bool { return t.g.times[pos] <= seedTime })
	case CanTrees: // equal once in a while
		return sub.Tree != nil && (batch%5 != 0 || !slices.Equal(sources(sub, 0), sources(sub, 1)))
	case CanReplace:
		u := t.list(r.Seeds[0])[0]
		return slices.Equal(sources(sub, 0), []int64{u, u, u})
	case CanExclude:
		return !slices.ContainsFunc(sources(sub, 0), func(u int64) bool { return u != t.list(97)[0] })
	case CanTypes:
		return sub.EdgesPerHop[0] > 0 && sub.EdgesPerHop[2] > 0
	case CanWalks, CanMetapaths:
		return sub.Pos == nil && sub.Weight != nil
	case CanBidirectional:
		return t.bothWays(sub)
	case CanInduced:
		return t.induced(sub)
	case CanDisk:
		memory := *t
		memory.disk = false
		same, err := memory.draw(batch, r)
		return err == nil && slices.Equal(same.Nodes, sub.Nodes) && slices.Equal(same.Row, sub.Row)
	case CanEdgeIDs:
		return sub.Pos != nil
	case CanEdgeWeight:
		return sub.Weight != nil
	}
	return false
}

func (t *trial) bothWays(sub *Subgraph) bool {
	edges := map[[2]int64]bool{}
	for target, v := range sub.Nodes[:len(sub.Ptr)-1] {
		for _, u := range sources(sub, target) {
			edges[[2]int64{u, v}] = true
		}
	}
	for edge := range edges {
		if !edges[[2]int64{edge[1], edge[0]}] {
			return false
		}
	}
	return true
}

func (t *trial) induced(sub *Subgraph) bool {
	for target, v := range sub.Nodes {
		among := slices.DeleteFunc(slices.Clone(t.list(v)), func(u int64) bool { return !slices.Contains(sub.Nodes, u) })
		if target+1 >= len(sub.Ptr) || !slices.Equal(sources(sub, target), among) {
			return false
		}
	}
	return true
}

// TestCapabilities asks every kind of the table for every capability that a Config, a Request or a batch can have. A
// kind that states a capability must have it. One that does not must refuse with an UnsupportedError and, when it is
// made to state the capability all the same, must draw batches that lack what is promised.
func TestCapabilities(t *testing.T) {
	const ofBatches = CanEdgeIDs | CanEdgeWeight // which nobody asks for
	g := newTimedGraph(300, explore.Seed(t, 5))
	times := g.timeForms(t)["narrow"]
	for _, k := range kinds {
		for _, c := range allCapabilities() {
			one := ofKind(g, k, times)
			if !one.ask(c, times) {
				continue
			}
			explore.Run(t, k.Name+"/"+c.String(), func(t *testing.T) {
				graph := one.graph()
				chosen, _ := Choose(one.cfg.asks(&graph), one.cfg.Sampler)
				err := one.has(c)
				switch {
				case k.Can.Has(c):
					require.NoError(t, err)
					require.Equal(t, k, chosen)
					return
				case chosen != k && err == nil: // the option is another kind's, which has it
					return
				case c&ofBatches != 0:
					require.ErrorIs(t, err, errWrong)
					return
				}
				var unsupported *UnsupportedError
				require.ErrorAs(t, err, &unsupported)
				require.ErrorIs(t, err, ErrConfig)
				k.Can |= c
				defer func() { k.Can &^= c }()
				require.Error(t, one.has(c), "it can, and does not state it")
			})
		}
	}
}

// TestRefusalsSayWhatToUse: an option that no sampler has beside another one's option is refused with a reason.
func TestRefusalsSayWhatToUse(t *testing.T) {
	for _, k := range kinds {
		for _, one := range allCapabilities() {
			if k.For == 0 || k.Key != "" || k.Can.Has(one) || one == CanMetapaths { // which are of walks
				continue
			}
			_, err := Choose(k.For|one, nil)
			require.Regexp(t, " cannot be combined with [^:;]*(; .* can$|: .*(: |use ))", err, "%s, %v", k.Name, one)
		}
	}
}

func TestCapabilitiesThatGoTogether(t *testing.T) {
	for _, pair := range apart {
		for _, one := range allCapabilities() {
			for _, other := range allCapabilities() {
				if one&pair.one == 0 || other&pair.other == 0 {
					continue
				}
				for _, k := range kinds {
					if k.Can.Has(one | other) {
						require.ErrorContains(t, k.check(one|other), one.String()+" cannot be combined with "+other.String()+": ")
					}
				}
			}
		}
	}
	for _, c := range allCapabilities() {
		require.NotEmpty(t, c.String())
		require.True(t, slices.ContainsFunc(kinds, func(k *Kind) bool { return k.Can.Has(c) }), "%v: nobody can", c)
	}
}

func TestSamplersByKey(t *testing.T) {
	for _, k := range kinds {
		if k.Key == "" {
			continue
		}
		named, err := ByKey(k.Key, "")
		require.NoError(t, err)
		require.Equal(t, k, named.Kind())
		require.NoError(t, named.check())
		for _, wrong := range []string{"{", "[]", `{"nothing": 1}`, "{} {}"} {
			_, err := ByKey(k.Key, wrong)
			require.ErrorIs(t, err, ErrConfig, wrong)
			require.ErrorContains(t, err, `sampler_options of "`+k.Key+`"`)
		}
	}
	labor, err := ByKey("labor", `{"batch_dependency": 4}`)
	require.NoError(t, err)
	require.Equal(t, &Labor{BatchDependency: 4}, labor)
	_, err = ByKey("lobar", "")
	require.ErrorContains(t, err, `, got "lobar"`)
}
