package sample

import (
	"context"
	"fmt"

	"freshgo/core/internal/asm"
)

// Shuffle permutes ids in place, uniformly (Fisher and Yates), as a function of seed, epoch and len(ids) alone. It
// takes its numbers from the stream absorb(absorb(absorb(0, domainShuffle), seed), epoch), one for each exchange from
// the last element down to the second. The only error is the error of ctx; ids is then still a permutation.
//
// It costs one cache miss per element, prefetched.
func Shuffle(ctx context.Context, ids []int64, seed, epoch uint64) error {
	s := stream(absorb(absorb(absorb(0, domainShuffle), seed), epoch))
	var with [ahead]int64
	for end := len(ids); end > 1; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("sample: shuffling: %w", err)
		}
		n := min(ahead, end-1)
		for i := range n {
			var j uint64
			j, s = s.below(uint64(end - i))
			with[i] = int64(j)
		}
		asm.Prefetch(ids, with[:n])
		for i, j := range with[:n] {
			last := end - 1 - i
			ids[last], ids[j] = ids[j], ids[last]
		}
		end -= n
	}
	return nil
}

// DrawInputs sets each input to a position in sums, the RunningSums of weights, drawn with replacement and in
// proportion to the weights, as a function of seed, epoch and the number of the draw. The only error is the error of
// ctx; the inputs are then undefined.
func DrawInputs(ctx context.Context, inputs []int64, sums []float64, seed, epoch uint64) error {
	base := absorb(absorb(absorb(0, domainInputs), seed), epoch)
	for i := range inputs {
		if i%checkEdges == 0 {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("sample: drawing inputs: %w", err)
			}
		}
		inputs[i], _ = node(stream(absorb(base, uint64(i))), sums, int64(len(sums)))
	}
	return nil
}
