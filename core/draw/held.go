package draw

import (
	"fmt"
	"math"

	"freshgo/core/internal/reuse"
)

// Rows that the consumer holds, as a device holds the hottest ones (FGNN, section
// 6.1): they are marked when a batch is sampled, neither read nor copied, and take
// no part in plans, policies and rankings.
//
// A batch then brings place int32[nodes], the place of each of its nodes: v >= 0 is the
// consumer's row v, any other is row ^v of the batch's node tensors, which hold each
// missed node once. Every node type has such a tensor; its rows count within the tensors
// of the type. Nodes whose rows a history leaves unread share one row of zeros, behind the
// rows of their type.

// PlaceName is the tensor that Options.Held adds to a batch.
const PlaceName = "place"

// validateHeld validates the rows that the consumer holds.
func (o *Options) validateHeld(numNodes int64) error {
	if o.Holds < 0 {
		return fmt.Errorf("%w: holds must be at least 0 batches, got %d", ErrOption, o.Holds)
	}
	if o.Held == nil {
		return nil
	}
	if int64(len(o.Held)) != numNodes || numNodes > math.MaxUint32 {
		return fmt.Errorf("%w: held must have an entry for each of %d nodes, at most 2^32-1, got %d",
			ErrOption, numNodes, len(o.Held))
	}
	for node, at := range o.Held {
		if at < -1 {
			return fmt.Errorf("%w: held[%d] must be a row or -1, got %d", ErrOption, node, at)
		}
	}
	return nil
}

// missed holds the nodes of a batch that the consumer does not hold, and the places of all nodes.
type missed struct {
	Place []int32 // of every node, see PlaceName
	Held  int64   // nodes that the consumer holds
	ids   []int64 // the missed nodes, within their types
	bases []int64 // the first row of each type among these, and the end; empty where the consumer holds nothing
	read  []int64 // of each type, the rows that are rows of the graph; the row of zeros is behind them

	nodes []int32 // the missed nodes, as drawn: places among all nodes
	moved []int32 // by missed node, as drawn: its row after takeOut, or -1

	drawn struct { // the lists before takeOut
		place      []int32
		ids, bases []int64
	}
}

// MissedBytes returns the memory of the places of a batch and its missed nodes, beside fetch.LookupBytes.
func MissedBytes(o *Options, nodes int64) int64 {
	switch {
	case o.Held == nil:
		return 0
	case o.History == nil:
		return nodes * (4 + 8 + 4)
	}
	return nodes * (2*(4+8) + 4 + 4)
}

func (m *missed) on() bool { return len(m.bases) > 0 }

// most returns the number of rows that the batch delivers, as drawn or pruned, at most.
func (m *missed) most(o *Options) int64 {
	n := int64(len(m.ids))
	if o.History != nil {
		n += int64(len(m.bases) - 1) // the rows of zeros
	}
	return n
}

func (m *missed) clear() {
	m.Place, m.Held, m.ids, m.nodes = m.Place[:0], 0, m.ids[:0], m.nodes[:0]
	m.bases, m.read = m.bases[:0], m.read[:0]
}

// endType ends the list of a type.
func (m *missed) endType(zeros bool) {
	first := m.bases[len(m.bases)-1]
	m.read = append(m.read, int64(len(m.ids))-first)
	if zeros {
		m.ids = append(m.ids, -1)
	}
	m.bases = append(m.bases, int64(len(m.ids)))
}

// fillMissed lists the nodes that the consumer does not hold, type after type, and says of every node where it is.
func (r *BatchRows) fillMissed(l *CachedTypes, nodes []int64, c *TypeOffsets) {
	m, first := &r.Missed, l.types.First
	m.bases = append(m.bases, 0)
	for t, cached := range l.Listed {
		mine, base := nodes[c.Nodes[t]:c.Nodes[t+1]], m.bases[t]
		repeating := l.mayRepeat(mine, c.Seeds[t])
		r.nodeIndex.begin(repeating)
		for i, v := range mine {
			at := l.held[v]
			if at >= 0 {
				m.Held++
				m.Place = append(m.Place, at)
				continue
			}
			of, found := int32(int64(len(m.ids))-base), false
			if i < repeating {
				of, found = r.nodeIndex.add(v, of)
			}
			m.Place = append(m.Place, ^of)
			if found {
				continue
			}
			if cached {
				r.Rows, r.At = append(r.Rows, l.RowOf(v)), append(r.At, int32(len(m.ids)))
			}
			m.ids = append(m.ids, v-first[t])
			m.nodes = append(m.nodes, int32(c.Nodes[t])+int32(i))
		}
		m.endType(false)
	}
	c.Rows = m.bases
}

// takeOut reduces the list to the nodes that have a place in the batch of c. nodes has the first node of each type
// among places, and the end.
func (m *missed) takeOut(places []int32, nodes []int64, c *TypeOffsets) {
	d := &m.drawn
	m.Place, d.place = d.place, m.Place
	m.ids, d.ids = d.ids[:0], m.ids
	m.bases, d.bases = append(d.bases[:0], 0), m.bases
	m.Place, m.moved = reuse.Slice(m.Place, int(c.Nodes[len(c.Nodes)-1])), reuse.Slice(m.moved, len(d.ids))
	m.read, m.Held = m.read[:0], 0
	for t := range len(nodes) - 1 {
		base := m.bases[t]
		for k := d.bases[t]; k < d.bases[t+1]; k++ {
			if m.moved[k] = -1; places[m.nodes[k]] >= 0 {
				m.moved[k] = int32(len(m.ids))
				m.ids = append(m.ids, d.ids[k])
			}
		}
		mine := m.Place[c.Nodes[t]:c.Nodes[t+1]]
		for i := range mine {
			mine[i] = ^int32(int64(len(m.ids)) - base) // the row of zeros
		}
		unread := len(mine)
		for i := nodes[t]; i < nodes[t+1]; i++ {
			to, at := places[i], d.place[i]
			if to < 0 {
				continue
			}
			if unread--; at >= 0 {
				m.Held++
			} else {
				at = ^(m.moved[d.bases[t]+int64(^at)] - int32(base))
			}
			m.Place[to] = at
		}
		m.endType(unread > 0)
	}
	c.Rows = m.bases
}

// Delivered returns the nodes of a type whose rows a batch delivers: all but the nodes that the consumer holds, and -1
// for the row of zeros.
func (r *BatchRows) Delivered(typ int, nodes []int64) []int64 {
	if m := &r.Missed; m.on() {
		return m.ids[m.bases[typ]:m.bases[typ+1]]
	}
	return nodes
}

// Read returns the number of the delivered rows of a type that are rows of the graph, which come first; false where
// the consumer holds no rows.
func (r *BatchRows) Read(typ int) (n int64, ok bool) {
	if m := &r.Missed; m.on() {
		return m.read[typ], true
	}
	return 0, false
}
