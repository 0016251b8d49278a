// Package history decides which embeddings of earlier iterations a training run reuses (FreshGNN, sections 3 to 5).
//
// A History records for each hidden layer and node the slot of its embedding in one buffer and the iteration of its
// admission; the rows themselves are a tensor of the training framework, which copies them as the History says. A
// Pruner removes from a sampled batch the parts that reused embeddings replace, before any feature is read.
//
// It guarantees: an entry admitted at iteration a is found at i only if 1 <= i-a <= Stale. A slot keeps its row until
// its entry has ended and no batch that relies on it is pinned. A node has at most one entry in a layer. Every answer
// is a function of the arguments and the calls so far: ties go to the lower position, the older entry, the lower slot.
// A restored History continues as the saved one would have.
//
// The loader calls it and serialises all calls; nothing here locks or waits. A Lookup costs two dependent memory
// accesses, an Update a few passes over the rows of the batch, without a sort: 50 to 75 ns a row, for 150,000 rows in a
// batch, 1 M nodes and 400,000 slots. Tables by node and by slot are off the heap and counted under mem.History;
// scratch memory of the size of a batch is on it.
package history

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"freshgo/core/internal/asm"
	"freshgo/core/internal/invariants"
	"freshgo/core/mem"
)

// Forever is a Stale that no age exceeds.
const Forever = math.MaxInt64

// lastIteration is far beyond any training, and far enough from the last number that none overflows.
const lastIteration = 1 << 62

// The policies of admission.
const (
	Gradient    = "gradient"    // the paper's section 4.1: the smallest gradients enter, the oldest entries give way
	Performance = "performance" // of those, the ones that save the most reads: see performance.go
	All         = "all"         // everything enters, nothing leaves: the policy of VR-GCN and GNNAutoScale
)

// Errors of this package wrap one of these or mem.ErrBudget.
var (
	ErrConfig = errors.New("invalid configuration")
	ErrRow    = errors.New("embedding rows do not fit the history")
	ErrState  = errors.New("not a state of this history")
	ErrOrder  = errors.New("updates out of order")
)

// Config selects the embeddings that are kept, their memory and their age.
type Config struct {
	NumNodes int64
	Layers   int   // hidden layers, numbered from 1
	Levels   int64 // bit l-1: layer l is kept; 0: all are
	Bytes    int64 // the buffer
	// the narrowest embedding for which there are tables for all of the buffer; narrower ones use a part. 0: 256
	RowBytes int64
	Stale    int64 // an entry is used up to this age, in iterations; 0: never. All has Forever
	Start    int64 // nothing enters before this iteration
	// of the computed rows of a layer that may enter, those with the smallest gradients (p_grad). All has 1
	GradFraction float64
	Policy       string
	// number of updates by which batches are pruned ahead. It appears only in Stats: the order of the calls decides
	Lag int64

	// Reuse returns the mean number of uses of a node's row at a layer in an iteration, if nothing is pruned. For
	// Performance.
	Reuse func(layer int, node int64) float32
}

const (
	defaultRowBytes = 256       // 64 floats, the narrowest hidden layer in common use
	fewSlots        = 1 << 16   // the tables hold at least fewSlots slots, or all there can be: 2 MiB
	maxSlots        = 1<<31 - 2 // slots are int32, and two codes of a table are no slots
)

func (c *Config) check() error {
	switch {
	case c.NumNodes < 0 || c.NumNodes > 1<<32:
		return fmt.Errorf("history: number of nodes must be within [0, 2^32], got %d: %w", c.NumNodes, ErrConfig)
	case c.Layers < 1 || c.Layers > math.MaxUint8:
		return fmt.Errorf("history: hidden layers must be within [1, 255], got %d: %w", c.Layers, ErrConfig)
	case c.Levels < 0 || c.Layers < 63 && c.Levels>>c.Layers != 0:
		return fmt.Errorf("history: levels must be some of %d, got %b: %w", c.Layers, c.Levels, ErrConfig)
	case c.Bytes < 0 || c.RowBytes < 0:
		return fmt.Errorf("history: sizes must not be negative, got a buffer of %d bytes, rows of %d: %w", c.Bytes,
			c.RowBytes, ErrConfig)
	case c.Stale < 0 || c.Start < 0:
		return fmt.Errorf("history: stale and start must not be negative, got %d and %d: %w", c.Stale, c.Start, ErrConfig)
	case !(c.GradFraction >= 0 && c.GradFraction <= 1): // NaN fails
		return fmt.Errorf("history: grad fraction must be within [0, 1], got %v: %w", c.GradFraction, ErrConfig)
	case c.Policy != Gradient && c.Policy != Performance && c.Policy != All:
		return fmt.Errorf("history: policy must be one of %q, got %q: %w", []string{Gradient, Performance, All}, c.Policy,
			ErrConfig)
	case c.Policy == Performance && c.Reuse == nil:
		return fmt.Errorf("history: policy %q needs Reuse: %w", Performance, ErrConfig)
	}
	return nil
}

// Keeps reports whether embeddings of a layer are kept.
func (c *Config) Keeps(layer int) bool {
	return c.Levels == 0 || layer < 64 && c.Levels>>(layer-1)&1 != 0
}

// kept returns the number of kept layers.
func (c *Config) kept() int64 {
	if c.Levels == 0 {
		return int64(c.Layers)
	}
	return int64(bits.OnesCount64(uint64(c.Levels)))
}

// slotLimit returns the number of slots for which there are tables.
func (c *Config) slotLimit() int64 {
	row := c.RowBytes
	if row == 0 {
		row = defaultRowBytes
	}
	perNode := c.NumNodes * c.kept() // at most 2^40
	return min(perNode, max(c.Bytes/row, min(c.Bytes, fewSlots)), maxSlots)
}

// tableWidth returns the bytes of a slot number in a table, which also has two special codes.
func (c *Config) tableWidth() int { return (bits.Len64(uint64(c.slotLimit()+1)) + 7) / 8 }

// MetadataBytes returns the memory that New takes from the budget: for each node and kept layer a slot number in as few
// bytes as it needs, and 32 bytes and a bit for each slot.
func MetadataBytes(c Config) int64 {
	return c.kept()*tableBytes(c.NumNodes, c.tableWidth()) + slotBytes(c.slotLimit())
}

// History is the state of the cache. New makes one; the zero value is unusable.
type History struct {
	config   Config
	entries  entries
	judge    judge
	pinned   pins
	rowBytes int64 // 0: not known yet
	updated  int64 // the iteration of the latest update, or -1
	blocks   []*mem.Block
}

// New makes an empty history, or returns ErrConfig or mem.ErrBudget.
func New(budget *mem.Budget, c Config) (*History, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Policy == All {
		c.Stale, c.GradFraction = Forever, 1
	}
	h := &History{config: c, updated: -1}
	h.entries.config, h.judge.entries = &h.config, &h.entries
	h.entries.counts.layers = make([]LayerStats, c.Layers)
	h.entries.tables = make([]table, c.Layers+1)
	for l := 1; l <= c.Layers; l++ {
		if !c.Keeps(l) {
			continue
		}
		block, err := budget.Alloc(mem.History, tableBytes(c.NumNodes, c.tableWidth()))
		if err != nil {
			h.Close()
			return nil, err
		}
		h.blocks = append(h.blocks, block)
		h.entries.tables[l] = newTable(block.Bytes(), c.tableWidth())
	}
	block, err := budget.Alloc(mem.History, slotBytes(c.slotLimit()))
	if err != nil {
		h.Close()
		return nil, err
	}
	h.blocks = append(h.blocks, block)
	h.entries.ring.init(block.Bytes(), c.slotLimit())
	h.entries.price.init(&h.config)
	return h, nil
}

// SetSpans sets Config.Stale and Config.Start, which must not be negative, from now on.
func (h *History) SetSpans(stale, start int64) {
	if h.config.Policy == All {
		stale = Forever
	}
	h.config.Stale, h.config.Start = stale, start
	h.entries.expire(h.updated) // as a saved state has no entry that nobody may read
}

// Close frees the tables; further calls do nothing.
func (h *History) Close() {
	for _, block := range h.blocks {
		block.Free()
	}
	h.blocks, h.entries.tables = nil, nil
}

// SetRow sets the bytes of an embedding of the widest layer, and so the number of slots. It returns ErrRow if rows had
// another size before or the buffer is smaller than one row.
func (h *History) SetRow(nBytes int64) error {
	switch {
	case h.rowBytes == nBytes && nBytes > 0:
		return nil
	case h.rowBytes > 0:
		return fmt.Errorf("history: embeddings have rows of %d bytes, expected %d as before: %w", nBytes, h.rowBytes, ErrRow)
	case nBytes <= 0 || nBytes > h.config.Bytes:
		return fmt.Errorf("history: embeddings have rows of %d bytes, expected 1 to the %d bytes of its memory: %w",
			nBytes, h.config.Bytes, ErrRow)
	}
	h.setRow(nBytes)
	return nil
}

func (h *History) setRow(nBytes int64) {
	h.rowBytes, h.entries.numSlots = nBytes, int32(h.config.numSlots(nBytes))
}

// numSlots returns the number of rows of a size that fit.
func (c *Config) numSlots(rowBytes int64) int64 {
	if rowBytes == 0 {
		return 0
	}
	return min(c.Bytes/rowBytes, c.slotLimit())
}

// Lookup sets slots to the slots of nodes at a layer for iteration i, or to Miss, and records the result in l.
//
// It prefetches the nodes' entries in the table, then their slots, so that many cache misses overlap.
func (h *History) Lookup(i int64, layer int, nodes []int64, slots []int32, l *Lookups) {
	t := &h.entries.tables[layer]
	if !h.config.Keeps(layer) {
		for k := range nodes {
			slots[k] = Miss
		}
		l.Misses[layer-1] += int64(len(nodes))
		return
	}
	for from := 0; from < len(nodes); from += lookupChunk {
		part := nodes[from:min(from+lookupChunk, len(nodes))]
		found := slots[from:][:len(part)]
		t.prefetch(part)
		for k, node := range part {
			found[k] = t.get(node)
		}
		asm.Prefetch(h.entries.slots, found)
		hits := int64(0)
		for k, slot := range found {
			age := int64(0)
			if slot >= 0 {
				age = i - h.entries.slots[slot].admitted
			}
			if age < 1 || age > h.config.Stale {
				found[k] = Miss
				continue
			}
			hits++
			l.Ages[bits.Len64(uint64(age))-1]++
		}
		l.Hits[layer-1] += hits
		l.Misses[layer-1] += int64(len(part)) - hits
	}
}

// Find is Lookup for one node, without a record.
func (h *History) Find(i int64, layer int, node int64) int32 {
	slot := h.entries.tables[layer].get(node)
	if slot < 0 {
		return Miss
	}
	if age := i - h.entries.slots[slot].admitted; age < 1 || age > h.config.Stale {
		return Miss
	}
	return slot
}

// Admission returns the iteration at which the entry of a node at a layer was admitted, or -1 when it has none.
func (h *History) Admission(layer int, node int64) int64 {
	if slot := h.entries.tables[layer].get(node); slot >= 0 {
		return h.entries.slots[slot].admitted
	}
	return -1
}

// Observed is one hidden layer of a batch after its backward pass. A node that repeats in Nodes is judged once, by its
// first row. A layer without norms is not judged: none of its rows enter, and its entries stay.
type Observed struct {
	Nodes    []int64   // of the computed rows
	Norms    []float32 // of their gradients. A norm that is not finite keeps the row out, and evicts the node's entry
	HitNodes []int64   // of the rows that history gave
	HitNorms []float32 // or none: they are not judged
	Saves    []float32 // by computed row: reads that its entry would have saved in this batch; for Performance
}

// judged reports whether there are gradients to decide by.
func (o *Observed) judged() bool { return len(o.Norms) > 0 || len(o.HitNorms) > 0 }

// Admitted lists the computed rows of a layer that are kept: row Rows[k] of Nodes goes to slot Slots[k]. No slot occurs
// twice in an update.
type Admitted struct {
	Rows  []int32
	Slots []int32
}

// Update judges the rows of iteration i (sections 4.1 and 4.2) and sets out, by layer, to the rows to keep. The caller
// writes them before it prunes a batch that may rely on them. Without layers, only expired entries end.
//
// Iterations ascend to at most 2^62, or Update returns ErrOrder. It returns ErrRow before SetRow was called, and
// ErrConfig if slices do not fit together.
func (h *History) Update(i int64, layers []Observed, out []Admitted) error {
	if i <= h.updated || i > lastIteration {
		return fmt.Errorf("history: iteration %d is updated after iteration %d, expected ascending order: %w",
			i, h.updated, ErrOrder)
	}
	if len(layers) != 0 {
		if err := h.fits(layers, out); err != nil {
			return err
		}
	}
	h.updated = i
	h.entries.expire(i)
	for l := range layers {
		out[l].Rows, out[l].Slots = out[l].Rows[:0], out[l].Slots[:0]
	}
	if len(layers) != 0 && i >= h.config.Start && h.config.Stale > 0 && h.config.GradFraction > 0 {
		h.entries.price.observe(layers)
		h.judge.update(i, layers, out)
	}
	h.entries.shrink()
	if invariants.Enabled {
		h.entries.check()
	}
	return nil
}

func (h *History) fits(layers []Observed, out []Admitted) error {
	if h.rowBytes == 0 {
		return fmt.Errorf("history: update before the size of rows is known: %w", ErrRow)
	}
	if len(layers) != h.config.Layers || len(out) != h.config.Layers {
		return fmt.Errorf("history: an update is of %d layers, into %d, expected %d: %w", len(layers), len(out),
			h.config.Layers, ErrConfig)
	}
	for l := range layers {
		o := &layers[l]
		hits := o.HitNodes[:min(len(o.HitNodes), len(o.HitNorms))]
		if o.judged() && (len(o.Nodes) != len(o.Norms) || len(o.HitNorms) != 0 && len(o.HitNodes) != len(o.HitNorms)) {
			return fmt.Errorf("history: layer %d has %d norms of %d rows and %d of %d hits: %w",
				l+1, len(o.Norms), len(o.Nodes), len(o.HitNorms), len(o.HitNodes), ErrConfig)
		}
		if h.config.Policy == Performance && len(o.Saves) != len(o.Nodes) {
			return fmt.Errorf("history: layer %d has savings of %d of %d rows: %w", l+1, len(o.Saves), len(o.Nodes), ErrConfig)
		}
		for _, nodes := range [][]int64{o.Nodes, hits} {
			for _, node := range nodes {
				if uint64(node) >= uint64(h.config.NumNodes) {
					return fmt.Errorf("history: layer %d has node %d, expected one of %d: %w", l+1, node,
						h.config.NumNodes, ErrConfig)
				}
			}
		}
	}
	return nil
}
