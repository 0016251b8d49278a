package loader

import (
	"cmp"
	"math"
	"slices"

	"freshgo/core/cache"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// Where features lie in the history's buffer: by rank from its end, each node as wide as its rows of all tables on disk.

// layOut finds the widths of rows.
func (f *outermost) layOut() {
	f.widths = make([]int64, f.loader.parts.types.types())
	for _, t := range f.loader.onDisk {
		f.within = append(f.within, int(f.widths[t.typ]))
		f.widths[t.typ] += int64(t.width)
	}
}

// hottest are the rows that the buffer has room for without embeddings, the hottest first; of equals the first.
func (f *outermost) hottest(ranked *cache.Vector) ([]uint32, error) {
	l, bytes, narrowest := f.loader, int64(len(f.buffer)), int64(math.MaxInt64)
	for _, width := range f.widths {
		if width > 0 {
			narrowest = min(narrowest, width)
		}
	}
	most := min(bytes/narrowest, l.parts.numNodes, math.MaxInt32)
	order := slices.Collect(ranked.Top(most))
	slices.SortStableFunc(order, func(a, b uint32) int { return cmp.Compare(ranked.Hotness[b], ranked.Hotness[a]) })
	if l.parts.types.unnamed() {
		return order, nil
	}
	block, err := l.budget.Alloc(mem.History, (most+1)*endBytes)
	if err != nil {
		return nil, err
	}
	l.onClose(block.Free)
	f.ends = append(mem.Slice[int64](block)[:0], 0)
	fitting := order[:0]
	for _, row := range order {
		width := f.widths[f.typeOf(row)]
		if width == 0 {
			continue // held whole, or without rows
		}
		end := f.ends[len(fitting)] + width
		if end > bytes {
			break
		}
		fitting, f.ends = append(fitting, row), append(f.ends, end)
	}
	return fitting, nil
}

// endBytes is the cost of a rank's place.
const endBytes = 8

// typeOf is the type of a node, by its row.
func (f *outermost) typeOf(row uint32) int {
	if types := f.loader.parts.types; !types.unnamed() {
		return sample.TypeOf(types.first, int64(row))
	}
	return 0
}

// row is where a node's row of a table is.
func (f *outermost) row(table int, rank int32) []byte {
	end := (int64(rank) + 1) * f.widths[0]
	if f.ends != nil {
		end = f.ends[rank+1]
	}
	at := len(f.buffer) - int(end) + f.within[table]
	return f.buffer[at : at+f.loader.onDisk[table].width]
}
