package store

import (
	"encoding/binary"
	"math/bits"

	"freshgo/core/ssd"
)

const (
	// recordSlack bounds the bytes behind a field that reading or writing it touches.
	recordSlack = 8
	// blockBytes is the unit in which records are written to a file: whole pages of whole records.
	blockBytes = 3 * ssd.PageBytes
)

// recordForm is the form of an edge between the passes: the target less the first of its partition, the source, and
// the user's number, each in as few bytes as its numbers need. Fields are moved as eight bytes; those behind the field
// belong to what comes next: records are written in order, and recordSlack bytes follow the last.
type recordForm struct {
	sourceAt, numberAt, bytes          int
	targetMask, sourceMask, numberMask uint64
}

// newRecordForm returns a form for fields of these many bytes; one of none is always 0.
func newRecordForm(target, source, number int64) recordForm {
	mask := func(bytes int64) uint64 { return 1<<(8*bytes) - 1 } // all bits of eight bytes
	return recordForm{
		sourceAt: int(target), numberAt: int(target + source), bytes: int(target + source + number),
		targetMask: mask(target), sourceMask: mask(source), numberMask: mask(number),
	}
}

// numberBytes returns the number of bytes for the numbers below limit, at least one.
func numberBytes(limit int64) int64 {
	return max(int64(bits.Len64(uint64(max(limit, 1)-1)))+7, 8) / 8
}

func (f *recordForm) put(p []byte, target, source, number uint64) {
	binary.LittleEndian.PutUint64(p, target)
	binary.LittleEndian.PutUint64(p[f.sourceAt:], source)
	binary.LittleEndian.PutUint64(p[f.numberAt:], number)
}

func (f *recordForm) target(p []byte) uint64 { return binary.LittleEndian.Uint64(p) & f.targetMask }

func (f *recordForm) source(p []byte) uint64 {
	return binary.LittleEndian.Uint64(p[f.sourceAt:]) & f.sourceMask
}

func (f *recordForm) number(p []byte) uint64 {
	return binary.LittleEndian.Uint64(p[f.numberAt:]) & f.numberMask
}

// perBlock returns the number of records in a block.
func (f *recordForm) perBlock() int64 { return (blockBytes - recordSlack) / int64(f.bytes) }

// fileBytes returns the size of n records in a file: whole blocks and the pages of the rest.
func (f *recordForm) fileBytes(n int64) int64 {
	blocks, rest := n/f.perBlock(), n%f.perBlock()
	if rest > 0 {
		rest = roundUp(rest*int64(f.bytes)+recordSlack, ssd.PageBytes)
	}
	return blocks*blockBytes + rest
}

// eachBlock passes the records of blocks as they lie in a file, those of one block at a time, with their slack.
func (f *recordForm) eachBlock(data []byte, n int64, visit func(records []byte) error) error {
	for ; n > 0; n -= f.perBlock() {
		if err := visit(data[:min(n, f.perBlock())*int64(f.bytes)+recordSlack]); err != nil {
			return err
		}
		data = data[min(blockBytes, len(data)):]
	}
	return nil
}
