package store

import (
	"context"
	"math"
)

const (
	// radixBits is the width of a digit: 2048 counters of 8 bytes stay in the first-level cache.
	radixBits = 11
	// cancelRows is the number of nodes between two checks of the context: a few milliseconds.
	cancelRows = 1 << 20
)

// sortHot writes all nodes to order by falling score, ties by ascending id, and those without a score behind them by
// id. It returns how many have one. order and scratch have a place for each node. It is a radix sort: at most three
// passes over the nodes.
func sortHot(ctx context.Context, scores []float32, order, scratch []uint32) (scored int, err error) {
	for _, s := range scores {
		if s > 0 {
			scored++
		}
	}
	hot, cold := 0, scored
	for id, s := range scores {
		if s > 0 {
			order[hot] = uint32(id)
			hot++
		} else {
			order[cold] = uint32(id)
			cold++
		}
	}
	from, to := order[:scored], scratch[:scored]
	for shift := 0; shift < 32; shift += radixBits {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if sorted, err := radixPass(ctx, scores, from, to, shift); err != nil {
			return 0, err
		} else if sorted {
			continue
		}
		from, to = to, from
	}
	if scored > 0 && &from[0] != &order[0] {
		copy(order, from)
	}
	return scored, nil
}

// radixPass sorts by one digit of the scores, stably and falling. It returns true and moves nothing where all have the
// same digit.
func radixPass(ctx context.Context, scores []float32, from, to []uint32, shift int) (sorted bool, err error) {
	const digits = 1 << radixBits
	// Bits of floats that are not negative order as the floats do; their complement falls.
	digit := func(id uint32) uint32 { return ^math.Float32bits(scores[id]) >> shift % digits }
	var ends [digits + 1]int
	for i, id := range from {
		if i%cancelRows == 0 && ctx.Err() != nil {
			return false, ctx.Err()
		}
		ends[digit(id)+1]++
	}
	for d := range digits {
		if ends[d+1] == len(from) {
			return true, nil
		}
	}
	for d := range digits {
		ends[d+1] += ends[d]
	}
	for i, id := range from {
		if i%cancelRows == 0 && ctx.Err() != nil {
			return false, ctx.Err()
		}
		d := digit(id)
		to[ends[d]] = id
		ends[d]++
	}
	return false, nil
}

const (
	// classBits is the number of powers of two of the score in a class: rows of a class differ by less than a factor of
	// 16. Classes of 4 to 16 left the fewest pages on every graph measured; finer ones tear neighbours apart, and
	// without classes used rows mix with unused ones.
	classBits = 4
	// noScore is the class behind all others.
	noScore = 256 / classBits
)

// classOf returns the class of a score, the hottest first.
func classOf(score float32) int {
	if !(score > 0) {
		return noScore
	}
	return noScore - 1 - int(math.Float32bits(score)>>23)/classBits
}

// blend writes to order the hotRows hottest nodes that have a score, by score, and behind them the others by class,
// each class in the order of together. All slices have a place for each node.
func blend(ctx context.Context, scores []float32, hotRows int64, together, order, scratch []uint32) error {
	scored, err := sortHot(ctx, scores, order, scratch)
	if err != nil {
		return err
	}
	hot := int(min(hotRows, int64(scored)))
	isHot := scratch[:(len(scratch)+31)/32] // a bit for each node
	clear(isHot)
	for _, id := range order[:hot] {
		isHot[id/32] |= 1 << (id % 32)
	}
	var ends [noScore + 2]int
	ends[0] = hot
	for i, id := range together {
		if i%cancelRows == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if isHot[id/32]>>(id%32)&1 == 0 {
			ends[classOf(scores[id])+1]++
		}
	}
	for c := range noScore + 1 {
		ends[c+1] += ends[c]
	}
	for i, id := range together {
		if i%cancelRows == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if isHot[id/32]>>(id%32)&1 == 0 {
			c := classOf(scores[id])
			order[ends[c]] = id
			ends[c]++
		}
	}
	return nil
}
