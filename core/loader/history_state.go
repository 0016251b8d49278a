package loader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"freshgo/core/history"
	"freshgo/core/mem"
)

// The state of a past: what package history saves, behind the number of batches
// handed over and the hits of those that are pruned already, so that a resumed run
// uses the same. All numbers are little-endian.
//
//	int64 given, int64 batches
//	of each batch: int64 iteration; of each hidden layer: int64 hits, int64 nodes[hits], int32 slots[hits]
//	the state of history
//	uint32 CRC32C of all before

// SaveHistory returns the state of the history, to be restored before an epoch is
// started. Of a batch that was handed over and not yet updated it knows nothing.
func (l *Loader) SaveHistory() ([]byte, error) {
	h := l.past
	if h == nil {
		return nil, errNoHistory
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []byte
	number := func(n int64) { out = binary.LittleEndian.AppendUint64(out, uint64(n)) }
	number(h.given)
	ahead := slices.DeleteFunc(slices.Sorted(maps.Keys(h.waiting)), func(i int64) bool { return i < h.given })
	number(int64(len(ahead)))
	for _, i := range ahead {
		number(i)
		d := h.waiting[i]
		for l := range d.layers {
			hits := d.layers[l].HitNodes // and nothing else: a preparer may be writing the savings
			number(int64(len(hits)))
			for _, node := range hits {
				number(node)
			}
			for _, slot := range d.slots[l][:len(hits)] {
				out = binary.LittleEndian.AppendUint32(out, uint32(slot))
			}
		}
	}
	out = append(out, h.state.Save()...)
	return binary.LittleEndian.AppendUint32(out, crc32.Checksum(out, castagnoli)), nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errNoHistory = fmt.Errorf("%w: the loader has no history", ErrOption)

// RestoreHistory takes over a saved state, and ends the epoch that runs. Bytes that
// are not the state of such a history change no entry: history.ErrState.
func (l *Loader) RestoreHistory(data []byte) error {
	h := l.past
	if h == nil {
		return errNoHistory
	}
	l.Stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	end := len(data) - crc32.Size
	if end < 0 || crc32.Checksum(data[:end], castagnoli) != binary.LittleEndian.Uint32(data[end:]) {
		return fmt.Errorf("loader: state of %d bytes that do not match their checksum: %w", len(data), history.ErrState)
	}
	r := stateReader{data: data[:end]}
	given, batches := r.number(), r.number()
	if r.short || given < 0 || batches < 0 || batches > h.lag+1 {
		return fmt.Errorf("loader: state of %d bytes, %d batches handed over and %d ahead: %w", len(data), given, batches, history.ErrState)
	}
	saved := map[int64][]map[int64]int32{}
	for range batches {
		i := r.number()
		if i < given || i >= given+h.lag+1 {
			return fmt.Errorf("loader: state with a batch of iteration %d, expected one from %d on: %w", i, given, history.ErrState)
		}
		for range l.options.hops() - 1 {
			saved[i] = append(saved[i], r.hits())
		}
	}
	if r.short {
		return fmt.Errorf("loader: state of %d bytes ends early: %w", len(data), history.ErrState)
	}
	for i := range h.waiting {
		h.forget(i)
	}
	for i := range h.saved {
		h.state.Unpin(i)
	}
	h.saved = nil
	before := h.state.Save()
	if err := h.state.Restore(r.data); err != nil {
		return err
	}
	if err := h.pinSaved(saved); err != nil {
		return errors.Join(err, h.state.Restore(before))
	}
	h.given, h.updated = given, given
	h.makeRoom()
	return nil
}

// pinSaved checks that the cache has the hits of batches pruned before, and pins
// them for those.
func (h *past) pinSaved(saved map[int64][]map[int64]int32) error {
	for i, layers := range saved {
		for l, hits := range layers {
			for node, slot := range hits {
				if node < 0 || node >= h.loader.parts.numNodes || !h.state.Pinnable(i, l+1, node, slot) {
					return fmt.Errorf("loader: state in which iteration %d finds node %d of layer %d in slot %d: %w", i, node, l+1, slot, history.ErrState)
				}
			}
		}
	}
	h.saved = saved
	for i, layers := range saved {
		for _, hits := range layers {
			h.state.Pin(i, slices.Collect(maps.Values(hits)))
		}
	}
	return nil
}

// stateReader takes numbers from bytes; short says that there were too few.
type stateReader struct {
	data  []byte
	short bool
}

func (r *stateReader) take(n int64) []byte {
	if r.short = r.short || n < 0 || n > int64(len(r.data)); r.short {
		return nil
	}
	piece := r.data[:n]
	r.data = r.data[n:]
	return piece
}

func (r *stateReader) number() int64 {
	piece := r.take(8)
	if piece == nil {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(piece))
}

func (r *stateReader) hits() map[int64]int32 {
	n := r.number()
	if n < 0 || n > int64(len(r.data))/12 {
		r.short = true
		return nil
	}
	nodes, slots := r.take(8*n), r.take(4*n)
	hits := make(map[int64]int32, n)
	for k := range n {
		hits[int64(binary.LittleEndian.Uint64(nodes[8*k:]))] = int32(binary.LittleEndian.Uint32(slots[4*k:]))
	}
	return hits
}

// HistoryStats is what the history did.
type HistoryStats struct {
	history.Stats
	Iterations int64 `json:"iterations"` // batches handed over in training epochs
	Skipped    int64 `json:"skipped"`    // of those, pruned and not updated
	Bytes      int64 `json:"bytes"`      // of the buffer
	Features   int64 `json:"features"`   // rows of features in it
	Start      int64 `json:"start"`      // the first iteration that was pruned or will be
}

// HistoryStats returns the figures so far.
func (l *Loader) HistoryStats() (HistoryStats, error) {
	h := l.past
	if h == nil {
		return HistoryStats{}, errNoHistory
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s := HistoryStats{Stats: h.state.Stats(), Iterations: h.given, Skipped: h.skipped, Bytes: l.split.history, Start: h.start}
	if l.outermost != nil {
		s.Features = l.outermost.held.Load()
	}
	return s, nil
}

// HistoryBuffer is the memory of the embeddings, the loader's until Close: whoever
// holds it longer takes a reference. It is nil where the caller has it.
func (l *Loader) HistoryBuffer() (mem.Buffer, error) {
	if l.past == nil {
		return nil, errNoHistory
	}
	return l.past.buffer, nil
}
