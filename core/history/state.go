package history

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"freshgo/core/internal/bitset"
	"freshgo/core/internal/crc"
)

// A state consists of little-endian 64-bit words: the magic, the configuration, rows and rates, the counters, the
// number of entries, three words for each entry by bucket and age, and a checksum. Pins are not saved; a slot that only
// pins keep is free.

const (
	stateMagic = "fghist02"
	entryWords = 3
)

// fingerprint returns the settings that a state and the history that restores it must have in common.
func (c *Config) fingerprint() []uint64 {
	policy := slices.Index([]string{Gradient, Performance, All}, c.Policy)
	return []uint64{
		uint64(c.NumNodes), uint64(c.Layers), uint64(c.Levels), uint64(c.Bytes),
		uint64(c.slotLimit()), uint64(c.Stale), uint64(c.Start),
		math.Float64bits(c.GradFraction), uint64(policy),
	}
}

// sums lists the counters of a state, except those by layer and age.
func (s *Stats) sums() []*int64 {
	return []*int64{
		&s.Replaced, &s.Evicted, &s.Overwritten, &s.Expired,
		&s.RefusedNotFinite, &s.RefusedPinned, &s.RefusedFull, &s.RefusedWorth,
	}
}

// Save returns the state: 24 bytes for each entry, and a little. The rows in the slots are the caller's to save.
func (h *History) Save() []byte {
	state := make([]byte, 0, 8*(64+len(h.entries.counts.ages)+5*h.config.Layers+entryWords*int(h.entries.live)))
	state = append(state, stateMagic...)
	word := func(values ...uint64) {
		for _, v := range values {
			state = binary.LittleEndian.AppendUint64(state, v)
		}
	}
	word(h.config.fingerprint()...)
	word(uint64(h.rowBytes), uint64(h.updated))
	for _, sum := range h.entries.counts.sums() {
		word(uint64(*sum))
	}
	for _, n := range h.entries.counts.ages {
		word(uint64(n))
	}
	for l, n := range h.entries.counts.layers {
		word(uint64(n.Hits), uint64(n.Misses), uint64(n.Admitted), math.Float64bits(h.entries.price.hits[l]),
			math.Float64bits(h.entries.price.expected[l]))
	}
	word(uint64(h.entries.live))
	for b := h.entries.lowest(0); b < numBuckets; b = h.entries.lowest(b + 1) {
		for at := h.entries.heads[b]; at >= 0; at = h.entries.slots[at].next {
			s := &h.entries.slots[at]
			word(uint64(s.admitted), uint64(s.node)|uint64(at)<<32, uint64(s.need)|uint64(s.bucket)<<32|uint64(s.layer)<<48)
		}
	}
	return binary.LittleEndian.AppendUint64(state, uint64(crc.Checksum(state)))
}

// reader takes words off a state. bad says that there were too few, or some that cannot be.
type reader struct {
	state []byte
	bad   bool
}

func (r *reader) word() uint64 {
	if len(r.state) < 8 {
		r.bad = true
		return 0
	}
	v := binary.LittleEndian.Uint64(r.state)
	r.state = r.state[8:]
	return v
}

// count takes a number that is not negative.
func (r *reader) count() int64 {
	v := int64(r.word())
	r.bad = r.bad || v < 0
	return v
}

// average takes one that is finite as well.
func (r *reader) average() float64 {
	v := math.Float64frombits(r.word())
	r.bad = r.bad || !(v >= 0 && v <= math.MaxFloat64) // NaN fails
	return v
}

// saved is a state that has been read.
type saved struct {
	rowBytes, updated int64
	counts            counters
	price             prices
	entries           []byte
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("history: state %s: %w", fmt.Sprintf(format, args...), ErrState)
}

// Restore restores a state that Save has made, by a history of the same configuration; SetRow is part of it. It returns
// ErrState for any other bytes, ErrRow if rows have another size here, and ErrOrder while batches pin slots; the
// history is then unchanged.
func (h *History) Restore(state []byte) error {
	if n := len(h.pinned.held); n > 0 {
		return fmt.Errorf("history: restored while %d batches rely on slots: %w", n, ErrOrder)
	}
	s, err := h.read(state)
	if err != nil {
		return err
	}
	if h.rowBytes > 0 && s.rowBytes > 0 && h.rowBytes != s.rowBytes {
		return fmt.Errorf("history: state has embeddings of %d bytes, these have %d: %w", s.rowBytes, h.rowBytes, ErrRow)
	}
	for b := h.entries.lowest(0); b < numBuckets; b = h.entries.lowest(b) {
		h.entries.drop(h.entries.heads[b])
	}
	h.entries.shrink() // to nothing: no slot is pinned
	h.setRow(s.rowBytes)
	h.updated, h.entries.counts, h.entries.price = s.updated, s.counts, s.price
	for r := (reader{state: s.entries}); len(r.state) > 0; {
		at, node, e := r.entry()
		h.entries.slots[at] = e
		h.entries.reach(at + 1)
		h.entries.claim(at)
		h.entries.link(at)
		h.entries.tables[e.layer].set(node, at)
		h.entries.price.add(&e)
		h.entries.counts.layers[e.layer-1].Live++
	}
	return nil
}

// entry takes an entry off a state.
func (r *reader) entry() (at int32, node int64, e slot) {
	admitted, place, rest := r.word(), r.word(), r.word()
	e = slot{admitted: int64(admitted), node: uint32(place), need: uint32(rest), bucket: uint16(rest >> 32),
		layer: uint8(rest >> 48)}
	return int32(place >> 32), int64(e.node), e
}

// read checks a state and changes nothing.
func (h *History) read(state []byte) (s saved, err error) {
	body := len(state) - 8
	if body < len(stateMagic) || string(state[:len(stateMagic)]) != stateMagic {
		return s, damaged("of %d bytes does not begin like one", len(state))
	}
	if binary.LittleEndian.Uint64(state[body:]) != uint64(crc.Checksum(state[:body])) {
		return s, damaged("of %d bytes is damaged", len(state))
	}
	r := reader{state: state[len(stateMagic):body]}
	for k, want := range h.config.fingerprint() {
		if got := r.word(); got != want {
			return s, damaged("is of another configuration: field %d is %d, expected %d", k, int64(got), int64(want))
		}
	}
	s.rowBytes, s.updated = r.count(), int64(r.word())
	s.price = prices{needs: make([]uint64, h.config.Layers)}
	for _, sum := range s.counts.sums() {
		*sum = r.count()
	}
	for k := range s.counts.ages {
		s.counts.ages[k] = r.count()
	}
	for range h.config.Layers {
		s.counts.layers = append(s.counts.layers, LayerStats{Hits: r.count(), Misses: r.count(), Admitted: r.count()})
		s.price.hits = append(s.price.hits, r.average())
		s.price.expected = append(s.price.expected, r.average())
	}
	n := r.count()
	s.entries = r.state
	switch {
	case r.bad || s.updated < -1 || s.updated > lastIteration || s.rowBytes > h.config.Bytes:
		return s, damaged("has numbers out of range")
	case len(s.entries)%(8*entryWords) != 0 || n != int64(len(s.entries)/(8*entryWords)):
		return s, damaged("has %d bytes for %d entries", len(s.entries), n)
	case n > 0 && s.rowBytes == 0:
		return s, damaged("has entries of unknown size")
	}
	return s, h.readEntries(&s)
}

// readEntries checks that each entry could be in its place: slots and rows come once, and they stand by bucket and age.
func (h *History) readEntries(s *saved) error {
	numSlots := h.config.numSlots(s.rowBytes)
	taken := bitset.New(numSlots)
	keys := make([]uint64, 0, len(s.entries)/(8*entryWords))
	previous := slot{admitted: -1}
	for r := (reader{state: s.entries}); len(r.state) > 0; {
		tail := binary.LittleEndian.Uint64(r.state[16:])
		at, node, e := r.entry()
		ordered := e.bucket > previous.bucket || e.bucket == previous.bucket && e.admitted >= previous.admitted
		weighed := h.config.Policy == Performance || e.bucket == 0 && e.need == 0
		switch {
		case at < 0 || int64(at) >= numSlots || taken.Has(int64(at)):
			return damaged("has slot %d twice or beyond %d", at, numSlots)
		case e.layer < 1 || int(e.layer) > h.config.Layers || !h.config.Keeps(int(e.layer)) ||
			node >= h.config.NumNodes || tail>>56 != 0:
			return damaged("has an entry of node %d, layer %d", node, tail>>48)
		case e.admitted < h.config.Start || e.admitted > s.updated || s.updated-e.admitted >= h.config.Stale:
			return damaged("of iteration %d has an entry of iteration %d", s.updated, e.admitted)
		case !ordered || !weighed || e.bucket >= numBuckets || e.need > 3*needUnit:
			return damaged("has an entry that is out of order")
		}
		taken.Add(int64(at))
		keys = append(keys, uint64(e.layer)<<32|uint64(node))
		previous = e
	}
	slices.Sort(keys)
	if n := len(keys); len(slices.Compact(keys)) != n {
		return damaged("has two entries of one row")
	}
	return nil
}
