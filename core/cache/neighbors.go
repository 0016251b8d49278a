package cache

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/bits"

	"freshgo/core/internal/asm"
	"freshgo/core/mem"
	"freshgo/core/offsets"
	"freshgo/core/packed"
)

// Neighbors holds the in-edges of the most important nodes in memory while other lists stay on disk (Ginex, section
// 3.2): for each cached node its whole list, in one or more columns (neighbours, edge numbers). All lists of a column
// are contiguous in the order of their nodes.
//
// The address table is direct, like Ginex's, but takes 4 bits a node instead of 32: a word for every 16 nodes says
// which of their lists are cached and where the first of them begins. The distances of the others, and all lengths,
// follow from indptr, which is in memory anyway. A lookup costs a line of the table and one or two of indptr, once per
// target instead of once per edge. Rejected: an offset per node, which for a graph of six in-edges a node takes a sixth
// of all its lists; and 2 bits a node by words for 64 nodes, with four times the work.
//
// It is filled before the first Find. After that it is read-only and safe for concurrent use.
type Neighbors struct {
	indptr *offsets.Table // borrowed
	groups []listGroup
	edges  int64
	budget *mem.Budget
	blocks []*mem.Block
}

// listGroup is the entry of the address table for 16 nodes: its lower bits mark the nodes whose lists are cached, and
// the bits above hold the start of the first of these lists in a column.
type listGroup uint64

const (
	groupNodes = 16
	groupMask  = 1<<groupNodes - 1
	groupBytes = 8
)

func (g listGroup) cached() uint { return uint(g & groupMask) }

func (g listGroup) first() int64 { return int64(g >> groupNodes) }

// NeighborTableBytes returns the size of the address table.
func NeighborTableBytes(numNodes int64) int64 {
	return (numNodes + groupNodes - 1) / groupNodes * groupBytes
}

// ColumnsBytes returns the memory of columns beside their numbers.
func ColumnsBytes(columns int) int64 { return int64(columns) * (packed.Bytes(1, 1)) }

// Lists are the candidates of NewNeighbors: the in-edges of all nodes of a type, along
// one relation.
type Lists struct {
	// Indptr stays the caller's and must outlive its Neighbors.
	Indptr *offsets.Table
	// Wanted is the relative frequency at which each node's list is needed: Ginex takes the out-degree. NewNeighbors does
	// not keep it.
	Wanted Hotness
	// Widths has the bits of an in-edge in each column.
	Widths []int
}

// edgeBits returns the size of an in-edge in all columns.
func (l *Lists) edgeBits() (total int64) {
	for _, width := range l.Widths {
		total += int64(width)
	}
	return total
}

// NewNeighbors chooses the lists to cache and returns the choice for each of the arguments. It takes lists by
// descending importance, see there, then in the order of the arguments and of the nodes, and skips lists that do not
// fit into the rest of nBytes, in which the address tables count. The caller then adds the columns.
//
// It takes a few passes over the offsets and Wanted, and NeighborScratchBytes in addition to the address tables, and
// stops when ctx ends.
func NewNeighbors(ctx context.Context, budget *mem.Budget, of []Lists, nBytes int64) ([]*Neighbors, error) {
	var chosen []*Neighbors
	c := chooser{ctx: ctx, room: min(nBytes, math.MaxInt64/16) * 8}
	err := func() error {
		for i := range of {
			n, err := newNeighbors(budget, &of[i])
			if err != nil {
				return err
			}
			chosen = append(chosen, n)
			c.kinds = append(c.kinds, kind{Lists: &of[i], chosen: n, edgeBits: of[i].edgeBits()})
			c.room -= (int64(len(n.groups))*groupBytes + ColumnsBytes(len(of[i].Widths))) * 8
		}
		return c.choose(budget)
	}()
	for _, n := range chosen {
		if err != nil {
			n.Close()
			continue
		}
		n.place()
	}
	if err != nil {
		return nil, err
	}
	return chosen, nil
}

// newNeighbors returns Neighbors without lists.
func newNeighbors(budget *mem.Budget, of *Lists) (*Neighbors, error) {
	numNodes := of.Indptr.NumNodes()
	if int64(len(of.Wanted)) != numNodes {
		return nil, fmt.Errorf("cache: lists are wanted by %d scores for %d nodes: %w", len(of.Wanted), numNodes, ErrHotness)
	}
	n := &Neighbors{indptr: of.Indptr, budget: budget}
	block, err := n.alloc(NeighborTableBytes(numNodes))
	if err != nil {
		return nil, err
	}
	n.groups = mem.Slice[listGroup](block)
	return n, nil
}

// alloc takes memory that lives as long as n does.
func (n *Neighbors) alloc(nBytes int64) (*mem.Block, error) {
	block, err := n.budget.Alloc(mem.NeighborCache, nBytes)
	if err == nil {
		n.blocks = append(n.blocks, block)
	}
	return block, err
}

func (n *Neighbors) add(v int64) {
	n.groups[v/groupNodes] |= 1 << (v % groupNodes)
	n.edges += n.degree(v)
}

func (n *Neighbors) degree(v int64) int64 { return n.indptr.Degree(v) }

// place sets where each group begins: 48 bits are enough for the edges on any disk.
func (n *Neighbors) place() {
	at := int64(0)
	for g, group := range n.groups {
		n.groups[g] = listGroup(at)<<groupNodes | group
		for a, b := range setRuns(group.cached()) {
			at += n.lengthOf(g, a, b)
		}
	}
}

// lengthOf returns the edges of the nodes of a group from place a to place b.
func (n *Neighbors) lengthOf(group, a, b int) int64 {
	base := int64(group) * groupNodes
	return n.indptr.End(base+int64(b)-1) - n.indptr.Begin(base+int64(a))
}

// setRuns yields the runs of set bits of a word, each from its first bit to the
// one after its last. The highest bit of the word is not set.
func setRuns(word uint) iter.Seq2[int, int] {
	return func(yield func(a, b int) bool) {
		for word != 0 {
			a := bits.TrailingZeros(word)
			b := a + bits.TrailingZeros(^(word >> a))
			if !yield(a, b) {
				return
			}
			word = word >> b << b
		}
	}
}

// findGroup is the number of nodes that are looked up at a time: their cache misses
// in the table and in indptr overlap.
const findGroup = 64

// Find sets at[i] to where the list of nodes[i] begins in every column, or to Miss.
// A list is as long as the node's range in indptr.
func (n *Neighbors) Find(nodes, at []int64) {
	var groups [findGroup]int64
	for len(nodes) > 0 {
		part := nodes[:min(findGroup, len(nodes))]
		for i, v := range part {
			groups[i] = v / groupNodes
		}
		asm.Prefetch(n.groups, groups[:len(part)])
		n.indptr.Prefetch(part)
		for i, v := range part {
			at[i] = n.find(v)
		}
		nodes, at = nodes[len(part):], at[len(part):]
	}
}

func (n *Neighbors) find(v int64) int64 {
	group, place := n.groups[v/groupNodes], v%groupNodes
	if group>>place&1 == 0 {
		return Miss
	}
	at := group.first()
	// The same as setRuns, which the compiler does not inline here.
	for before := group.cached() & (1<<place - 1); before != 0; {
		a := bits.TrailingZeros(before)
		b := a + bits.TrailingZeros(^(before >> a))
		at += n.lengthOf(int(v/groupNodes), a, b)
		before = before >> b << b
	}
	return at
}

// Close frees the memory. No other call may be running or follow.
func (n *Neighbors) Close() {
	for _, b := range n.blocks {
		b.Free()
	}
	n.blocks, n.groups = nil, nil
}

// Run is a range of positions of the index array, From to To, that is cached and
// begins in every column at At.
type Run struct{ From, To, At int64 }

// Runs yields the cached runs of the positions lo to hi, in order. Runs may touch.
func (n *Neighbors) Runs(lo, hi int64) iter.Seq[Run] {
	return func(yield func(Run) bool) {
		if lo >= n.indptr.NumEdges() {
			return
		}
		for g := int(n.indptr.Find(lo) / groupNodes); g < len(n.groups) && n.indptr.Begin(int64(g)*groupNodes) < hi; g++ {
			at := n.groups[g].first()
			for a, b := range setRuns(n.groups[g].cached()) {
				first, length := n.indptr.Begin(int64(g*groupNodes+a)), n.lengthOf(g, a, b)
				from, to := max(first, lo), min(first+length, hi)
				if from < to && !yield(Run{From: from, To: to, At: at + from - first}) {
					return
				}
				at += length
			}
		}
	}
}

// Column holds one number for each cached in-edge.
type Column struct {
	*packed.Array
	neighbors *Neighbors
}

// AddColumn makes a column of numbers of a width in bits, to be filled by Put.
func (n *Neighbors) AddColumn(width int) (*Column, error) {
	block, err := n.alloc(packed.Bytes(n.edges, width))
	if err != nil {
		return nil, err
	}
	return &Column{packed.Of(block.Bytes(), n.edges, width), n}, nil
}

// CutColumn makes a column of the whole array, which the block holds in numbers of the width or wider ones: it moves
// the cached lists to the front, in place, and gives the rest of the block back. read sets out to the numbers from a
// position on. The block is n's from then on.
func (n *Neighbors) CutColumn(block *mem.Block, width int, read func(first int64, out []int64)) (*Column, error) {
	need := packed.Bytes(n.edges, width)
	if need > int64(len(block.Bytes())) { // of few edges
		defer block.Free()
		c, err := n.AddColumn(width)
		if err == nil {
			ids := make([]int64, n.indptr.NumEdges())
			read(0, ids)
			Put(c, 0, ids)
		}
		return c, err
	}
	n.blocks = append(n.blocks, block)
	array := packed.Cut(block.Bytes(), n.edges, width, func(yield func(from, to int64) bool) {
		for r := range n.Runs(0, n.indptr.NumEdges()) {
			if !yield(r.From, r.To) {
				return
			}
		}
	}, read)
	block.Shrink(need)
	return &Column{array, n}, nil
}

// Put puts into the column the cached part of the index array from position first on, whose numbers are given. It may
// run concurrently for other positions.
func Put[T uint32 | int64](c *Column, first int64, numbers []T) {
	var p packed.Packer
	begun := false
	for r := range c.neighbors.Runs(first, first+int64(len(numbers))) {
		if !begun { // the runs that follow lie behind this one in the column
			p, begun = c.Packer(r.At), true
		}
		packed.Put(&p, numbers[r.From-first:r.To-first])
	}
	if begun {
		p.End()
	}
}
