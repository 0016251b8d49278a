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
	for _, c := range []struct {
		name     string
		memory   int64
		numbered bool
		of       links.Options
		need     int64 // 0: it fits
	}{
		{"sorted", 1 << 30, false, links.Options{}, 0},
		{"numbered", 4 << 30, true, links.Options{}, 0},
		{"numbered, in less", 3 << 30, true, links.Options{}, 4 * edges},
		{"of any memory", 0, true, links.Options{}, 0},
		{"given", 1 << 30, true, links.Options{Sources: []int64{1}, Targets: []int64{1}}, 0},
		{"strict pairs", 1 << 30, false, links.Options{Negatives: 1, Strict: true}, 0},
		{"strict triplets", 900 << 20, false, links.Options{Negatives: 1, Strict: true, Triplets: true}, 8 * nodes},
		{"strict by weights", 1 << 30, false, links.Options{
			Negatives: 1, Strict: true, TargetWeights: []float64{1},
		}, 16 * nodes},
	} {
		t.Run(c.name, func(t *testing.T) {
			on := &store.EdgeType{Topology: store.Topology{NumNodes: nodes, NumEdges: edges}}
			if c.numbered {
				on.EdgeIDs = new(store.Array)
			}
			m := &Sampling{Options: Options{Memory: c.memory}}
			m.Parts.Schema = &Schema{Relations: []Relation{{NumEdges: edges, used: true, OnDisk: on}}}
			of := links.Relation{NumSources: nodes, NumTargets: nodes, NumEdges: edges}
			err := fitLinks(m, &c.of, &of)
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
