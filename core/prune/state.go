package prune

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"freshgo/core/history"
	"freshgo/core/internal/crc"
)

// The state of a Pruner: the number of batches handed over, the hits and probes of pruned batches without an update, so
// that a resumed run uses the same, and the state of package history. All numbers are little-endian.
//
//	int64 given, int64 batches
//	per batch: int64 iteration, ages[63] of its hits; per hidden layer: int64 hits, misses,
//	    int64 found, int64 nodes[found], int32 slots[found],
//	    and for a batch that is not pruned: int64 admitted[found]
//	the state of history
//	uint32 CRC32C of all before

// Save returns the state of the history, to be restored before an epoch is started. Of a batch that was handed over and
// not yet updated it knows nothing.
func (h *Pruner) Save() ([]byte, error) {
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	var out []byte
	number := func(n int64) { out = binary.LittleEndian.AppendUint64(out, uint64(n)) }
	number(h.turns.given)
	ahead := h.decided.ahead(h.turns.given)
	number(int64(len(ahead)))
	for _, i := range slices.Sorted(maps.Keys(ahead)) {
		number(i)
		lookups := ahead[i].lookups
		for _, n := range lookups.Ages {
			number(n)
		}
		for l, r := range ahead[i].layers {
			number(lookups.Hits[l])
			number(lookups.Misses[l])
			number(int64(len(r.nodes)))
			for _, node := range r.nodes {
				number(node)
			}
			for _, slot := range r.slots {
				out = binary.LittleEndian.AppendUint32(out, uint32(slot))
			}
			for _, admitted := range r.admitted {
				number(admitted)
			}
		}
	}
	out = append(out, h.decided.state.Save()...)
	return binary.LittleEndian.AppendUint32(out, crc.Checksum(out)), nil
}

// Restore restores a saved state. It first calls stop, which ends the running epoch. Bytes that are no state of such a
// history change no entry: history.ErrState.
func (h *Pruner) Restore(data []byte, stop func()) error {
	stop()
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	lag, end := h.config.History.Lag, len(data)-crc32.Size
	if end < 0 || crc.Checksum(data[:end]) != binary.LittleEndian.Uint32(data[end:]) {
		return damaged("of %d bytes that do not match their checksum", len(data))
	}
	r := stateReader{data: data[:end]}
	given, batches := r.number(), r.number()
	if r.short || given < 0 || batches < 0 || batches > lag+1 {
		return damaged("of %d bytes, %d batches handed over and %d ahead", len(data), given, batches)
	}
	saved := map[int64]finding{}
	for range batches {
		i := r.number()
		if i < given || i >= given+lag+1 {
			return damaged("with a batch of iteration %d, expected one from %d on", i, given)
		}
		saved[i] = r.finding(h.config.History.Layers, h.decided.probes(i))
	}
	if r.short {
		return damaged("of %d bytes ends early", len(data))
	}
	for i := range h.decided.waiting {
		h.decided.forget(i)
	}
	before, restoredBefore := h.decided.state.Save(), h.decided.restored
	h.decided.dropRestored()
	if err := h.decided.state.Restore(r.data); err != nil {
		return errors.Join(err, h.decided.pinRestored(restoredBefore))
	}
	if err := h.decided.pinRestored(saved); err != nil {
		return errors.Join(err, h.decided.state.Restore(before), h.decided.pinRestored(restoredBefore))
	}
	h.turns.given, h.turns.updated = given, given
	return nil
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("history: state %s: %w", fmt.Sprintf(format, args...), history.ErrState)
}

// stateReader takes numbers from bytes; short says that there were too few, or some that cannot be.
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

// count takes a number that is not negative.
func (r *stateReader) count() int64 {
	n := r.number()
	r.short = r.short || n < 0
	return n
}

func (r *stateReader) finding(layers int, probes bool) finding {
	f := finding{lookups: history.NewLookups(layers)}
	for k := range f.lookups.Ages {
		f.lookups.Ages[k] = r.count()
	}
	for l := range layers {
		f.lookups.Hits[l], f.lookups.Misses[l] = r.count(), r.count()
		f.layers = append(f.layers, r.reliance(probes))
	}
	return f
}

func (r *stateReader) reliance(probes bool) reliance {
	n, each := r.number(), int64(12)
	if probes {
		each += 8
	}
	if n < 0 || n > int64(len(r.data))/each {
		r.short = true
		return reliance{}
	}
	found := reliance{nodes: make([]int64, n), slots: make([]int32, n), places: make(map[int64]int32, n)}
	for k := range found.nodes {
		found.nodes[k] = r.number()
		found.places[found.nodes[k]] = int32(k)
	}
	for k, raw := 0, r.take(4*n); k < len(found.slots); k++ {
		found.slots[k] = int32(binary.LittleEndian.Uint32(raw[4*k:]))
	}
	if probes {
		found.admitted = make([]int64, n)
		for k := range found.admitted {
			found.admitted[k] = r.number()
		}
	}
	return found
}
