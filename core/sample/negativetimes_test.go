package sample

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
)

func nodeTimes(t *testing.T, times []int64) *NodeTimes {
	t.Helper()
	block, err := mem.NewBudget(0).Alloc(mem.Topology, NodeTimesBytes(int64(len(times))))
	require.NoError(t, err)
	t.Cleanup(block.Free)
	born, err := NewNodeTimes(times, block)
	require.NoError(t, err)
	return born
}

func sortedSums(t *testing.T, born *NodeTimes, weights []float64) []float64 {
	if weights == nil {
		return nil
	}
	out := make([]float64, len(weights))
	require.NoError(t, born.Sort(weights, out))
	return out
}

// What is drawn up to a time is drawn in proportion to weights among what was there, and strict ones among what is no
// link: by rejection and by looking at all lists alike.
func TestNegativesUpToATime(t *testing.T) {
	const nodes = 12
	times := make([]int64, nodes)
	for v := range times {
		times[v] = int64(v*7%5) * 10
	}
	born := nodeTimes(t, times)
	links := Links{Sources: []int64{5, 0, 6}, Targets: []int64{0, 10, 8}}
	for name, g := range map[string]*testGraph{"sparse": dense(nodes, 1), "dense": dense(nodes, 6),
		"empty": linked(nodes)} {
		for _, weighted := range []bool{false, true} {
			var from, to []float64
			if weighted {
				from, to = someWeights(nodes, 1), someWeights(nodes, 2)
			}
			weight := func(w []float64, v int64) float64 {
				if w == nil {
					return 1
				}
				return w[v]
			}
			for _, given := range []int64{-1, 5} {
				for _, strict := range []bool{false, true} {
					n := &Negatives{NumSources: nodes, NumTargets: nodes, SourceTimes: born, TargetTimes: born,
						Sources: sortedSums(t, born, from), Targets: sortedSums(t, born, to), Given: given >= 0}
					if strict {
						g.strict(t, n, links, false)
					}
					graph := g.relation("ram32")
					for _, at := range []int64{-1, 0, 15, 40, math.MaxInt64} {
						want, all := map[Link]float64{}, 0.
						for source := range int64(nodes) {
							for target := range int64(nodes) {
								switch {
								case times[target] > at, given < 0 && times[source] > at, given >= 0 && source != given:
									continue
								case !strict:
								case source == target, slices.Contains(g.wide[g.indptr[target]:g.indptr[target+1]], source),
									slices.ContainsFunc([]int{0, 1, 2}, func(i int) bool {
										return links.Sources[i] == source && links.Targets[i] == target
									}):
									continue
								}
								p := weight(to, target)
								if given < 0 {
									p *= weight(from, source)
								}
								if p > 0 {
									want[Link{source, target}] = p
									all += p
								}
							}
						}
						check := func(how string, source, target []int64) {
							counts, chi := map[Link]float64{}, 0.
							for j := range source {
								require.Contains(t, want, Link{source[j], target[j]})
								counts[Link{source[j], target[j]}]++
							}
							for pair, p := range want {
								expected := p / all * float64(len(source))
								chi += (counts[pair] - expected) * (counts[pair] - expected) / expected
							}
							require.Less(t, chi, chiLimit(max(len(want)-1, 1)), "%s: %s at %d, given %d, strict %v", how, name, at, given,
								strict)
						}
						draw := func(count int) (source, target []int64, err error) {
							source, target = slices.Repeat([]int64{given}, count), make([]int64, count)
							return source, target, n.DrawUpTo(context.Background(), graph, Key{1, 2, 3}, slices.Repeat([]int64{at}, count),
								source, target)
						}
						early := n.Earliest(context.Background(), graph, at)
						source, target, err := draw(2000)
						if all == 0 {
							require.ErrorIs(t, err, ErrNegative)
							if given < 0 || !strict {
								require.ErrorIs(t, early, ErrNegative)
							}
							continue
						}
						require.NoError(t, early)
						require.NoError(t, err)
						check("drawn", source, target)
						if !strict {
							continue
						}
						for j := range source {
							source[j], target[j], err = n.drawLeft(context.Background(), graph, stream(absorb(77, uint64(j))), given, at)
							require.NoError(t, err)
						}
						check("left", source, target)
					}
				}
			}
		}
	}
}

// Negatives up to a time depend neither on where the graph is nor on the negatives beside them, also where most are
// looked for in all lists.
func TestNegativesUpToATimeAreTheSameFromDisk(t *testing.T) {
	var edges []Link // all but a nineteenth: one negative in 30 is taken each of the times that it is drawn
	for s := range int64(40) {
		for v := range int64(40) {
			if (s+v)%19 != 0 {
				edges = append(edges, Link{s, v})
			}
		}
	}
	g := linked(40, edges...)
	times := make([]int64, 40)
	for v := range times {
		times[v] = int64(v)
	}
	for _, given := range []bool{false, true} {
		born := nodeTimes(t, times)
		n := &Negatives{NumSources: 40, NumTargets: 40, SourceTimes: born, TargetTimes: born, Given: given}
		g.strict(t, n, Links{}, true)
		draw := func(form string, count int) [2][]int64 {
			source, target, at := make([]int64, count), make([]int64, count), make([]int64, count)
			for j := range source {
				source[j], at[j] = int64(j%7), int64(38+j%2)
			}
			require.NoError(t, n.DrawUpTo(context.Background(), g.relation(form), Key{1, 2, 3}, at, source, target))
			for j, v := range target {
				require.True(t, v <= at[j] && v != source[j] && !slices.Contains(g.wide[g.indptr[v]:g.indptr[v+1]], source[j]),
					fmt.Sprint(j))
			}
			return [2][]int64{source, target}
		}
		want := draw("ram32", 500)
		require.Equal(t, want, draw("ram64", 500))
		require.Equal(t, want, draw("adjacency", 500))
		few := draw("adjacency", 30)
		require.Equal(t, want[0][:30], few[0])
		require.Equal(t, want[1][:30], few[1])
	}
}

// Ends of two types have times of their own, or none: all nodes of a type without can be drawn at any time, and the
// same number at both ends is a pair as any other.
func TestNegativesUpToATimeBetweenTypes(t *testing.T) {
	const sources, targets, draws = 5, 9, 3000
	ofSource, ofTarget := []int64{3, 0, 9, 1, 4}, []int64{5, 0, 2, 8, 1, 1, 9, 0, 3}
	var edges []Link
	for s := range int64(sources) {
		for v := range int64(targets) {
			if s != v && (s*5+v*3)%4 != 0 {
				edges = append(edges, Link{s, v}, Link{s, v})
			}
		}
	}
	links := Links{Sources: []int64{4, 1}, Targets: []int64{7, 7}}
	from, to := []float64{1, 0.5, 2, 0, 3}, []float64{1, 1, 2, 1, 3, 0.25, 1, 0.5, 2}
	for timed := 1; timed < 4; timed++ { // of sources, of targets, of both
		for _, given := range []int64{-1, 1} {
			n := &Negatives{NumSources: sources, NumTargets: targets, Given: given >= 0, Apart: true,
				Sources: sums(t, slices.Clone(from)), Targets: sums(t, slices.Clone(to))}
			if timed&1 != 0 {
				n.SourceTimes = nodeTimes(t, ofSource)
				n.Sources = sortedSums(t, n.SourceTimes, from)
			}
			if timed&2 != 0 {
				n.TargetTimes = nodeTimes(t, ofTarget)
				n.Targets = sortedSums(t, n.TargetTimes, to)
			}
			g := linked(targets, edges...)
			for _, strict := range []bool{false, true} {
				if strict {
					g.strict(t, n, links, false)
				}
				graph := g.relation("ram32")
				for _, at := range []int64{1, 4, 100} {
					want, all := map[Link]float64{}, 0.
					for u := range int64(sources) {
						for v := range int64(targets) {
							pair := Link{u, v}
							late := timed&1 != 0 && given < 0 && ofSource[u] > at || timed&2 != 0 && ofTarget[v] > at
							taken := slices.Contains(edges, pair) || pair == Link{4, 7} || pair == Link{1, 7}
							p := to[v]
							if given < 0 {
								p *= from[u]
							}
							if late || strict && taken || given >= 0 && u != given || p == 0 {
								continue
							}
							want[pair] = p
							all += p
						}
					}
					for _, left := range []bool{false, true} { // the drawn part, and the rest of the lists
						source, target := slices.Repeat([]int64{given}, draws), make([]int64, draws)
						switch {
						case left && !strict:
							continue
						case left:
							for j := range source {
								var err error
								source[j], target[j], err = n.drawLeft(context.Background(), graph, stream(absorb(77, uint64(j))), given, at)
								require.NoError(t, err)
							}
						default:
							require.NoError(t, n.Earliest(context.Background(), graph, at))
							require.NoError(t, n.DrawUpTo(context.Background(), graph, Key{1, 2, 3}, slices.Repeat([]int64{at}, draws),
								source, target))
						}
						counts, chi := map[Link]float64{}, 0.
						for j := range source {
							require.Contains(t, want, Link{source[j], target[j]}, "timed %d, given %d, strict %v, at %d, left %v", timed,
								given, strict, at, left)
							counts[Link{source[j], target[j]}]++
						}
						for pair, p := range want {
							expected := p / all * draws
							chi += (counts[pair] - expected) * (counts[pair] - expected) / expected
						}
						require.Less(t, chi, chiLimit(max(len(want)-1, 1)), "timed %d, given %d, strict %v, at %d, left %v", timed, given,
							strict, at, left)
					}
				}
			}
			n.Strict = nil
		}
	}
}

// What is left is looked for in pieces of all nodes up to the time: with little memory, and the same as from running
// sums over all.
func TestNegativesThatAreLeftAreLookedForInPieces(t *testing.T) {
	const nodes, given = 5*leftChunk + 100, 7
	const at = nodes - 30
	times, weights := make([]int64, nodes), make([]float64, nodes)
	for v := range times {
		times[v] = int64(nodes - 1 - v)
	}
	for i, place := range []int{0, 1, leftChunk - 1, leftChunk, 3*leftChunk - 1, 3 * leftChunk, 4*leftChunk + 5,
		nodes - 30, nodes - 1} {
		weights[nodes-1-place] = float64(i + 1)
	}
	born := nodeTimes(t, times)
	g := linked(nodes, Link{given, nodes - 2})
	n := &Negatives{NumSources: nodes, NumTargets: nodes, SourceTimes: born, TargetTimes: born,
		Targets: sortedSums(t, born, weights), Given: true}
	g.strict(t, n, Links{Sources: []int64{given}, Targets: []int64{nodes - 1 - leftChunk}}, false)
	graph := g.relation("ram32")
	var targets []int64 // that are left, and their running sums
	var sums []float64
	total := 0.
	for place := range int64(at + 1) {
		if v := nodes - 1 - place; weights[v] > 0 && v != nodes-2 && v != nodes-1-leftChunk {
			total += weights[v]
			targets, sums = append(targets, v), append(sums, total)
		}
	}
	drawn := map[int64]bool{}
	for j := range uint64(60) {
		x, _ := stream(absorb(3, j)).next()
		want := targets[slices.IndexFunc(sums, func(sum float64) bool { return sum > unit(x)*total })]
		_, got, err := n.drawLeft(context.Background(), graph, stream(absorb(3, j)), given, at)
		require.NoError(t, err)
		require.Equal(t, want, got, j)
		drawn[got] = true
	}
	require.Len(t, drawn, len(targets))
	n.Given = false
	var stats [2]runtime.MemStats
	runtime.ReadMemStats(&stats[0])
	_, _, err := n.drawLeft(context.Background(), graph, stream(1), -1, at)
	require.NoError(t, err)
	runtime.ReadMemStats(&stats[1])
	require.Less(t, stats[1].TotalAlloc-stats[0].TotalAlloc, uint64(16*nodes/2))
}
