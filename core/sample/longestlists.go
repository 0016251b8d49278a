package sample

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"

	"freshgo/core/mem"
	"freshgo/core/offsets"
)

// LongLists holds the order in time of the longest lists of a relation whose lists and times of nodes are in memory. A
// draw then searches a hub's list instead of sorting it. A list takes 4 bytes an edge and 16 more. Memory of 4 bytes a
// target, whatever the number of edges, has the longest lists.
type LongLists struct {
	longer int64    // than this are the lists
	nodes  []int64  // their targets, ascending
	ptr    []int64  // the first edge of each in order, and the end
	order  []uint32 // offsets in the list, in ascending order of time, equal times by offset
	block  *mem.Block
}

// leastLong is the length up to which lists are sorted at every draw: up to there insertion is fast.
const leastLong = insertionTimes

// LongListsBytes returns the memory for LongLists of a relation with these offsets.
func LongListsBytes(indptr *offsets.Table) int64 {
	r := Relation{Indptr: indptr}
	if indptr == nil {
		return 0
	}
	lists, edges, _ := new(LongLists).choose(&r, 4*r.numTargets())
	if lists == 0 {
		return 0
	}
	return longBytes(lists, edges)
}

// NewLongLists finds the longest lists that up to most bytes have room for, and sorts them. It takes 32 bytes more for
// each edge of the longest list while it runs.
func NewLongLists(
	ctx context.Context, r *Relation, times *TimesByNode, most int64, budget *mem.Budget,
) (*LongLists, error) {
	l := new(LongLists)
	lists, edges, widest := l.choose(r, most)
	if lists == 0 {
		return l, nil
	}
	block, err := budget.Alloc(mem.Topology, longBytes(lists, edges))
	if err != nil {
		return nil, err
	}
	l.block = block
	numbers := mem.Slice[int64](block)
	l.nodes, l.ptr = numbers[:0:lists], numbers[lists:2*lists+1]
	l.order = mem.Slice[uint32](block)[2*(2*lists+1):][:edges]
	if err := l.sort(ctx, r, times, budget, widest); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Close frees the memory.
func (l *LongLists) Close() {
	if l.block != nil {
		l.block.Free()
		l.block = nil
	}
}

// longBytes returns the memory of some lists with their edges, in whole words.
func longBytes(lists, edges int64) int64 { return 8*(2*lists+1) + (4*edges+7)/8*8 }

// lengthClass numbers classes of lengths, four for each power of two. shortestOf returns the shortest length of one.
func lengthClass(n int64) int {
	shift := max(0, bits.Len64(uint64(n))-3)
	return 4*shift + int(n>>shift)
}

func shortestOf(class int) int64 {
	if class < 8 {
		return int64(class)
	}
	return int64(4+class%4) << (class/4 - 1)
}

// choose sets the length of the lists, and returns the number of lists, the number of their edges and the longest
// length.
func (l *LongLists) choose(r *Relation, bytes int64) (lists, edges, widest int64) {
	var counts, sums [256]int64
	var degrees [1 << 10]int64
	for v := int64(0); v < r.numTargets(); v += int64(len(degrees)) {
		part := degrees[:min(int64(len(degrees)), r.numTargets()-v)]
		r.Indptr.Degrees(v, part)
		for _, n := range part {
			if n > leastLong {
				class := lengthClass(n - 1) // all lists of a class are longer than one before its shortest
				counts[class]++
				sums[class] += n
				widest = max(widest, n)
			}
		}
	}
	class := len(counts)
	for ; class > lengthClass(leastLong); class-- {
		if longBytes(lists+counts[class-1], edges+sums[class-1]) > bytes {
			break
		}
		lists, edges = lists+counts[class-1], edges+sums[class-1]
	}
	l.longer = math.MaxInt64
	if lists > 0 {
		l.longer = shortestOf(class)
	}
	return lists, edges, widest
}

// sort fills the lists.
func (l *LongLists) sort(
	ctx context.Context, r *Relation, times *TimesByNode, budget *mem.Budget, widest int64,
) error {
	var room [2]sorting
	var ids buffer[int64]
	defer ids.free()
	for i := range room {
		defer room[i].free()
		if err := room[i].grow(budget, widest); err != nil {
			return err
		}
	}
	if err := ids.grow(budget, mem.Trace, widest, 0); err != nil {
		return err
	}
	at := 0
	for v := range r.numTargets() {
		begin, end := r.Indptr.Range(v)
		n := end - begin
		if n <= l.longer {
			continue
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("sample: sorting times: %w", err)
		}
		list, sources := room[0].first(int(n)), ids.data[:n]
		for i := range sources {
			sources[i] = r.source(begin + int64(i))
		}
		times.Find(sources, list.times)
		list.number()
		l.nodes, l.ptr[len(l.nodes)] = append(l.nodes, v), int64(at)
		at += copy(l.order[at:], list.sorted(room[1].first(int(n))).offsets)
	}
	l.ptr[len(l.nodes)] = int64(at)
	return nil
}

// of returns the order of a list of a length, or nil.
func (l *LongLists) of(node, length int64) []uint32 {
	if l == nil || length <= l.longer {
		return nil
	}
	i, found := slices.BinarySearch(l.nodes, node)
	if !found {
		return nil
	}
	return l.order[l.ptr[i]:l.ptr[i+1]]
}

// allowedOf returns the part of an order with times from earliest to now.
func allowedOf[I int32 | int64, T uint32 | int64](
	order []uint32, ids []I, times []T, least, earliest, now int64,
) []uint32 {
	if earliest > math.MinInt64 {
		first := sort.Search(len(order), func(i int) bool { return least+int64(times[ids[order[i]]]) >= earliest })
		order = order[first:]
	}
	return order[:sort.Search(len(order), func(i int) bool { return least+int64(times[ids[order[i]]]) > now })]
}
