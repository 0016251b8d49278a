package history

import "math"

// judge decides by gradients which rows enter (section 4.1), and which entries end for them. It keeps scratch between
// updates.
type judge struct {
	entries    *entries
	firsts     []int32  // computed rows of the current layer, each node once
	olds       []int32  // the slots that their nodes had, or absent
	keys       []uint32 // of their norms
	candidates []candidate
	sorted     []candidate
}

// candidate is a computed row that may enter.
type candidate struct {
	row    int32
	need   uint32 // as in slot
	bucket uint16
	layer  uint8
}

// never is the key of norms that are not finite. It is above all others.
const never = math.MaxUint32

// keyOf maps norms to integers of the same order.
func keyOf(norm float32) uint32 {
	if !(norm >= -math.MaxFloat32 && norm <= math.MaxFloat32) { // NaN fails
		return never
	}
	b := math.Float32bits(norm + 0) // -0 + 0 is 0
	if b>>31 != 0 {
		return ^b
	}
	return b | 1<<31
}

// smallest returns the k-th smallest key, k > 0, and the number of keys equal to it among the k smallest. It counts
// keys by bytes from the highest, in four passes for any keys.
func smallest(keys []uint32, k int) (kth uint32, ties int) {
	for shift := 24; shift >= 0; shift -= 8 {
		var count [256]int
		for _, key := range keys {
			if uint64(key)>>(shift+8) == uint64(kth) {
				count[key>>shift&255]++
			}
		}
		b := 0
		for ; k > count[b]; b++ {
			k -= count[b]
		}
		kth = kth<<8 | uint32(b)
	}
	return kth, k
}

// update judges the rows of iteration i and assigns slots to the rows that enter.
func (j *judge) update(i int64, layers []Observed, out []Admitted) {
	j.candidates = j.candidates[:0]
	for l := len(layers); l > 0; l-- {
		if layers[l-1].judged() && j.entries.config.Keeps(l) {
			j.judgeLayer(l, &layers[l-1])
		}
	}
	j.admit(i, layers, out)
}

// judgeLayer collects the rows of a layer that may enter. It ends the entries that gradients evict, and the entries of
// all computed rows, whose new rows are newer.
//
// Of n computed rows the k = floor(GradFraction*n + 0.5) with the smallest norms may enter, where a norm that is not
// finite exceeds all others and never enters. The k-th norm is the threshold above which hits are evicted: none with k
// = n, all of them with k = 0 < n.
func (j *judge) judgeLayer(layer int, o *Observed) {
	t, all := &j.entries.tables[layer], j.entries.config.Policy == All
	j.firsts, j.olds, j.keys = j.firsts[:0], j.olds[:0], j.keys[:0]
	for row, node := range o.Nodes {
		old := t.get(node)
		if old == marked {
			continue
		}
		if old >= 0 && !all {
			j.entries.drop(old)
		}
		j.firsts, j.olds, j.keys = append(j.firsts, int32(row)), append(j.olds, old), append(j.keys, keyOf(o.Norms[row]))
		t.set(node, marked)
	}
	n := len(j.keys)
	k := n
	if !all {
		k = min(int(math.Floor(j.entries.config.GradFraction*float64(n)+0.5)), n)
	}
	threshold, ties := uint32(never), 0
	switch {
	case k == 0:
		threshold = 0 // finite norms have no key 0
	case k < n:
		threshold, ties = smallest(j.keys, k)
	}
	for x, row := range j.firsts {
		node, key, old := o.Nodes[row], j.keys[x], j.olds[x]
		if all {
			t.set(node, old)
		} else {
			t.set(node, absent)
		}
		enters := key < threshold || key == threshold && ties > 0
		if key == threshold {
			ties--
		}
		if key == never {
			j.entries.counts.RefusedNotFinite++
			enters = false
		}
		switch {
		case enters:
			j.candidates = append(j.candidates, j.weigh(layer, row, o))
			if old >= 0 && !all {
				j.entries.counts.Replaced++
			}
		case old >= 0 && !all:
			j.entries.counts.Evicted++
		}
	}
	if !all {
		j.judgeHits(layer, o, threshold, k == n)
	}
}

// judgeHits evicts hits whose gradients exceed the threshold. If the entry that was read has been replaced, its
// replacement is judged as well, as it has the same node and layer.
func (j *judge) judgeHits(layer int, o *Observed, threshold uint32, unbounded bool) {
	t := &j.entries.tables[layer]
	for x, norm := range o.HitNorms {
		key, node := keyOf(norm), o.HitNodes[x]
		if key == never {
			j.entries.counts.RefusedNotFinite++
		} else if unbounded || key <= threshold {
			continue
		}
		if at := t.get(node); at >= 0 {
			j.entries.drop(at)
			j.entries.counts.Evicted++
		}
	}
}

// admit gives slots to the candidates, in the order in which they stand: highest layer first, which saves most, then by
// position.
func (j *judge) admit(i int64, layers []Observed, out []Admitted) {
	sweep := sweep{ring: &j.entries.ring, now: i}
	for x, c := range j.ranked() {
		o := &layers[c.layer-1]
		node := o.Nodes[c.row]
		at := int32(-1)
		if j.entries.config.Policy == All {
			if at = j.rewritable(int(c.layer), node); at == refused {
				continue
			}
		}
		if at < 0 {
			if at = j.place(&c, &sweep); at < 0 {
				if j.entries.config.Policy == All {
					j.entries.counts.RefusedFull++
					continue // others are written in place
				}
				j.refuse(at, int64(len(j.candidates)-x)) // the others cost at least as much
				break
			}
		}
		j.entries.enter(at, node, i, &c)
		to := &out[c.layer-1]
		to.Rows, to.Slots = append(to.Rows, c.row), append(to.Slots, at)
	}
}

// Why place has no slot.
const (
	noRoom  = -1 // every entry is from this update
	refused = -2 // batches rely on every other entry
	notDear = -3 // the entries to evict save more
)

func (j *judge) refuse(why int32, n int64) {
	switch why {
	case noRoom:
		j.entries.counts.RefusedFull += n
	case refused:
		j.entries.counts.RefusedPinned += n
	case notDear:
		j.entries.counts.RefusedWorth += n
	}
}

// rewritable returns the slot that a node has, for the policy that writes in place, or absent, or refused when a batch
// relies on it.
func (j *judge) rewritable(layer int, node int64) int32 {
	at := j.entries.tables[layer].get(node)
	if at < 0 {
		return noRoom
	}
	if j.entries.slots[at].pins > 0 {
		j.entries.counts.RefusedPinned++
		return refused
	}
	j.entries.drop(at)
	j.entries.claim(at)
	j.entries.counts.Replaced++
	return at
}

// place finds a slot for a candidate: a free one, one more, or the oldest entry's.
func (j *judge) place(c *candidate, s *sweep) int32 {
	if j.entries.config.Policy == Performance {
		return j.placeByWorth(c, s)
	}
	if at := j.entries.takeFree(); at >= 0 {
		return at
	}
	if at := j.entries.grow(); at >= 0 {
		return at
	}
	if j.entries.config.Policy == All {
		return noRoom
	}
	if s.find() {
		return j.entries.overwrite(s)
	}
	return s.why()
}

// sweep visits the entries that may be evicted: the lowest bucket first, in it the oldest first, except entries of this
// update and entries that batches rely on. Each entry is passed once per update.
type sweep struct {
	ring   *ring
	now    int64
	bucket int
	at     int32 // the next to look at, or -1
	begun  bool
	pinned bool // some were passed because of pins
}

// find moves to the next entry that may be evicted and reports whether there is one.
func (s *sweep) find() bool {
	if !s.begun {
		s.begun = true
		s.start(0)
	}
	for s.bucket < numBuckets {
		for s.at >= 0 {
			e := &s.ring.slots[s.at]
			if e.admitted == s.now {
				break // and so are the entries behind it
			}
			if e.pins == 0 {
				return true
			}
			s.pinned = true
			s.at = e.next
		}
		s.start(s.bucket + 1)
	}
	return false
}

func (s *sweep) start(bucket int) {
	if s.bucket = s.ring.lowest(bucket); s.bucket < numBuckets {
		s.at = s.ring.heads[s.bucket]
	}
}

// take returns the entry that was found and goes on to the next.
func (s *sweep) take() int32 {
	at := s.at
	s.at = s.ring.slots[at].next
	return at
}

func (s *sweep) why() int32 {
	if s.pinned {
		return refused
	}
	return noRoom
}
