package embed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"syscall"

	"freshgo/core/internal/bitset"
	"freshgo/core/internal/crc"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// journal is the undo journal of the changes after a save: blocks of a header page and the old content of up to
// perBlock pages. A block that was not written whole fails its checksum. Its pages were not changed yet, and nor were
// those of later blocks. A later block that was begun after it was durable proves that it was damaged since.
type journal struct {
	folder folder
	file   ssd.File   // nil: nothing has changed
	bytes  int64      // of the file
	synced int64      // of these, durable
	pages  bitset.Set // in it
	late   bool       // some of them are not durable yet
}

const (
	journalMagic = 0x314a4547       // "GEJ1"
	headerWords  = 4                // magic, count, checksum of numbers and pages, place of the block
	perBlock     = mostPerBlock - 1 // the last number of a header is the bytes that were durable before the block
	mostPerBlock = (ssd.PageBytes - 4*headerWords) / 8
)

// journalBytes returns the least bytes of a journal with this many pages.
func journalBytes(pages int64) int64 { return (pages + (pages+perBlock-1)/perBlock) * ssd.PageBytes }

// lacks yields the pages of a set that the journal does not have.
func (j *journal) lacks(set bitset.Set) iter.Seq[int64] {
	return func(yield func(page int64) bool) {
		for page := range set.Within(0, int64(len(set))*64) {
			if !j.pages.Has(page) && !yield(page) {
				return
			}
		}
	}
}

// add appends the old content of pages that it does not have, for the state with a token. pages has the numbers of the
// pages, ascending, and contents the pages. They are durable after sync.
func (j *journal) add(token string, pages []int64, contents func(i int) []byte) error {
	if token == "" {
		return nil // there is no state to return to
	}
	if err := j.begin(token); err != nil {
		return err
	}
	var old []int
	for i, page := range pages {
		if !j.pages.Has(page) {
			old = append(old, i)
		}
	}
	if len(old) == 0 {
		return nil
	}
	end := j.bytes
	header := make([]byte, ssd.PageBytes)
	for lo := 0; lo < len(old); lo += perBlock {
		block := old[lo:min(lo+perBlock, len(old))]
		clear(header)
		for k, i := range block {
			binary.LittleEndian.PutUint64(header[4*headerWords+8*k:], uint64(pages[i]))
		}
		binary.LittleEndian.PutUint64(header[ssd.PageBytes-8:], uint64(j.synced))
		sum := crc.Checksum(header[4*headerWords:])
		for k, i := range block {
			sum = crc.Update(sum, contents(i))
			if err := ssd.WriteFull(j.file, contents(i), end+int64(k+1)*ssd.PageBytes); err != nil {
				return err
			}
		}
		for k, word := range []uint32{journalMagic, uint32(len(block)), sum, uint32(end / ssd.PageBytes)} {
			binary.LittleEndian.PutUint32(header[4*k:], word)
		}
		if err := ssd.WriteFull(j.file, header, end); err != nil {
			return err
		}
		end += int64(len(block)+1) * ssd.PageBytes
	}
	j.bytes, j.late = end, true
	for _, i := range old {
		j.pages.Add(pages[i])
	}
	return nil
}

// sync makes the pages durable.
func (j *journal) sync() error {
	if !j.late {
		return nil
	}
	if err := j.file.Sync(); err != nil {
		return err
	}
	j.late, j.synced = false, j.bytes
	return nil
}

// begin makes the file of the journal, unless there is one.
func (j *journal) begin(token string) error {
	if j.file != nil {
		return nil
	}
	flags := syscall.O_WRONLY | syscall.O_CREAT | syscall.O_TRUNC | syscall.O_NOFOLLOW
	file, err := j.folder.fs.Open(j.folder.name(journalName(token)), flags, 0o644)
	if err != nil {
		return err
	}
	if err := j.folder.fs.SyncDir(j.folder.path); err != nil {
		_ = file.Close() // nothing was written
		return err
	}
	j.file = file
	return nil
}

// end ends the journal, whose file stays.
func (j *journal) end() {
	if j.file != nil {
		_ = j.file.Close() // what was changed after it was durable before
		j.file = nil
	}
	j.bytes, j.synced, j.late = 0, 0, false
	clear(j.pages)
}

// apply writes the old pages of the journal of a state back into a file of pages. It may be repeated, until discard.
func (j *journal) apply(token string, to ssd.File, pages int64) error {
	restore := func(page int64, old []byte) error { return ssd.WriteFull(to, old, page*ssd.PageBytes) }
	if found, err := j.each(token, pages, restore); err != nil || !found {
		return err
	}
	return to.Sync()
}

// discard removes the journal of a state, if there is one.
func (j *journal) discard(token string) error {
	err := j.folder.fs.Remove(j.folder.name(journalName(token)))
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	return j.folder.fs.SyncDir(j.folder.path)
}

// each calls visit with the old pages of the journal of a state, up to the first block that was not written whole. It
// reports whether there is such a journal, and returns an error where a block was damaged after it was written.
func (j *journal) each(token string, pages int64, visit func(page int64, old []byte) error) (found bool, err error) {
	file, err := j.folder.fs.Open(j.folder.name(journalName(token)), syscall.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, syscall.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close() // nothing was written
	size, err := file.Size()
	if err != nil {
		return true, err
	}
	block, err := mem.NewBudget(0).Alloc(mem.Staging, (mostPerBlock+1)*ssd.PageBytes)
	if err != nil {
		return true, err
	}
	defer block.Free()
	for at := int64(0); at+ssd.PageBytes <= size; {
		n, err := loadBlock(file, at, size, pages, block.Bytes())
		if err == nil && n == 0 {
			err = checkTail(file, at, size, pages, block.Bytes())
		}
		if err != nil || n == 0 {
			return true, err
		}
		for k := range n {
			page := int64(binary.LittleEndian.Uint64(block.Bytes()[4*headerWords+8*k:]))
			if err := visit(page, block.Bytes()[(k+1)*ssd.PageBytes:][:ssd.PageBytes]); err != nil {
				return true, err
			}
		}
		at += (n + 1) * ssd.PageBytes
	}
	return true, nil
}

// checkTail returns an error if a block after the bad one, which is not whole, was begun when that was durable.
func checkTail(file ssd.File, bad, size, pages int64, data []byte) error {
	for at := bad + ssd.PageBytes; at+ssd.PageBytes <= size; at += ssd.PageBytes {
		n, err := loadBlock(file, at, size, pages, data)
		if err != nil {
			return err
		}
		if n > 0 && n <= perBlock && int64(binary.LittleEndian.Uint64(data[ssd.PageBytes-8:])) > bad {
			return &store.CorruptError{Path: file.Name(), Off: bad, Reason: "a block of the undo journal was damaged"}
		}
	}
	return nil
}

// check returns an error unless apply would make pages with the checksums now those of a state: the journal has every
// page of the set needed (nil: none) and every page whose checksum differs, as the state had them.
func (j *journal) check(s *state, now, then []uint32, needed bitset.Set) error {
	has := bitset.New(int64(len(then)))
	corrupt := func(page int64, reason string) error {
		reason = fmt.Sprintf("the undo journal %s page %d of the saved rows", reason, page)
		return &store.CorruptError{Path: j.folder.name(journalName(s.Token)), Reason: reason}
	}
	_, err := j.each(s.Token, int64(len(then)), func(page int64, old []byte) error {
		if pageSum(old) != then[page] {
			return corrupt(page, "has another content of")
		}
		has.Add(page)
		return nil
	})
	if err != nil {
		return err
	}
	for page := range int64(len(then)) {
		if (now[page] != then[page] || needed != nil && needed.Has(page)) && !has.Has(page) {
			return corrupt(page, "lacks")
		}
	}
	return nil
}

// loadBlock loads a block and returns the number of its pages, 0 where the block was not written whole.
func loadBlock(file ssd.File, at, size, pages int64, data []byte) (int64, error) {
	header := data[:ssd.PageBytes]
	if err := ssd.ReadFull(file, header, at); err != nil {
		return 0, err
	}
	word := func(k int) uint32 { return binary.LittleEndian.Uint32(header[4*k:]) }
	n := int64(word(1))
	if word(0) != journalMagic || word(3) != uint32(at/ssd.PageBytes) || n < 1 || n > mostPerBlock ||
		at+(n+1)*ssd.PageBytes > size {
		return 0, nil
	}
	contents := data[ssd.PageBytes : (n+1)*ssd.PageBytes]
	if err := ssd.ReadFull(file, contents, at+ssd.PageBytes); err != nil {
		return 0, err
	}
	if crc.Update(crc.Checksum(header[4*headerWords:]), contents) != word(2) {
		return 0, nil
	}
	for k := range n {
		if page := binary.LittleEndian.Uint64(header[4*headerWords+8*k:]); page >= uint64(pages) {
			return 0, nil
		}
	}
	return n, nil
}
