package embed

import (
	"fmt"

	"freshgo/core/internal/bitset"
	"freshgo/core/internal/crc"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

const (
	// mostGroup and leastGroup bound the pages that are changed at once: the most keep eight requests of a megabyte in
	// flight twice over, and the least is what a memory of a megabyte has.
	mostGroup, leastGroup = 16 << 20, 64 << 10
	// mostRun is the longest request.
	mostRun = 1 << 20
	// writers is the number of requests in flight: enough for the rate of a device in sequence, and a fair part of its
	// random rate.
	writers = 8
)

// Source yields records whose rows ascend, nil at the end. A record is valid until the next call.
type Source func() (record []byte, err error)

// GroupBytes returns the memory of Put where it may take room bytes: pages, and the records that change them.
func GroupBytes(room int64) int64 {
	return max(leastGroup, min(room/2, mostGroup)) / ssd.PageBytes * ssd.PageBytes
}

// group is some neighbouring records and the pages that they change.
type group struct {
	table   *Table
	records []byte // of the same width each
	count   int
	pages   []int64 // ascending
	memory  []byte  // of the pages, in their order
}

// Put writes records into the file, within room bytes of memory. The old content of the pages that they touch is made
// durable before, with one sync however many there are: a sync takes milliseconds. After an error some records were
// written; those that were not are lost unless the caller has them.
func (t *Table) Put(from Source, touched bitset.Set, room int64) error {
	// A row may touch more pages than its bytes.
	half := max(GroupBytes(room), 2*ssd.WholePages(int64(t.layout.SpanBytes())))
	block, err := t.memory.Alloc(mem.Staging, 2*half)
	if err != nil {
		return err
	}
	defer block.Free()
	g := group{table: t, records: block.Bytes()[half:], memory: block.Bytes()[:half]}
	if err := g.saveOld(touched); err != nil {
		return err
	}
	last := int64(-1)
	for {
		record, err := from()
		if err != nil {
			return err
		}
		if record == nil {
			break
		}
		row := int64(Row(record))
		if row <= last || row >= t.layout.NumRows {
			panic(fmt.Sprintf("embed: row %d after %d of %d", row, last, t.layout.NumRows))
		}
		last = row
		if !g.add(row, record) {
			if err := g.write(); err != nil {
				return err
			}
			g.add(row, record)
		}
	}
	return g.write()
}

// add adds a record, unless the group is full.
func (g *group) add(row int64, record []byte) bool {
	lo, hi := pagesOf(g.table.layout, row)
	fresh := g.pages
	for page := lo; page <= hi; page++ {
		if len(fresh) == 0 || fresh[len(fresh)-1] < page {
			fresh = append(fresh, page)
		}
	}
	at := g.count * len(record)
	if at+len(record) > len(g.records) || len(fresh)*ssd.PageBytes > len(g.memory) {
		return false
	}
	copy(g.records[at:], record)
	g.pages = fresh
	g.count++
	return true
}

// pagesOf returns the first page of a row and its last.
func pagesOf(l ssd.Layout, row int64) (lo, hi int64) {
	at := l.Offset(row)
	return at / ssd.PageBytes, (at + int64(l.RowBytes) - 1) / ssd.PageBytes
}

// touch adds the pages of a row.
func touch(pages bitset.Set, l ssd.Layout, row int64) {
	lo, hi := pagesOf(l, row)
	for page := lo; page <= hi; page++ {
		pages.Add(page)
	}
}

func (g *group) page(i int) []byte { return g.memory[i*ssd.PageBytes:][:ssd.PageBytes] }

// write changes the pages of the group, and empties it.
func (g *group) write() error {
	if g.count == 0 {
		return nil
	}
	t := g.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return err
	}
	if err := g.read(); err != nil {
		return err
	}
	// The journal has the pages already, unless the table was saved since.
	if err := g.saveToJournal(); err != nil {
		return err
	}
	if err := t.journal.sync(); err != nil {
		t.lost = err // the system may have dropped any write
		return err
	}
	g.change()
	t.changed = true
	if err := g.eachRun(func(pages []byte, off int64) error { return ssd.WriteFull(t.file, pages, off) }); err != nil {
		t.lost = err // some pages are new and have their old checksum; the journal has them all
		return err
	}
	t.traffic.written.Add(int64(len(g.pages)) * ssd.PageBytes)
	t.traffic.rows.Add(int64(g.count))
	for i, page := range g.pages {
		t.sums[page] = pageSum(g.page(i))
	}
	g.count, g.pages = 0, g.pages[:0]
	return nil
}

// read reads the pages of the group. The caller holds mu.
func (g *group) read() error {
	t := g.table
	if err := g.eachRun(func(pages []byte, off int64) error { return ssd.ReadFull(t.file, pages, off) }); err != nil {
		return err
	}
	t.traffic.read.Add(int64(len(g.pages)) * ssd.PageBytes)
	for i, page := range g.pages {
		if err := store.CheckPage(t.file.Name(), t.sums, page, g.page(i)); err != nil {
			return err
		}
	}
	return nil
}

// saveOld appends the pages that will be touched to the journal.
func (g *group) saveOld(touched bitset.Set) error {
	t := g.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil || t.state.Token == "" {
		return err
	}
	fresh := int64(0)
	for range t.journal.lacks(touched) {
		fresh++
	}
	if err := store.CheckSpace(t.folder.fs, t.folder.path, journalBytes(fresh)); err != nil {
		return err
	}
	for page := range t.journal.lacks(touched) {
		if g.pages = append(g.pages, page); (len(g.pages)+1)*ssd.PageBytes > len(g.memory) {
			if err := g.append(); err != nil {
				return err
			}
		}
	}
	return g.append()
}

// append appends the pages of the group to the journal, and empties it. The caller holds mu.
func (g *group) append() error {
	if err := g.read(); err != nil {
		return err
	}
	err := g.saveToJournal()
	g.pages = g.pages[:0]
	return err
}

// saveToJournal appends the pages of the group that the undo journal lacks. The caller holds mu.
func (g *group) saveToJournal() error {
	t := g.table
	before := t.journal.bytes
	err := t.journal.add(t.state.Token, g.pages, g.page)
	t.traffic.written.Add(t.journal.bytes - before)
	return err
}

// change copies the records into their pages.
func (g *group) change() {
	t, width := g.table, g.table.layout.RowBytes
	k := 0 // the place of the record's first page
	for i := range g.count {
		record := g.records[i*width:][:width]
		row := int64(Row(record))
		Unmark(record, uint32(row))
		lo, _ := pagesOf(t.layout, row)
		for g.pages[k] < lo {
			k++
		}
		at := t.layout.Offset(row) - lo*ssd.PageBytes // pages of a row are neighbours, in the file and here
		copy(g.memory[int64(k)*ssd.PageBytes+at:], record)
	}
}

// eachRun calls do for each run of neighbouring pages, several at a time.
func (g *group) eachRun(do func(pages []byte, off int64) error) error {
	var runs [][2]int
	for i := range g.pages {
		if n := len(runs); n > 0 && g.pages[i] == g.pages[i-1]+1 && (i-runs[n-1][0])*ssd.PageBytes < mostRun {
			runs[n-1][1] = i + 1
		} else {
			runs = append(runs, [2]int{i, i + 1})
		}
	}
	work := guard.NewPieces(int64(len(runs)), 1)
	return guard.All(min(writers, len(runs)), func(int) error {
		for k := range work.Each() {
			lo, hi := runs[k][0], runs[k][1]
			if err := do(g.memory[lo*ssd.PageBytes:hi*ssd.PageBytes], g.pages[lo]*ssd.PageBytes); err != nil {
				return err
			}
		}
		return nil
	})
}

func pageSum(page []byte) uint32 { return crc.Checksum(page) }

// Write writes the payloads of consecutive rows. No loader trains the table.
func (t *Table) Write(first, count int64, payload []byte) error {
	width, rows := t.layout.RowBytes-TrailerBytes, t.layout.NumRows
	if first < 0 || count < 0 || first > rows-count {
		return fmt.Errorf("embed: rows %d to %d of %d: %w", first, first+count, rows, ErrInvalid)
	}
	if int64(len(payload)) != count*int64(width) {
		return fmt.Errorf("embed: %d bytes for %d rows of %d: %w", len(payload), count, width, ErrInvalid)
	}
	release, err := t.Use()
	if err != nil {
		return err
	}
	defer release()
	record, touched := make([]byte, t.layout.RowBytes), bitset.New(t.pages())
	for row := first; row < first+count; row++ {
		touch(touched, t.layout, row)
	}
	i := int64(0)
	return t.Put(func() ([]byte, error) {
		if i == count {
			return nil, nil
		}
		copy(record, payload[i*int64(width):][:width])
		Mark(record, uint32(first+i))
		i++
		return record, nil
	}, touched, min(2*mostGroup, 4*count*int64(t.layout.RowBytes)))
}

// Read reads the payloads of rows, in any order, from the file.
func (t *Table) Read(rows []int64, payload []byte) error {
	width := t.layout.RowBytes - TrailerBytes
	if len(payload) != len(rows)*width {
		return fmt.Errorf("embed: %d bytes for %d rows of %d: %w", len(payload), len(rows), width, ErrInvalid)
	}
	for _, row := range rows {
		if row < 0 || row >= t.layout.NumRows {
			return fmt.Errorf("embed: row %d of %d: %w", row, t.layout.NumRows, ErrInvalid)
		}
	}
	var m ssd.Merger
	plan := m.Plan(t.layout, rows, ssd.DefaultHole, mostRun)
	t.mu.RLock()
	defer t.mu.RUnlock()
	if err := t.usable(); err != nil {
		return err
	}
	work := guard.NewPieces(int64(len(plan.Ranges)), 1)
	return guard.All(min(writers, len(plan.Ranges)), func(int) error {
		block, err := t.memory.Alloc(mem.Staging, mostRun)
		if err != nil {
			return err
		}
		defer block.Free()
		for r := range work.Each() {
			of := plan.Ranges[r]
			data := block.Bytes()[:of.Len]
			if err := ssd.ReadFull(t.file, data, of.Off); err != nil {
				return err
			}
			for at := 0; at < len(data); at += ssd.PageBytes {
				page := data[at : at+ssd.PageBytes]
				if err := store.CheckPage(t.file.Name(), t.sums, (of.Off+int64(at))/ssd.PageBytes, page); err != nil {
					return err
				}
			}
			for _, i := range plan.Pos[plan.First[r]:plan.First[r+1]] {
				at := t.layout.Offset(rows[i]) - of.Off
				copy(payload[int(i)*width:][:width], data[at:])
			}
		}
		return nil
	})
}
