package prune

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/cache"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// buffers is features of random tables, over a buffer of random size.
type buffers struct {
	layout FeatureLayout
	order  []uint32
	*Features
}

// row is what a table holds of a row: its number, and that of the table, as wide as the table is.
func (b *buffers) row(table int, row uint32) []byte {
	data := make([]byte, b.layout.Tables[table].Width)
	binary.LittleEndian.PutUint32(data, row)
	data[4] = byte(table + 1)
	return data
}

// has says whether a table has a row.
func (b *buffers) has(table int, row uint32) bool {
	return sample.TypeOf(b.layout.First, int64(row)) == b.layout.Tables[table].Type
}

func newBuffers(t *testing.T, rng *rand.Rand, types int) *buffers {
	b := &buffers{layout: FeatureLayout{Buffer: make([]byte, 40+rng.IntN(3000)), First: []int64{0}}}
	for typ := range types {
		b.layout.First = append(b.layout.First, b.layout.First[typ]+1+rng.Int64N(40))
	}
	for range 1 + rng.IntN(4) {
		b.layout.Tables = append(b.layout.Tables, FeatureTable{Type: rng.IntN(types), Width: 5 + rng.IntN(20)})
	}
	budget := mem.NewBudget(0)
	ranked, err := cache.NewVector(budget, b.layout.First[types])
	require.NoError(t, err)
	defer ranked.Close()
	for row := range ranked.Hotness {
		ranked.Hotness[row] = float32(rng.IntN(9)) // with ties
	}
	ends := func(most int64) ([]int64, error) { return make([]int64, most+1), nil }
	if types == 1 && rng.IntN(2) == 0 {
		ends = nil // all take the same
	}
	b.order, err = b.layout.Rank(ranked, ends)
	require.NoError(t, err)
	for rank := range len(b.order) - 1 {
		before, after := b.order[rank], b.order[rank+1]
		require.GreaterOrEqual(t, ranked.Hotness[before], ranked.Hotness[after])
		require.True(t, ranked.Hotness[before] > ranked.Hotness[after] || before < after, "of equals the first")
	}
	policy, err := cache.NewStatic(budget, b.layout.First[types], slices.Values(b.order))
	require.NoError(t, err)
	t.Cleanup(policy.Close)
	b.Features = NewFeatures(b.layout, policy)
	err = b.Fill(context.Background(), b.order, func(_ context.Context, rows []int64, put func(int, int, []byte)) error {
		require.True(t, slices.IsSorted(rows))
		for table := range b.layout.Tables {
			for at, row := range rows {
				if b.has(table, uint32(row)) {
					put(table, at, b.row(table, uint32(row)))
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
	return b
}

// TestFeaturesKeepToTheirEnd: rows of all tables are found as they were read, those that embeddings displaced are
// misses until a batch brings them back, and nothing is written beyond the room that there is.
func TestFeaturesKeepToTheirEnd(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b := newBuffers(t, rng, 1+rng.IntN(3))
		count := b.layout.Count
		require.EqualValues(t, len(b.order), count)
		require.Equal(t, count, b.Held())
		present := map[uint32]bool{}
		for _, row := range b.order {
			present[row] = true
		}
		for range 12 {
			room := rng.Int64N(count + 2)
			b.Resize(room)
			end := int64(0) // of the rows that there is room for
			for rank, row := range b.order {
				present[row] = present[row] && int64(rank) < room
				for table := range b.layout.Tables {
					if int64(rank) < room && b.has(table, row) {
						end += int64(b.layout.Tables[table].Width)
					}
				}
			}
			others := b.layout.Buffer[:int64(len(b.layout.Buffer))-end]
			for i := range others { // embeddings
				others[i] = 0xee
			}
			requireTaken(t, rng, b, present, room)
			for _, v := range others {
				require.EqualValues(t, 0xee, v)
			}
		}
	}
}

// requireTaken lets a batch of random rows take what is there and bring back the rest.
func requireTaken(t *testing.T, rng *rand.Rand, b *buffers, present map[uint32]bool, room int64) {
	rows := make([]uint32, 0, 20)
	for range 20 {
		if row := uint32(rng.Int64N(b.layout.First[len(b.layout.First)-1])); !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
	}
	slots, tensors := make([]int32, len(rows)), make([][][]byte, len(b.layout.Tables))
	for table := range tensors {
		for pos, row := range rows {
			slots[pos] = b.ranks.Slot(row)
			tensors[table] = append(tensors[table], make([]byte, b.layout.Tables[table].Width))
		}
	}
	place := func(table int, pos int32) []byte {
		if !b.has(table, rows[pos]) {
			return nil
		}
		return tensors[table][pos]
	}
	b.Take(slots, place)
	var cold []int32
	for pos, row := range rows {
		require.Equal(t, present[row], slots[pos] != cache.Miss)
		b.Inspect(func(has func(uint32) bool) { require.Equal(t, present[row], has(row)) })
		if !present[row] {
			cold = append(cold, int32(pos))
		}
		for table := range tensors {
			if !b.has(table, row) {
				continue
			}
			if present[row] {
				require.Equal(t, b.row(table, row), tensors[table][pos])
			}
			copy(tensors[table][pos], b.row(table, row)) // as it is read
		}
	}
	b.BringBack(cold, rows, place)
	held := int64(0)
	for rank, row := range b.order {
		present[row] = present[row] || int64(rank) < room && slices.Contains(rows, row)
		if present[row] {
			held++
		}
	}
	require.Equal(t, held, b.Held())
}

// TestNoHistory: where there is none nothing is pruned, and asking for what it has is an error.
func TestNoHistory(t *testing.T) {
	none := None{}
	require.False(t, none.Prunes())
	require.False(t, none.Lend().On())
	require.NoError(t, none.Skip(context.Background()))
	_, update := none.Update(context.Background(), 0, 8, nil)
	_, save := none.Save()
	_, stats := none.Stats()
	for _, err := range []error{
		update, save, stats, none.SkipUpdate(context.Background(), 0), none.Restore(nil, func() { t.Fatal("stopped") }),
	} {
		require.ErrorIs(t, err, ErrCall)
	}
}
