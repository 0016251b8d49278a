package draw

import (
	"fmt"
	"slices"
	"strconv"

	"freshgo/core/embed"
	"freshgo/core/manifest"
	"freshgo/core/sizing"
	"freshgo/core/store"
)

// Trained is a table whose rows training changes, of the nodes of a type.
type Trained struct {
	Table *embed.Table
	Type  int
}

const (
	// returnedShare is the part of the memory, as a divisor, for rows on their way back to tables. A window that returns
	// 5M rows of 264 bytes spills 20 runs with 64 MiB, which merge in one pass. Arbitrary.
	returnedShare               = 16
	leastReturned, mostReturned = 1 << 20, 64 << 20
)

// TrainedName returns the name in batches of the rows of a table, by its place among the loader's tables.
func TrainedName(place int) string { return "table/" + strconv.Itoa(place) }

// ReturnedRoom returns the memory for the rows that go back to one of the tables.
func (o *Options) ReturnedRoom() embed.Room { return o.returnedRoom(o.Memory) }

// returnedRoom is ReturnedRoom with another memory.
func (o *Options) returnedRoom(memory int64) embed.Room {
	bytes := int64(mostReturned)
	if memory > 0 {
		bytes = max(leastReturned, min(memory/returnedShare, mostReturned))
	}
	return embed.RoomIn(bytes / int64(len(o.Tables)))
}

// AddTrained adds the tables that training changes to the tensors of nodes, and the options that they imply.
func AddTrained(m *Sampling) error {
	o, p := &m.Options, &m.Parts
	if len(o.Tables) == 0 {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: embeddings %s", ErrOption, fmt.Sprintf(format, args...))
	}
	switch {
	case p.Store == nil:
		return refuse("need a store: of a graph in memory, use torch.nn.Embedding")
	case o.Cache != "auto" && o.Cache != "belady":
		return refuse("need cache \"belady\", which knows when rows are used next, got cache %q", o.Cache)
	case !o.CarryOver:
		return refuse("need carry_over: a row in the cache may be newer than in its file")
	case o.Held != nil:
		return refuse("and rows that the consumer holds cannot be used together")
	}
	o.Cache, p.Trains = "belady", true
	if o.Prefetch == Auto {
		o.Prefetch = sizing.FewAhead
	}
	o.Prefetch = min(o.Prefetch+1, most) // one of the batches is with the consumer until its rows are taken back
	at := slices.IndexFunc(p.Tensors, func(t Tensor) bool { return t.ByEdge })
	if at < 0 {
		at = len(p.Tensors)
	}
	for i, of := range o.Tables {
		if of.Type < 0 || of.Type >= p.Schema.NumTypes() {
			return refuse("of node type %d of %d", of.Type, p.Schema.NumTypes())
		}
		l, nodes := of.Table.Layout(), p.Schema.NumNodes(of.Type)
		if l.NumRows != nodes {
			return refuse("at %s have %d rows, expected one for each of the %d nodes", of.Table.Path(), l.NumRows, nodes)
		}
		if p.stored[of.Type].Order != nil {
			return refuse("need a store whose rows are in the order of the nodes: convert the graph without relayout")
		}
		shape := []int64{int64(l.RowBytes)}
		p.Tensors = slices.Insert(p.Tensors, at+i, Tensor{
			Name: TrainedName(i), Label: TrainedName(i), DType: manifest.DType_UINT8, RowShape: shape, Width: l.RowBytes,
			NumRows: l.NumRows, Stored: manifest.DType_UINT8, Type: of.Type, First: p.Schema.First[of.Type],
			OnDisk: &store.Tensor{Name: TrainedName(i), Array: store.Array{
				Path: of.Table.RowsPath(), DType: manifest.DType_UINT8, RowShape: shape, Rows: l.NumRows, Layout: l,
				Bytes: l.FileBytes(),
			}},
			Trained: of.Table, span: int(l.SpanBytes()),
		})
	}
	return nil
}

// UseTrained reserves the tables for the loader.
func UseTrained(m *Sampling) error {
	for _, of := range m.Options.Tables {
		release, err := of.Table.Use()
		if err != nil {
			return err
		}
		m.OnClose(release)
	}
	return nil
}

// trainedBytes returns the memory of the tables beside their rows in the cache, for a loader with this memory.
func trainedBytes(m *Sampling, memory int64) (total int64) {
	for _, of := range m.Options.Tables {
		room := m.Options.returnedRoom(memory)
		total += of.Table.Bytes() + embed.ReturnedBytes(of.Table, room) + 2*embed.GroupBytes(room.Put) + room.Merge
	}
	return total
}
