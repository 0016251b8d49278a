package prune

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"

	"freshgo/core/cache"
	"freshgo/core/sample"
)

// Features are the feature side of the history's buffer (FreshGNN, section 4.2): the rows of the hottest nodes, the
// hottest at the very end, as far as embeddings leave room. The slot of a node is its rank. An embedding that takes the
// place of a node's rows displaces them; when the room returns, they come back with the first batch that reads them.
// One ranking has the nodes of all types, each as wide as its rows of all tables are.
//
// A batch copies what it finds at once, before it reads the rest, so that nothing has to stay.
type Features struct {
	layout FeatureLayout
	ranks  Ranks

	mu      sync.RWMutex // writing: to change present, or bytes of the features
	present []bool       // by rank
	room    int64        // ranks below it are the features'
	held    int64        // rows that are present
}

// Ranks says which rank a row has, or a negative number.
type Ranks interface{ Slot(row uint32) int32 }

// Place is where the row of a table, by its number, is to go for a position of a batch, or is; nil where the table does
// not have that row.
type Place func(table int, position int32) []byte

// FeatureLayout is where features lie in the buffer.
type FeatureLayout struct {
	Buffer []byte
	First  []int64 // the number of the first row of each node type; and of all, how many
	Tables []FeatureTable
	Ends   []int64 // by rank: what the ranks before it take, and what all do; nil where all take the same
	Count  int64   // of ranks

	within []int   // by table: where its row begins among those of its node
	widths []int64 // by type: bytes of a node's rows of all tables
}

// FeatureTable is a table of node rows.
type FeatureTable struct{ Type, Width int }

// EndBytes is the cost of an element of Ends.
const EndBytes = 8

// Rank lays out as many rows as the buffer has room for without embeddings, the hottest first; of equals the first. It
// returns the row of each rank. Rows without tables have no rank. ends is memory for FeatureLayout.Ends, one element
// more than there are rows that fit; nil asks for none, which needs rows that all take the same.
func (f *FeatureLayout) Rank(ranked *cache.Vector, ends func(most int64) ([]int64, error)) ([]uint32, error) {
	f.widths = make([]int64, len(f.First)-1)
	for _, t := range f.Tables {
		f.within = append(f.within, int(f.widths[t.Type]))
		f.widths[t.Type] += int64(t.Width)
	}
	bytes, narrowest := int64(len(f.Buffer)), int64(math.MaxInt64)
	for _, width := range f.widths {
		if width > 0 {
			narrowest = min(narrowest, width)
		}
	}
	most := min(bytes/narrowest, f.First[len(f.widths)], math.MaxInt32)
	order := slices.Collect(ranked.Top(most))
	slices.SortStableFunc(order, func(a, b uint32) int { return cmp.Compare(ranked.Hotness[b], ranked.Hotness[a]) })
	if ends == nil {
		f.Count = int64(len(order))
		return order, nil
	}
	memory, err := ends(most)
	if err != nil {
		return nil, err
	}
	f.Ends = append(memory[:0], 0)
	fitting := order[:0]
	for _, row := range order {
		width := f.widths[sample.TypeOf(f.First, int64(row))]
		if width == 0 {
			continue // held whole, or without rows
		}
		end := f.Ends[len(fitting)] + width
		if end > bytes {
			break
		}
		fitting, f.Ends = append(fitting, row), append(f.Ends, end)
	}
	f.Count = int64(len(fitting))
	return fitting, nil
}

// RowBytes is what the rows of a node take where all take the same.
func (f *FeatureLayout) RowBytes() int64 { return f.widths[0] }

// row is where a node's row of a table is.
func (f *FeatureLayout) row(table int, rank int32) []byte {
	end := (int64(rank) + 1) * f.widths[0]
	if f.Ends != nil {
		end = f.Ends[rank+1]
	}
	at := len(f.Buffer) - int(end) + f.within[table]
	return f.Buffer[at : at+f.Tables[table].Width]
}

// NewFeatures returns the features of a layout, of which none is present.
func NewFeatures(layout FeatureLayout, ranks Ranks) *Features {
	return &Features{layout: layout, ranks: ranks, present: make([]bool, layout.Count), room: layout.Count}
}

// fillChunk is how many rows are asked for at once while the features are read: enough to keep the read engine busy,
// few enough that the read plan stays small.
const fillChunk = 1 << 16

// ReadRows reads some rows of all tables that have them and gives each to put with the place of the row in the list.
type ReadRows func(ctx context.Context, rows []int64, put func(table, at int, row []byte)) error

// Fill reads the row of each rank in the order of the rows, a piece at a time. Nothing else runs.
func (f *Features) Fill(ctx context.Context, order []uint32, read ReadRows) error {
	ranks := make([]int32, len(order))
	for i := range ranks {
		ranks[i] = int32(i)
	}
	slices.SortFunc(ranks, func(a, b int32) int { return cmp.Compare(order[a], order[b]) })
	var wanted []int64
	for piece := range slices.Chunk(ranks, fillChunk) {
		wanted = wanted[:0]
		for _, rank := range piece {
			wanted = append(wanted, int64(order[rank]))
		}
		err := read(ctx, wanted, func(table, at int, row []byte) { copy(f.layout.row(table, piece[at]), row) })
		if err != nil {
			return err
		}
	}
	for i := range f.present {
		f.present[i] = true
	}
	f.held = f.layout.Count
	return nil
}

// Take copies the features that are there to their places in a batch, whose ranks are in slots, and makes the others
// misses.
func (f *Features) Take(slots []int32, place Place) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for pos, rank := range slots {
		if rank < 0 {
			continue
		}
		if int64(rank) >= f.room || !f.present[rank] {
			slots[pos] = cache.Miss
			continue
		}
		for table := range f.layout.Tables {
			if to := place(table, int32(pos)); to != nil {
				copy(to, f.layout.row(table, rank))
			}
		}
	}
}

// BringBack puts rows that a batch has read, those at some of its positions, into places that are free again.
func (f *Features) BringBack(read []int32, rows []uint32, place Place) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held == f.room {
		return
	}
	for _, pos := range read {
		rank := f.ranks.Slot(rows[pos])
		if rank < 0 || int64(rank) >= f.room || f.present[rank] {
			continue
		}
		for table := range f.layout.Tables {
			if from := place(table, pos); from != nil {
				copy(f.layout.row(table, rank), from)
			}
		}
		f.present[rank] = true
		f.held++
	}
}

// Resize sets the room that embeddings leave.
func (f *Features) Resize(room int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for rank := max(0, min(room, f.layout.Count)); rank < f.room; rank++ {
		if f.present[rank] {
			f.present[rank] = false
			f.held--
		}
	}
	f.room = min(room, f.layout.Count)
}

// Held is how many rows are there.
func (f *Features) Held() int64 {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.held
}

// Inspect calls fn with what says whether the features of a row are there, while nothing changes.
func (f *Features) Inspect(fn func(has func(row uint32) bool)) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	fn(func(row uint32) bool {
		rank := f.ranks.Slot(row)
		return rank >= 0 && int64(rank) < f.room && f.present[rank]
	})
}
