package store

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
)

// simpleHot is Hot as its definition has it.
func simpleHot(scores []float32) []uint32 {
	order := make([]uint32, len(scores))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortStableFunc(order, func(a, b uint32) int { return cmp.Compare(scores[b], scores[a]) })
	return order
}

// simpleCommunity is Community as its definition has it, by recursion.
func simpleCommunity(n int64, src, dst []int64, scores []float32) []uint32 {
	return simpleForest(n, [][2][]int64{{src, dst}}, scores)
}

// simpleForest is simpleCommunity for a graph of several relations, whose nodes are numbered over all types.
func simpleForest(n int64, relations [][2][]int64, scores []float32) []uint32 {
	parents, shares := make([]int64, n), make([]float32, n)
	for i := range parents {
		parents[i] = -1
	}
	for _, ends := range relations {
		degree := make([]int, n)
		for _, t := range ends[1] {
			degree[t]++
		}
		for i, s := range ends[0] {
			t, p := ends[1][i], parents[s]
			w, x := float32(1), min(1, drawn/float32(degree[t]))
			if scores != nil {
				w = scores[t]
			}
			share := w * x * x
			if t != s && (p < 0 || share > shares[s] || share == shares[s] && t < p) {
				parents[s], shares[s] = t, share
			}
		}
	}
	done := map[int64]bool{}
	for i := range n {
		walk := map[int64]bool{}
		at := i
		for at >= 0 && !done[at] && !walk[at] {
			walk[at] = true
			at = parents[at]
		}
		if at >= 0 && walk[at] {
			parents[at] = -1
		}
		for v := range walk {
			done[v] = true
		}
	}
	children := map[int64][]int64{}
	for v, p := range parents {
		children[p] = append(children[p], int64(v))
	}
	var order []uint32
	var walk func(v int64)
	walk = func(v int64) {
		for _, c := range children[v] {
			order = append(order, uint32(c))
		}
		for _, c := range children[v] {
			walk(c)
		}
	}
	for _, root := range children[-1] {
		order = append(order, uint32(root))
		walk(root)
	}
	return order
}

// simpleBlend is HotCommunity as its definition has it.
func simpleBlend(scores []float32, hotRows int, together []uint32) []uint32 {
	hot := simpleHot(scores)
	scored := 0
	for _, s := range scores {
		if s > 0 {
			scored++
		}
	}
	order := slices.Clone(hot[:min(hotRows, scored)])
	isHot := map[uint32]bool{}
	for _, id := range order {
		isHot[id] = true
	}
	rest := slices.DeleteFunc(slices.Clone(together), func(id uint32) bool { return isHot[id] })
	// Classes begin at 2^-123, 2^-119 and so on; the lowest holds all that is less and not zero.
	class := func(s float32) int {
		if s == 0 {
			return -1
		}
		_, e := math.Frexp(float64(s)) // s is in [2^(e-1), 2^e)
		return max(0, (e-1+127)/4)
	}
	slices.SortStableFunc(rest, func(a, b uint32) int { return cmp.Compare(class(scores[b]), class(scores[a])) })
	return append(order, rest...)
}

// TestOrders compares every order with its definition on random multigraphs with loops, hubs, cycles and isolated
// nodes.
func TestOrders(t *testing.T) {
	for seed := range uint64(6) {
		rng := explore.Rand(t, seed, 9)
		n := []int64{1, 2, 50, 900, 3000, 20_000}[seed]
		src, dst := randomEdges(rng, n, int(n)*int(seed+1)/2)
		s := mustConvert(t, Input{NumNodes: n, EdgeIndex: edgesOf(src, dst)}, 0)
		scores := randomScores(seed, n)
		if seed == 4 {
			for i := range scores {
				scores[i] = float32(i / 100 % 3) // ties are the rule
			}
		}
		for _, scored := range []bool{false, true} {
			with := scores
			if !scored {
				with = nil
			}
			want := simpleCommunity(n, src, dst, with)
			for _, workers := range []int{1, 3, 8} {
				got := make([]uint32, n)
				require.NoError(t, s.community(context.Background(), with, got, workers, mem.NewBudget(s.communityBytes(workers)),
					&meter{report: func(string, int64, int64) {}}))
				require.Equal(t, want, got, "%d nodes, %d workers", n, workers)
			}
		}
		together := simpleCommunity(n, src, dst, scores)
		require.Equal(t, simpleHot(scores), orderOf(t, mustRelayout(t, s, RelayoutOptions{Order: Hot, Scores: scores})))
		require.Equal(t, together, orderOf(t, mustRelayout(t, s, RelayoutOptions{Order: Community, Scores: scores})))
		for _, hot := range []int64{0, n / 50, n / 3} {
			got := make([]uint32, n)
			require.NoError(t, blend(context.Background(), scores, hot, together, got, make([]uint32, n)))
			require.Equal(t, simpleBlend(scores, int(hot), together), got, "%d nodes, %d of them hot", n, hot)
		}
		auto := mustRelayout(t, s, RelayoutOptions{Order: HotCommunity, Scores: scores, HotRows: -1})
		require.Equal(t, simpleBlend(scores, int(n/defaultHotShare), together), orderOf(t, auto))
	}
}

// TestHotOrderOfEqualDigits takes each way through the radix sort: scores that differ in one digit only, in none, in
// all.
func TestHotOrderOfEqualDigits(t *testing.T) {
	for name, scores := range map[string][]float32{
		"none":     {3, 3, 3, 3},
		"zero":     {0, 0, 0},
		"low":      {1, 1.0000001, 1.0000002, 1},
		"high":     {1, 1e30, 1e-30, 0, 1e30},
		"all":      {0.1, 7.7, 123456, 3e-5, 0, 2},
		"negative": {float32(math.Copysign(0, -1)), 1, 0},
	} {
		order, scratch := make([]uint32, len(scores)), make([]uint32, len(scores))
		_, err := sortHot(context.Background(), scores, order, scratch)
		require.NoError(t, err)
		require.Equal(t, simpleHot(scores), order, name)
	}
}

// TestCommunityBringsNeighboursTogether plants communities under shuffled ids: the pages that hold the neighbours of a
// node must become few.
func TestCommunityBringsNeighboursTogether(t *testing.T) {
	const n, size, perPage = 16_000, 40, 8
	rng := rand.New(rand.NewPCG(5, 5))
	place := rng.Perm(n)
	var src, dst []int64
	for v := range n {
		for range 6 {
			src = append(src, int64(place[v/size*size+rng.IntN(size)]))
			dst = append(dst, int64(place[v]))
		}
	}
	s := mustConvert(t, Input{NumNodes: n, EdgeIndex: edgesOf(src, dst)}, 0)
	pages := func(order []uint32) int {
		row := make([]int, n)
		for r, id := range order {
			row[id] = r
		}
		lists := make([]map[int]bool, n)
		touched := 0
		for i, t := range dst {
			if lists[t] == nil {
				lists[t] = map[int]bool{}
			}
			if page := row[src[i]] / perPage; !lists[t][page] {
				lists[t][page] = true
				touched++
			}
		}
		return touched
	}
	own := make([]uint32, n)
	for i := range own {
		own[i] = uint32(i)
	}
	community := orderOf(t, mustRelayout(t, s, RelayoutOptions{Order: Community}))
	require.Less(t, float64(pages(community)), 0.7*float64(pages(own)))
}

// TestHostileAdjacency: numbers from files with right checksums are checked before they are used as places.
func TestHostileAdjacency(t *testing.T) {
	for _, tc := range []struct {
		file  string
		row   int
		value int64
	}{{"indptr", 0, -1}, {"indptr", 7, 1 << 40}, {"indptr", 2999, 0}, {"indices", 0, 3000}, {"indices", 8999, -1}} {
		path := sampleStore(t)
		data := readFiles(t, path)[tc.file+".bin"]
		width := 8
		if tc.file == "indices" {
			width = 4
		}
		copy(data[tc.row*width:(tc.row+1)*width], int64Bytes([]int64{tc.value}))
		rewrite(t, path, tc.file, data)
		s := mustOpen(t, path)
		var damage *CorruptError
		require.ErrorAs(t, Relayout(context.Background(), s, path+"2", RelayoutOptions{Order: Community}), &damage, "%+v", tc)
		require.Contains(t, damage.Path, tc.file+".bin")
		require.Contains(t, damage.Reason, "expected")
	}
}
