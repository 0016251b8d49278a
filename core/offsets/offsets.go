// Package offsets holds where the lists of a graph begin and end (the indptr of its CSC) in 2.3 bytes a node, where the
// file has 8.
package offsets

import (
	"fmt"
	"slices"
	"sort"
	"sync"

	"freshgo/core/internal/asm"
	"freshgo/core/mem"
)

// lineNodes is the number of nodes whose offsets fit into a line.
const lineNodes = 28

// line is a line of a processor's cache: where the list of its first node begins, and from there on where the list of
// each node ends. So a lookup touches one line. Rejected: 8 bytes an offset, 0.9 GB for 111M nodes and 2 GB for 244M;
// and succinct bit vectors, of a third of this size, whose lookups touch several lines.
type line struct {
	base uint64
	ends [lineNodes]uint16
}

const lineBytes = 64

// Lines whose nodes have more edges together than 16 bits count have their offsets among the wide ones: base is
// wideMark and the place there of the first.
const (
	wideMark   = 1 << 63
	wideNodes  = lineNodes + 1
	narrowMost = 1<<16 - 1
)

// Table holds where the lists of nodes begin and end. It is safe for concurrent use.
type Table struct {
	lines []line
	wide  []int64
	nodes int64
	edges int64
	block *mem.Block
}

// Bytes returns the memory of a table.
func Bytes(nodes, edges int64) int64 {
	return numLines(nodes)*lineBytes + mostWide(nodes, edges)*wideNodes*8
}

// numLines has one more offset than there are nodes.
func numLines(nodes int64) int64 { return nodes/lineNodes + 1 }

func mostWide(nodes, edges int64) int64 { return min(numLines(nodes), edges>>16) }

// Of returns a table of offsets that start at 0 and never fall, one more than there are nodes.
func Of(offsets []int64) *Table {
	nodes := int64(len(offsets)) - 1
	edges := offsets[nodes]
	b := newBuilder(nodes, edges, make([]line, numLines(nodes)), make([]int64, mostWide(nodes, edges)*wideNodes))
	b.Put(0, offsets)
	return b.Table()
}

// NumNodes returns the number of lists.
func (t *Table) NumNodes() int64 { return t.nodes }

// NumEdges returns the number of edges, where the last list ends.
func (t *Table) NumEdges() int64 { return t.edges }

// Range returns the positions at which the list of a node begins and ends. It panics where there is no such node.
func (t *Table) Range(node int64) (begin, end int64) {
	if uint64(node) >= uint64(t.nodes) {
		panic(fmt.Sprintf("offsets: node %d of %d", node, t.nodes))
	}
	l, k := &t.lines[uint64(node)/lineNodes], uint64(node)%lineNodes
	if l.base >= wideMark {
		of := t.wide[l.base-wideMark:]
		return of[k], of[k+1]
	}
	begin, end = int64(l.base), int64(l.base)+int64(l.ends[k])
	if k > 0 {
		begin += int64(l.ends[k-1])
	}
	return begin, end
}

// Begin returns the position at which the list of a node begins. Behind the last node it is the number of edges.
func (t *Table) Begin(node int64) int64 {
	if node == t.nodes {
		return t.edges
	}
	begin, _ := t.Range(node)
	return begin
}

// End returns the position at which the list of a node ends.
func (t *Table) End(node int64) int64 {
	_, end := t.Range(node)
	return end
}

// Degree returns the length of the list of a node.
func (t *Table) Degree(node int64) int64 {
	begin, end := t.Range(node)
	return end - begin
}

// Degrees sets out to the lengths of the lists of the nodes from first on. It takes a fifth of the time of as many
// calls of Degree.
func (t *Table) Degrees(first int64, out []int64) {
	for len(out) > 0 {
		l, k := &t.lines[first/lineNodes], first%lineNodes
		part := out[:min(int64(len(out)), lineNodes-k)]
		if l.base >= wideMark {
			of := t.wide[l.base-wideMark:][k:]
			for i := range part {
				part[i] = of[i+1] - of[i]
			}
		} else {
			before := uint16(0)
			if k > 0 {
				before = l.ends[k-1]
			}
			for i, end := range l.ends[k:][:len(part)] {
				part[i] = int64(end - before)
				before = end
			}
		}
		first, out = first+int64(len(part)), out[len(part):]
	}
}

// Longest returns the length of the longest list.
func (t *Table) Longest() (longest int64) {
	var degrees [1 << 10]int64
	for v := int64(0); v < t.nodes; v += int64(len(degrees)) {
		part := degrees[:min(int64(len(degrees)), t.nodes-v)]
		t.Degrees(v, part)
		longest = max(longest, slices.Max(part))
	}
	return longest
}

// Find returns the node whose list has the edge at a position, which is below the number of edges.
func (t *Table) Find(position int64) int64 {
	behind := sort.Search(len(t.lines), func(i int) bool { return t.Begin(int64(i)*lineNodes) > position })
	first := int64(behind-1) * lineNodes
	return first + int64(sort.Search(int(min(lineNodes, t.nodes-first)), func(k int) bool {
		return t.End(first+int64(k)) > position
	}))
}

// Prefetch asks the processor to bring the lines of nodes close.
func (t *Table) Prefetch(nodes []int64) {
	var lines [64]int64
	for len(nodes) > 0 {
		n := min(len(nodes), len(lines))
		for i, v := range nodes[:n] {
			lines[i] = int64(uint64(v) / lineNodes)
		}
		asm.Prefetch(t.lines, lines[:n])
		nodes = nodes[n:]
	}
}

// Free gives the memory back. No other call may be running or follow.
func (t *Table) Free() {
	if t.block != nil {
		t.block.Free()
	}
	t.lines, t.wide, t.nodes, t.edges = nil, nil, 0, 0
}

// Builder makes a table of pieces, in any order.
type Builder struct {
	table *Table

	mu    sync.Mutex
	wide  int             // places of table.wide that are taken
	parts map[int64]*part // by line: those whose offsets more than one piece has
}

// part is the offsets of a line, and how many of them have come.
type part struct {
	offsets [wideNodes]int64
	have    int64
}

// NewBuilder returns a builder of a table. The caller frees the table, also where it is not finished.
func NewBuilder(budget *mem.Budget, p mem.Purpose, nodes, edges int64) (*Builder, error) {
	block, err := budget.Alloc(p, Bytes(nodes, edges))
	if err != nil {
		return nil, err
	}
	narrow := numLines(nodes) * lineBytes
	b := newBuilder(nodes, edges, mem.View[line](block.Bytes()[:narrow]), mem.View[int64](block.Bytes()[narrow:]))
	b.table.block = block
	return b, nil
}

func newBuilder(nodes, edges int64, lines []line, wide []int64) *Builder {
	return &Builder{
		table: &Table{lines: lines, wide: wide, nodes: nodes, edges: edges}, parts: make(map[int64]*part),
	}
}

// Table returns the table, which is whole once all offsets were put.
func (b *Builder) Table() *Table { return b.table }

// Put takes the offsets from number first on. Goroutines may put different ones at a time. Offsets that fall, or exceed
// the edges, make a table of no use, and do no other harm.
func (b *Builder) Put(first int64, offsets []int64) {
	behind := first + int64(len(offsets))
	for number := max(first-1, 0) / lineNodes; number*lineNodes < behind; number++ {
		lo := number * lineNodes
		hi := min(lo+wideNodes, b.table.nodes+1)
		from, to := max(lo, first), min(hi, behind)
		switch {
		case from >= to:
		case to-from == hi-lo:
			b.set(number, offsets[from-first:to-first])
		default:
			b.putPart(number, hi-lo, from-lo, offsets[from-first:to-first])
		}
	}
}

// putPart takes some of the offsets of a line, from place at on.
func (b *Builder) putPart(number, count, at int64, offsets []int64) {
	b.mu.Lock()
	p := b.parts[number]
	if p == nil {
		p = new(part)
		b.parts[number] = p
	}
	p.have += int64(copy(p.offsets[at:], offsets))
	whole := p.have == count
	if whole {
		delete(b.parts, number)
	}
	b.mu.Unlock()
	if whole {
		b.set(number, p.offsets[:count])
	}
}

// set takes all offsets of a line, the end of its last list included.
func (b *Builder) set(number int64, offsets []int64) {
	l, base, last := &b.table.lines[number], offsets[0], offsets[len(offsets)-1]
	if all := last - base; all < 0 || all > narrowMost {
		if wide, place := b.takeWide(); wide != nil {
			l.base = wideMark + place
			for i := copy(wide, offsets); i < len(wide); i++ {
				wide[i] = last
			}
		}
		return
	}
	l.base = uint64(base)
	for i := range l.ends {
		l.ends[i] = uint16(offsets[min(i+1, len(offsets)-1)] - base)
	}
}

// takeWide returns the next places among the wide offsets, or nil where the offsets are wrong.
func (b *Builder) takeWide() ([]int64, uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	place := b.wide
	if place+wideNodes > len(b.table.wide) {
		return nil, 0
	}
	b.wide += wideNodes
	return b.table.wide[place:b.wide], uint64(place)
}
