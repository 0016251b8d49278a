package draw

import (
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/links"
	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/sample"
	"freshgo/core/store"
)

// What links are opened by is compared with the memory by sizes alone: every edge is none where its number is its
// position, and negatives that are strict take nothing where edges are few beside pairs.
func TestLinksThatDoNotFitAreRefused(t *testing.T) {
	const nodes, edges = 100_000_000, 800_000_000
	ends, many := make([]int64, 1<<25), make([]float64, 1<<25) // nothing touches them
	for _, c := range []struct {
		name     string
		memory   int64
		numbered bool
		of       links.Options
		times    byte  // 'n': of nodes, 'e': of edges, 'l': of edges and of links as edges
		need     int64 // 0: it fits
	}{
		{"sorted", 1 << 30, false, links.Options{}, 0, 0},
		{"numbered", 4 << 30, true, links.Options{}, 0, 0},
		{"numbered, in less", 3 << 30, true, links.Options{}, 0, 4 * edges},
		{"of any memory", 0, true, links.Options{}, 0, 0},
		{"given", 1 << 30, true, links.Options{Sources: []int64{1}, Targets: []int64{1}}, 0, 0},
		{"strict pairs", 1 << 30, false, links.Options{Negatives: 1, Strict: true}, 0, 0},
		{"strict triplets", 900 << 20, false, links.Options{Negatives: 1, Strict: true, Triplets: true}, 0, 8 * nodes},
		{"strict by weights", 1 << 30, false, links.Options{
			Negatives: 1, Strict: true, TargetWeights: []float64{1},
		}, 0, 16*nodes + 8},
		{"by weights", 400 << 20, false, links.Options{Negatives: 1, TargetWeights: many}, 0, 256 << 20},
		{"triplets by weights", 400 << 20, false, links.Options{
			Negatives: 1, Triplets: true, SourceWeights: many,
		}, 0, 0},
		{"up to times of nodes", 2 << 30, false, links.Options{Negatives: 1}, 'n', 32 * nodes},
		{"strict up to times of nodes", 2 << 30, false, links.Options{
			Negatives: 1, Strict: true, Triplets: true,
		}, 'n', 32 * nodes},
		{"strict with times of edges", 900 << 20, false, links.Options{
			Negatives: 1, Strict: true, Triplets: true,
		}, 'e', 8 * nodes},
		{"strict, of given links", 400 << 20, false, links.Options{
			Negatives: 1, Strict: true, Sources: ends, Targets: ends,
		}, 0, 256 << 20},
		{"with the times of edges", 4 << 30, false, links.Options{}, 'l', 8 * edges},
	} {
		t.Run(c.name, func(t *testing.T) {
			on := &store.EdgeType{Topology: store.Topology{NumNodes: nodes, NumEdges: edges}}
			if c.numbered {
				on.EdgeIDs = new(store.Array)
			}
			m := &Sampling{Options: Options{Memory: c.memory}}
			m.Parts.Schema = &Schema{
				First: []int64{0, nodes}, Relations: []Relation{{NumEdges: edges, used: true, OnDisk: on}},
			}
			if c.times != 0 {
				m.Options.TimeAttr = "time"
				m.Parts.Tensors = []Tensor{{Name: "time", ByEdge: c.times != 'n'}}
			}
			if c.times != 'l' {
				m.Options.SeedTimes = []int64{1}
			}
			of := links.Relation{NumSources: nodes, NumTargets: nodes, NumEdges: edges}
			err := fitOpened(m, "links", linksBytes(m, &c.of, &of))
			if c.need == 0 {
				require.NoError(t, err)
				return
			}
			var budget *mem.BudgetError
			require.ErrorAs(t, err, &budget)
			require.Equal(t, c.need+offsets.Bytes(nodes, edges), budget.Minimum())
			require.ErrorContains(t, err, " is too small: opening links takes ")
		})
	}
}

// The times of input nodes are found before the memory is divided, too.
func TestTimesOfInputNodesThatDoNotFitAreRefused(t *testing.T) {
	const nodes, small, smaller = 100_000_000, 1_000_000, 500_000
	open := func(nodes, memory int64, given []int64) error {
		m := &Sampling{Options: Options{Memory: memory, TimeAttr: "time", SeedTimes: given}}
		m.Parts.NumNodes = nodes
		m.Parts.Schema = &Schema{First: []int64{0, nodes}}
		return m.OpenSeeds(t.Context())
	}
	require.NoError(t, open(nodes, 0, nil))
	require.NoError(t, open(nodes, 8*nodes, nil))
	require.NoError(t, open(nodes, 1<<20, []int64{1}))
	require.NoError(t, open(small, 8*small, nil))
	require.NoError(t, open(smaller, 1, nil)) // the division says how much more it takes
	for _, nodes := range []int64{nodes, small} {
		var budget *mem.BudgetError
		require.ErrorAs(t, open(nodes, 8*nodes-1, nil), &budget)
		require.EqualValues(t, 8*nodes, budget.Minimum())
	}
}

// A shuffled order of very many links takes no memory.
func TestOrderOfManyLinks(t *testing.T) {
	m := &Sampling{Options: Options{Shuffle: true}, Budget: mem.NewBudget(1 << 20)}
	m.Seeds = NewInputNodes(nil, mostListed+1)
	order, err := m.NewSeedOrder(t.Context(), sample.Key{Seed: 1})
	require.NoError(t, err)
	require.NotNil(t, order.shuffle)
	require.Zero(t, m.Budget.Used())
	m.Seeds = NewInputNodes(nil, mostListed)
	_, err = m.NewSeedOrder(t.Context(), sample.Key{Seed: 1})
	require.ErrorIs(t, err, mem.ErrBudget)
}
