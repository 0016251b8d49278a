package embed

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"syscall"

	"freshgo/core/internal/bitset"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// Returned holds the records that go back to their table: in memory, then in sorted runs of a file without a name,
// which Flush merges into the table in the order of its rows. A row is away from the moment it is returned until it is
// taken, or until Settle. After Settle it is stale for what was read before, until it is taken.
//
// It belongs to one goroutine at a time.
type Returned struct {
	table *Table
	width int // of a record
	room  Room

	away   bitset.Set
	stale  bitset.Set
	pages  bitset.Set // of the table, touched by the records
	blocks []*mem.Block
	memory []byte   // records, the taken ones too
	count  int      // of them
	live   int      // those that were not taken
	index  []uint32 // by a hash of the row: one more than the place of its record; 0: none
	order  []uint32 // scratch of sorting

	file ssd.File // of the runs; nil: there was none
	runs []run    // in the file
	end  int64    // of the file
}

// run is sorted and sealed records in the file.
type run struct{ off, count int64 }

// Room is the memory of a Returned.
type Room struct {
	Records int64 // for records
	Put     int64 // while they are written: see Put
	Merge   int64 // while runs are merged
}

// RoomIn divides bytes of memory: half for records, so that runs are long.
func RoomIn(bytes int64) Room { return Room{bytes / 2, bytes / 4, bytes / 4} }

const (
	// loadFactor is the number of places of the index for each record: two keep a probe short.
	loadFactor = 2
	// leastPiece and mostPiece bound what a merge reads of a run at once. A read of 256 KiB reaches a disk's rate.
	leastPiece, mostPiece = 4 << 10, 256 << 10
)

// ReturnedBytes returns the memory of a Returned for a table, but for what Put and merging take.
func ReturnedBytes(t *Table, room Room) int64 {
	n := recordsIn(t.layout.RowBytes, room)
	return n*(int64(t.layout.RowBytes)+4*(loadFactor+1)) + 2*bitset.Bytes(t.layout.NumRows) +
		bitset.Bytes(t.pages())
}

// recordsIn returns the number of records in memory.
func recordsIn(width int, room Room) int64 {
	return max(16, room.Records/int64(width+4*(loadFactor+1)))
}

// NewReturned returns an empty Returned.
func NewReturned(t *Table, budget *mem.Budget, room Room) (*Returned, error) {
	n := recordsIn(t.layout.RowBytes, room)
	r := &Returned{table: t, width: t.layout.RowBytes, room: room}
	bits, pages := bitset.Bytes(t.layout.NumRows), bitset.Bytes(t.pages())
	for _, bytes := range []int64{n * int64(r.width), 4 * n * loadFactor, 4 * n, bits, bits, pages} {
		block, err := budget.Alloc(mem.Staging, bytes)
		if err != nil {
			r.Close()
			return nil, err
		}
		r.blocks = append(r.blocks, block)
	}
	r.memory, r.index = r.blocks[0].Bytes(), mem.Slice[uint32](r.blocks[1])
	r.order = mem.Slice[uint32](r.blocks[2])
	r.away, r.stale = mem.Slice[uint64](r.blocks[3]), mem.Slice[uint64](r.blocks[4])
	r.pages = mem.Slice[uint64](r.blocks[5])
	return r, nil
}

// Close frees the memory and the file.
func (r *Returned) Close() {
	for _, block := range r.blocks {
		block.Free()
	}
	r.blocks = nil
	if r.file != nil {
		_ = r.file.Close() // nobody reads it
		r.file = nil
	}
}

// Away reports whether a row was returned since the last Settle, and not taken.
func (r *Returned) Away(row uint32) bool { return r.away.Has(int64(row)) }

// Stale reports whether a row came back into the file since what was read before the last Settle, and is not away.
func (r *Returned) Stale(row uint32) bool { return r.stale.Has(int64(row)) }

// Spills reports whether records are in runs.
func (r *Returned) Spills() bool { return len(r.runs) > 0 }

// Spilled reports whether the record of a row is in a run.
func (r *Returned) Spilled(row uint32) bool {
	return r.Spills() && r.Away(row) && r.index[r.find(row)] == 0
}

// Add returns a record to the table. There is no other record of its row.
func (r *Returned) Add(row uint32, record []byte) error {
	if (r.count+1)*r.width > len(r.memory) {
		if err := r.spill(); err != nil {
			return err
		}
	}
	to := r.record(r.count)
	copy(to, record[:r.width])
	Mark(to, row)
	r.away.Add(int64(row))
	touch(r.pages, r.table.layout, int64(row))
	at := r.find(row)
	r.count++
	r.live++
	r.index[at] = uint32(r.count)
	return nil
}

func (r *Returned) record(i int) []byte { return r.memory[i*r.width:][:r.width] }

// find returns the place of a row in the index, or the place where it would be.
func (r *Returned) find(row uint32) int {
	at := int(uint64(row*0x9E3779B1) * uint64(len(r.index)) >> 32) // Fibonacci hashing
	for r.index[at] != 0 && Row(r.record(int(r.index[at])-1)) != row {
		if at++; at == len(r.index) {
			at = 0
		}
	}
	return at
}

// Copy copies the record of a row that is away into dst. It returns false where the record is in a run: then the file
// has it after Flush.
func (r *Returned) Copy(row uint32, dst []byte) bool {
	at := r.find(row)
	if r.index[at] == 0 {
		return false
	}
	copy(dst, r.record(int(r.index[at])-1))
	return true
}

// Replace replaces the record of a row that is away. It returns false where the record is in a run.
func (r *Returned) Replace(row uint32, record []byte) bool {
	at := r.find(row)
	if r.index[at] == 0 {
		return false
	}
	to := r.record(int(r.index[at]) - 1)
	copy(to, record[:r.width])
	Mark(to, row)
	return true
}

// Take forgets the record of a row: the caller has a newer one.
func (r *Returned) Take(row uint32) {
	r.stale.Remove(int64(row))
	if !r.Away(row) {
		return
	}
	if at := r.find(row); r.index[at] != 0 {
		Unmark(r.record(int(r.index[at])-1), row)
		r.live--
	}
	r.away.Remove(int64(row))
}

// sorted orders the live records by row.
func (r *Returned) sorted() []uint32 {
	order := r.order[:0]
	for i := range r.count {
		if Changed(r.record(i)) {
			order = append(order, uint32(i))
		}
	}
	slices.SortFunc(order, func(a, b uint32) int {
		return cmp.Compare(Row(r.record(int(a))), Row(r.record(int(b))))
	})
	return order
}

// empty forgets the records in memory.
func (r *Returned) empty() {
	r.count, r.live = 0, 0
	clear(r.index)
}

// spill writes the records in memory to a run.
func (r *Returned) spill() error {
	if r.file == nil {
		if err := r.createFile(); err != nil {
			return err
		}
	}
	at, buffer := r.end, make([]byte, 0, mostPiece+r.width)
	write := func() error {
		err := ssd.WriteFull(r.file, buffer, at)
		r.table.traffic.written.Add(int64(len(buffer)))
		at, buffer = at+int64(len(buffer)), buffer[:0]
		return err
	}
	order := r.sorted()
	for _, i := range order {
		buffer = append(buffer, r.record(int(i))...)
		seal(buffer[len(buffer)-r.width:])
		if len(buffer) >= mostPiece {
			if err := write(); err != nil {
				return err
			}
		}
	}
	if len(buffer) > 0 {
		if err := write(); err != nil {
			return err
		}
	}
	r.runs = append(r.runs, run{r.end, int64(len(order))})
	r.end = at
	r.empty()
	return nil
}

// createFile makes the file of the runs, which has no name and ends with the process.
func (r *Returned) createFile() error {
	var random [8]byte
	_, _ = rand.Read(random[:]) // cannot fail
	path := r.table.folder.name("sums-" + hex.EncodeToString(random[:]) + freshSuffix)
	file, err := r.table.folder.fs.Open(path, syscall.O_RDWR|syscall.O_CREAT|syscall.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err := r.table.folder.fs.Remove(path); err != nil {
		return errors.Join(err, file.Close())
	}
	r.file = file
	return nil
}

// Settle flushes all records. No row is away afterwards. If something that was read before is still used, rows that
// were away are stale.
func (r *Returned) Settle(used bool) error {
	err := r.Flush()
	if err == nil {
		clear(r.stale)
		if used {
			copy(r.stale, r.away)
		}
		clear(r.away)
	}
	return err
}

// Flush writes all records into the table. Rows that are away stay so.
func (r *Returned) Flush() error {
	if r.live == 0 && len(r.runs) == 0 {
		r.empty()
		return nil
	}
	inMemory := r.sorted()
	sources := []Source{func() ([]byte, error) {
		if len(inMemory) == 0 {
			return nil, nil
		}
		record := r.record(int(inMemory[0]))
		inMemory = inMemory[1:]
		return record, nil
	}}
	if len(r.runs) > 0 {
		piece := max(leastPiece, min(mostPiece, r.room.Merge/int64(len(r.runs)))) / int64(r.width)
		block, err := r.table.memory.Alloc(mem.Staging, max(1, piece)*int64(r.width*len(r.runs)))
		if err != nil {
			return err
		}
		defer block.Free()
		for i, of := range r.runs {
			n := max(1, piece) * int64(r.width)
			sources = append(sources, r.reader(of, block.Bytes()[int64(i)*n:][:n]))
		}
	}
	merged, err := merge(sources)
	if err != nil {
		return err
	}
	if err := r.table.Put(merged, r.pages, r.room.Put); err != nil {
		return err
	}
	clear(r.pages)
	r.empty()
	r.runs, r.end = r.runs[:0], 0
	return nil
}

// reader yields the records of a run, which it reads piece by piece.
func (r *Returned) reader(of run, piece []byte) Source {
	var loaded []byte
	return func() ([]byte, error) {
		if len(loaded) == 0 {
			if of.count == 0 {
				return nil, nil
			}
			n := min(of.count, int64(len(piece)/r.width))
			loaded = piece[:n*int64(r.width)]
			if err := ssd.ReadFull(r.file, loaded, of.off); err != nil {
				return nil, err
			}
			r.table.traffic.read.Add(int64(len(loaded)))
			of.off, of.count = of.off+int64(len(loaded)), of.count-n
		}
		record := loaded[:r.width]
		loaded = loaded[r.width:]
		if !unseal(record) {
			off := of.off - int64(len(loaded)+r.width)
			return nil, &store.CorruptError{Path: r.file.Name(), Off: off, Reason: "a spilled row has another checksum"}
		}
		return record, nil
	}
}

// merge yields the records of sources by rising row.
func merge(sources []Source) (Source, error) {
	type head struct {
		record []byte
		from   Source
	}
	var heads []head // a heap by row
	less := func(a, b int) bool { return Row(heads[a].record) < Row(heads[b].record) }
	down := func(at int) {
		for {
			child := 2*at + 1
			if child >= len(heads) {
				return
			}
			if child+1 < len(heads) && less(child+1, child) {
				child++
			}
			if !less(child, at) {
				return
			}
			heads[at], heads[child] = heads[child], heads[at]
			at = child
		}
	}
	for _, from := range sources {
		record, err := from()
		if err != nil {
			return nil, err
		}
		if record != nil {
			heads = append(heads, head{record, from})
		}
	}
	for i := len(heads)/2 - 1; i >= 0; i-- {
		down(i)
	}
	begun := false
	return func() ([]byte, error) {
		if begun { // the record yielded last stays valid until now
			record, err := heads[0].from()
			if err != nil {
				return nil, err
			}
			if heads[0].record = record; record == nil {
				heads[0] = heads[len(heads)-1]
				heads = heads[:len(heads)-1]
			}
			down(0)
		}
		if begun = len(heads) > 0; !begun {
			return nil, nil
		}
		return heads[0].record, nil
	}, nil
}
