package sample

import (
	"context"
	"fmt"
	"math"
)

// Links lists pairs of nodes: link i leads from Sources[i] to Targets[i].
type Links struct{ Sources, Targets []int64 }

// Negatives draws pairs of nodes as negative examples for links (PyG's NegativeSampling). Negative j of a batch is a
// function of the batch's Key and of j: its random numbers are from the stream
//
//	absorb(absorb(absorb(absorb(absorb(0, domainNegative), seed), epoch), batch), j)
//
// The first number decides its source, unless the source is given, and the next its target. Negatives is immutable.
type Negatives struct {
	NumSources, NumTargets int64 // nodes that can be an end
	// Sources and Targets are running sums of node weights, by RunningSums: ends are drawn in proportion to the weights.
	// nil: uniformly.
	Sources, Targets []float64
	Given            bool    // the sources of negatives are given
	Strict           *Strict // nil: any pair is allowed
	Apart            bool    // the ends are of different types: equal numbers are different nodes
	// SourceTimes and TargetTimes are the times of possible ends, for DrawUpTo, which also order the running sums. They
	// are equal if the ends are of one type. nil: nodes exist at all times.
	SourceTimes, TargetTimes *NodeTimes
}

// RunningSums replaces weights by their running sums and returns them. Weights must be finite, not negative and not all
// 0; the error names the first that is invalid.
func RunningSums(weights []float64) error {
	total := 0.
	for i, w := range weights {
		if !(w >= 0) || math.IsInf(w, 1) {
			return fmt.Errorf("sample: weight %d is %v, expected a finite number of at least 0: %w",
				i, w, ErrConfig)
		}
		total += w
		weights[i] = total
	}
	if !(total > 0) || math.IsInf(total, 1) {
		return fmt.Errorf("sample: %d weights add up to %v, expected a finite sum above 0: %w",
			len(weights), total, ErrConfig)
	}
	return nil
}

// batchKey returns the state of the streams of a batch before the number of a negative is absorbed.
func (n *Negatives) batchKey(k Key) uint64 {
	h := absorb(absorb(0, domainNegative), k.Seed)
	return absorb(absorb(h, k.Epoch), k.Batch)
}

// Draw sets source[j], unless sources are given, and target[j] to the ends of negative j of the batch of key. Strict
// negatives are looked up in the sampler's graph.
//
// It returns the error of ctx, and for strict negatives errors of Adjacency.Fetch.
func (n *Negatives) Draw(ctx context.Context, edges *Relation, key Key, source, target []int64) error {
	if n.Strict != nil {
		return n.drawStrict(ctx, edges, key, source, target)
	}
	base := n.batchKey(key)
	for j := range target {
		if j%checkEdges == 0 {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("sample: drawing negatives: %w", err)
			}
		}
		n.propose(stream(absorb(base, uint64(j))), &source[j], &target[j])
	}
	return nil
}

// propose draws a pair without checks.
func (n *Negatives) propose(s stream, source, target *int64) stream {
	if !n.Given {
		*source, s = node(s, n.Sources, n.NumSources)
	}
	*target, s = node(s, n.Targets, n.NumTargets)
	return s
}

// node draws one of the first count nodes in proportion to weights.
func node(s stream, sums []float64, count int64) (int64, stream) {
	if sums == nil {
		v, s := s.below(uint64(count))
		return int64(v), s
	}
	x, s := s.next()
	return findSum(sums, 0, count, unit(x)*sums[count-1]), s
}

// unit returns a uniform number in [0, 1).
func unit(x uint64) float64 { return float64(x>>11) * 0x1p-53 }

// before returns the sum of the weights of the nodes below v.
func before(sums []float64, v int64) float64 {
	switch {
	case sums == nil:
		return float64(v)
	case v == 0:
		return 0
	}
	return sums[v-1]
}

// findSum returns the first node of [lo, hi) whose running sum from lo on exceeds u, never a node of weight 0. If
// rounding has moved u to the total, it returns the last node of positive weight. The range has such a node.
func findSum(sums []float64, lo, hi int64, u float64) int64 {
	base := before(sums, lo)
	if last := before(sums, hi) - base; u >= last {
		u = math.Nextafter(last, 0)
	}
	for end := hi; lo < end; {
		mid := lo + (end-lo)/2
		if before(sums, mid+1)-base > u {
			end = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}
