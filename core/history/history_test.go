package history

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
)

func small() Config {
	return Config{NumNodes: 10, Layers: 2, Bytes: 80, Stale: 3, GradFraction: 1, Policy: Gradient}
}

// looked is a Lookup that is counted at once.
func looked(h *History, i int64, layer int, node int64) int32 {
	l := NewLookups(h.config.Layers)
	defer h.Count(l)
	slot := []int32{0}
	h.Lookup(i, layer, []int64{node}, slot, l)
	return slot[0]
}

func TestConfigErrors(t *testing.T) {
	for name, change := range map[string]func(c *Config){
		"nodes":        func(c *Config) { c.NumNodes = -1 },
		"too many":     func(c *Config) { c.NumNodes = 1<<32 + 1 },
		"layers":       func(c *Config) { c.Layers = 0 },
		"many layers":  func(c *Config) { c.Layers = 256 },
		"bytes":        func(c *Config) { c.Bytes = -1 },
		"row":          func(c *Config) { c.RowBytes = -1 },
		"stale":        func(c *Config) { c.Stale = -1 },
		"start":        func(c *Config) { c.Start = -1 },
		"negative":     func(c *Config) { c.GradFraction = -0.1 },
		"above one":    func(c *Config) { c.GradFraction = 1.1 },
		"not a number": func(c *Config) { c.GradFraction = math.NaN() },
		"policy":       func(c *Config) { c.Policy = "lru" },
		"no reuse":     func(c *Config) { c.Policy = Performance },
	} {
		t.Run(name, func(t *testing.T) {
			c := small()
			change(&c)
			budget := mem.NewBudget(0)
			_, err := New(budget, c)
			require.ErrorIs(t, err, ErrConfig)
			require.Zero(t, budget.Used())
		})
	}
	c := small()
	c.Policy, c.Reuse = Performance, func(int, int64) float32 { return 1 }
	newHistory(t, c, 8)
}

func TestMetadataIsInTheBudget(t *testing.T) {
	c := small()
	need := MetadataBytes(c)
	require.Less(t, need, int64(1000))
	for limit := int64(1); limit < need; limit += 7 {
		budget := mem.NewBudget(limit)
		_, err := New(budget, c)
		require.ErrorIs(t, err, mem.ErrBudget)
		require.Zero(t, budget.Used())
	}
	budget := mem.NewBudget(need)
	h, err := New(budget, c)
	require.NoError(t, err)
	h.Close()
	h.Close()
	require.Zero(t, budget.Used())

	// 111 M nodes, two hidden layers, 10 % of features of 512 bytes: a slot takes three bytes of a table where 2^24 are
	// enough.
	large := Config{NumNodes: 111_000_000, Layers: 2, Bytes: 5_683_200_000, RowBytes: 1024, Policy: Gradient}
	require.InEpsilon(t, 111e6*2*3+5.55e6*32.125, MetadataBytes(large), 0.001)
}

func TestRowErrors(t *testing.T) {
	h := newHistory(t, small(), 0)
	out := make([]Admitted, 2)
	require.ErrorIs(t, h.Update(0, make([]Observed, 2), out), ErrRow, "before SetRow")
	for _, n := range []int64{-1, 0, 81, math.MaxInt64} {
		require.ErrorIs(t, h.SetRow(n), ErrRow)
	}
	require.NoError(t, h.SetRow(80))
	require.NoError(t, h.SetRow(80))
	require.ErrorIs(t, h.SetRow(40), ErrRow)
	require.EqualValues(t, 1, h.Stats().Slots)
	require.NoError(t, h.Update(0, make([]Observed, 2), out), "the update that failed did not count")
}

func TestUpdateErrors(t *testing.T) {
	c := small()
	c.Policy, c.Reuse = Performance, func(int, int64) float32 { return 1 }
	h := newHistory(t, c, 8)
	out := make([]Admitted, 2)
	good := Observed{Nodes: []int64{1}, Norms: []float32{0}, Saves: []float32{1}}
	require.NoError(t, h.Update(5, []Observed{good, good}, out))
	before := h.Save()
	for _, i := range []int64{5, 4, -1} {
		require.ErrorIs(t, h.Update(i, nil, nil), ErrOrder)
	}
	for name, bad := range map[string]Observed{
		"norms": {Nodes: []int64{1, 2}, Norms: []float32{0}, Saves: []float32{1, 1}},
		"hit norms": {
			Nodes: []int64{1}, Norms: []float32{0}, Saves: []float32{1}, HitNodes: []int64{2, 3}, HitNorms: []float32{0},
		},
		"saves":    {Nodes: []int64{1}, Norms: []float32{0}},
		"node":     {Nodes: []int64{10}, Norms: []float32{0}, Saves: []float32{1}},
		"negative": {HitNodes: []int64{-1}, HitNorms: []float32{0}},
	} {
		require.ErrorIs(t, h.Update(6, []Observed{good, bad}, out), ErrConfig, name)
	}
	require.ErrorIs(t, h.Update(6, []Observed{good}, out), ErrConfig)
	require.ErrorIs(t, h.Update(6, []Observed{good, good}, out[:1]), ErrConfig)
	require.Equal(t, before, h.Save(), "nothing has changed")
	require.NoError(t, h.Update(6, nil, nil))
}

// TestAges: an entry is used from the next iteration on to the age Stale, also above slots that are free, and its slot
// is used again.
func TestAges(t *testing.T) {
	h := newHistory(t, small(), 8)
	out := make([]Admitted, 2)
	update := func(i int64, nodes ...int64) {
		o := Observed{Nodes: nodes, Norms: make([]float32, len(nodes))}
		require.NoError(t, h.Update(i, []Observed{o, {}}, out))
	}
	update(0, 1, 2, 3)
	update(1, 4, 5)
	for i, want := range map[int64]bool{0: false, 1: true, 2: true, 3: true, 4: false, 100: false} {
		require.Equal(t, want, h.Find(i, 1, 1) != Miss, "iteration %d", i)
		require.Equal(t, int32(Miss), h.Find(i, 2, 1), "of another layer")
	}
	used, unused := NewLookups(2), NewLookups(2)
	h.Lookup(1, 1, []int64{1}, make([]int32, 1), used)
	h.Lookup(3, 1, []int64{2}, make([]int32, 1), used)
	h.Lookup(4, 1, []int64{2}, make([]int32, 1), used)
	h.Lookup(3, 1, []int64{2}, make([]int32, 1), unused)
	h.Lookup(3, 2, []int64{2}, make([]int32, 1), unused)
	require.Equal(t, []LayerStats{{Admitted: 5, Live: 5}, {}}, h.Stats().Layers, "nothing is counted yet")
	h.Count(used)
	require.NoError(t, h.Update(2, nil, nil))
	require.EqualValues(t, 5, h.Stats().Layers[0].Live, "1, 2 and 3 can be used at 3")
	update(3, 6)
	require.Equal(t, []int32{0}, out[0].Slots, "the lowest of 0, 1 and 2, which are free")
	s := h.Stats()
	require.EqualValues(t, 3, s.Expired)
	require.Equal(t, LayerStats{Hits: 2, Misses: 1, Admitted: 6, Live: 3}, s.Layers[0])
	require.Equal(t, []int64{1, 1}, s.Ages)
	require.EqualValues(t, 5*8, s.EmbeddingBytes)
	require.NotEqual(t, int32(Miss), h.Find(4, 1, 5), "slot 4, above those that are free")
	require.NoError(t, h.Update(4, nil, nil))
	require.EqualValues(t, 8, h.Stats().EmbeddingBytes, "the region ends behind 6")
	require.Equal(t, int32(Miss), h.Find(5, 1, 5))
}

// TestOverflow: with no room the oldest entries give way, in their order, but not those that batches rely on nor those
// of the update.
func TestOverflow(t *testing.T) {
	c := small()
	c.Bytes, c.Stale = 8*4, Forever
	h := newHistory(t, c, 8)
	out := make([]Admitted, 2)
	update := func(i int64, nodes ...int64) ([]int32, []int32) {
		o := Observed{Nodes: nodes, Norms: make([]float32, len(nodes))}
		require.NoError(t, h.Update(i, []Observed{o, {}}, out))
		return out[0].Rows, out[0].Slots
	}
	update(0, 0, 1)
	update(1, 2, 3)
	_, slots := update(2, 4)
	require.Equal(t, []int32{0}, slots, "of node 0, the oldest")
	h.Pin(3, []int32{1})
	rows, slots := update(3, 5, 6, 7, 8, 9)
	require.Equal(t, []int32{0, 1, 2}, rows)
	require.Equal(t, []int32{2, 3, 0}, slots, "around the slot that is relied on, and none twice")
	s := h.Stats()
	require.EqualValues(t, 2, s.RefusedPinned)
	require.EqualValues(t, 4, s.Overwritten)
	h.Unpin(3)
	rows, _ = update(4, 0, 1, 2, 3, 4)
	require.Equal(t, []int32{0, 1, 2, 3}, rows)
	require.EqualValues(t, 1, h.Stats().RefusedFull)
}

// TestPinnable: what a restored run may rely on is an entry in its place, or a slot without any, which the pin keeps
// free of others.
func TestPinnable(t *testing.T) {
	h := newHistory(t, small(), 8)
	out := make([]Admitted, 2)
	o := []Observed{{Nodes: []int64{4, 5}, Norms: []float32{0, 0}}, {}}
	require.NoError(t, h.Update(0, o, out))
	for _, c := range []struct {
		i    int64
		node int64
		slot int32
		want bool
	}{{1, 4, 0, true}, {3, 5, 1, true}, {0, 4, 0, false}, {4, 4, 0, false}, {1, 5, 0, false}, {1, 7, 6, true},
		{1, 7, 10, false}, {1, 7, -1, false}} {
		require.Equal(t, c.want, h.Pinnable(c.i, 1, c.node, c.slot), "%+v", c)
	}
	h.Pin(1, []int32{3})
	require.EqualValues(t, 4*8, h.Stats().EmbeddingBytes)
	o[0].Nodes = []int64{6, 7}
	require.NoError(t, h.Update(1, o, out))
	require.Equal(t, []int32{2, 4}, out[0].Slots, "not 3")
	h.Unpin(1)
	verify(t, h)
}

// TestUpdateAllocatesNothing in steady state.
func TestUpdateAllocatesNothing(t *testing.T) {
	for _, policy := range []string{Gradient, Performance, All} {
		c := Config{NumNodes: 1000, Layers: 2, Bytes: 8 * 500, Stale: 3, GradFraction: 0.9, Policy: policy,
			Reuse: func(int, int64) float32 { return 0.1 }}
		h := newHistory(t, c, 8)
		o := Observed{}
		for node := range int64(300) {
			o.Nodes, o.Norms, o.Saves = append(o.Nodes, node*3), append(o.Norms, float32(node%7)),
				append(o.Saves, float32(node%5))
		}
		layers, out, i := []Observed{o, o}, make([]Admitted, 2), int64(0)
		round := func() {
			var slots [1]int32
			if slots[0] = looked(h, i, 1, 3); slots[0] >= 0 {
				h.Pin(i, slots[:])
			}
			require.NoError(t, h.Update(i, layers, out))
			h.Unpin(i)
			i++
		}
		for range 20 {
			round()
		}
		require.Zero(t, testing.AllocsPerRun(50, round), policy)
	}
}

// TestLevels: of a layer that is not kept there is no table, and nothing of it enters.
func TestLevels(t *testing.T) {
	c := small()
	c.Layers, c.Levels, c.Bytes = 3, 0b010, 400
	budget := mem.NewBudget(0)
	h, err := New(budget, c)
	require.NoError(t, err)
	defer h.Close()
	require.EqualValues(t, MetadataBytes(c), budget.Used())
	all := c
	all.Levels = 0
	require.EqualValues(t, 2*tableBytes(10, c.tableWidth())+20*slotSize, MetadataBytes(all)-MetadataBytes(c),
		"two tables, and slots for the rows of two layers")
	require.NoError(t, h.SetRow(8))
	o := Observed{Nodes: []int64{1, 2}, Norms: []float32{0, 0}}
	admitted := make([]Admitted, 3)
	require.NoError(t, h.Update(0, []Observed{o, o, o}, admitted))
	require.Equal(t, []Admitted{{}, {Rows: []int32{0, 1}, Slots: []int32{0, 1}}, {}}, admitted)
	lookups, slots := NewLookups(3), make([]int32, 3)
	for layer := 1; layer <= 3; layer++ {
		h.Lookup(1, layer, []int64{1, 2, 3}, slots, lookups)
		if layer == 2 {
			require.Equal(t, []int32{0, 1, Miss}, slots)
		} else {
			require.Equal(t, []int32{Miss, Miss, Miss}, slots)
			require.EqualValues(t, Miss, h.Find(1, layer, 1))
			require.EqualValues(t, -1, h.Admission(layer, 1))
		}
	}
	require.Equal(t, []int64{0, 2, 0}, lookups.Hits)
	require.Equal(t, []int64{3, 1, 3}, lookups.Misses)
	state := h.Save()
	other, err := New(budget, all)
	require.NoError(t, err)
	defer other.Close()
	require.ErrorIs(t, other.Restore(state), ErrState)
	c.Levels = 0b1000
	_, err = New(budget, c)
	require.ErrorIs(t, err, ErrConfig)
}
