package sizing

import (
	"math"

	"freshgo/core/plan"
)

// What the batches of a window take.

// heldSuperbatches is the number of superbatches in memory: executed, planned, and sampled ahead.
const heldSuperbatches = 3

// windowMargin is the margin for the rows of all batches of a window, as a divisor. Arbitrary: batches differ by a few
// per cent, and the largest that was measured is taken for all.
const windowMargin = 32

// window returns the number of batches that are planned at a time.
func (s *Split) window(z *division) int64 {
	if s.Stored {
		return s.Superbatch
	}
	return max(1, min(s.Superbatch, s.SuperbatchRoom()/PlannedBytes(max(1, z.costs.Nodes))))
}

// windowRows returns the room for the rows of a window: the margin of a batch, and a small one for each of the others,
// since their sum hardly differs from the measured batches.
func (c *Costs) windowRows(batches int64) int64 {
	return c.Nodes + int64(float64(batches)*inWindow(max(1, c.Nodes)))
}

// inWindow is a count of a batch with the margin of a window.
func inWindow(n int64) float64 { return expected(n) * (1 + 1./windowMargin) }

// InWindow returns the rows that a batch of a window has room for, by the rows of a batch by itself.
func InWindow(rows int64) int64 { return max(1, int64(math.Ceil(inWindow(rows)))) }

// recordBytes returns the room in the scratch file for a batch of a window, for its trace and its plan: one window is
// executed, one planned, and one sampled ahead. A plan has four words per row.
func (c *Costs) recordBytes() int64 {
	return int64(heldSuperbatches*c.traceRecord() + (heldSuperbatches-1)*16*inWindow(c.Nodes))
}

// traceRecord returns the room in the scratch file for the trace of a batch: a word per row and at most two per edge.
func (c *Costs) traceRecord() float64 { return 4*inWindow(c.Nodes) + 8*inWindow(c.Edges) }

// records returns the room in the scratch file for windows of n batches, and for batches of the window after that share
// reads of lists with them: up to a group.
func (s *Split) records(z *division, n int64) int64 {
	group := 0.0
	if s.Together > 0 {
		group = min(z.costs.groupSize(s, z.all.missed(s.NeighborLists, z.graph.lists())), float64(z.ask.EpochBatches))
	}
	return n*z.costs.recordBytes() + int64(group*z.costs.traceRecord())
}

// PlannedBytes returns the memory of plans for a batch of this many rows: a third of the memory of three superbatches,
// one executed, one planned and one ahead. A row has its id until it is planned, the planner's tables for the last two,
// and its part of the plan being executed.
func PlannedBytes(rows int64) int64 { return superbatchesBytes(rows) / heldSuperbatches }

// superbatchesBytes returns the memory of plans for three superbatches of this many rows, without words of rows.
func superbatchesBytes(rows int64) int64 {
	const ids, executed = 4, 20
	return plan.SuperbatchBytes(2*rows) - plan.SuperbatchBytes(0) + (2*ids+executed)*rows
}

// SuperbatchRoom returns the memory of plans for the batches of one superbatch, see PlannedBytes.
func (s *Split) SuperbatchRoom() int64 {
	return PlannedBytes(s.superbatchRows())
}

// superbatchRows returns the most rows of a superbatch whose plans fit in Traces, with words for the rows of the graph
// or for those of the superbatch and of the one ahead, if these are few.
func (s *Split) superbatchRows() int64 {
	return s.rowsIn(max(0, s.Traces-s.TracesHeld-plan.SuperbatchBytes(0)), superbatchesBytes(1), 1)
}

// rowsIn returns the most rows of a superbatch that fit in room, where each takes some bytes, and words count a number
// of times.
func (s *Split) rowsIn(room, each, times int64) int64 {
	word, all := times*plan.KnownBytes(math.MaxInt64, 1, 0), times*plan.KnownBytes(s.PlanRows, s.PlanRows, 0)
	return max((room-all)/each, min(room/(each+2*word), plan.FewKnown(s.PlanRows)/2))
}

// accesses returns the rows of a window and of the one ahead that Traces have words for.
func (s *Split) accesses(z *division) int64 {
	if s.Stored {
		return 2 * z.costs.windowRows(s.Superbatch)
	}
	return 2 * s.superbatchRows()
}

// WindowRoom returns the room for the batches of a superbatch, and the room that a batch of a number of rows takes: the
// memory of plans, or rows of a window where plans are stored.
func (s *Split) WindowRoom() (room int64, each func(rows int64) int64) {
	if s.Stored {
		room, each = plan.MaxAccesses/2, func(rows int64) int64 { return rows }
		if s.WindowRows > 0 {
			room = min(room, s.WindowRows)
		}
		return room, each
	}
	return s.SuperbatchRoom(), PlannedBytes
}

// traceBytes returns the memory of superbatches of n batches: the planned one, and those sampled and executed
// meanwhile.
func (z *division) traceBytes(n int64) int64 {
	n = min(n, 1<<32) // far above any memory, far from overflow
	rows := n * max(1, z.costs.Nodes)
	plans := plan.SuperbatchBytes(0) + superbatchesBytes(rows)
	return plans + plans/(z.ask.tracesShare()-1) + plan.KnownBytes(z.graph.planRows(), 2*rows, 0)
}

// tracesHeld returns the part of Traces for traces in memory: a share of what is beside the words of rows.
func (r *Request) tracesHeld(s *Split) int64 {
	share := r.tracesShare()
	rows := s.rowsIn(s.Traces*(share-1), share*superbatchesBytes(1), share-1)
	return (s.Traces - plan.KnownBytes(s.PlanRows, 2*rows, 0)) / share
}

// tracesShare is the share, as a divisor, of the memory for traces and plans that traces have: less where they can go
// to the scratch file, which costs a twentieth of what a batch reads.
func (r *Request) tracesShare() int64 {
	if r.Scratch != 0 {
		return 4
	}
	return 2
}

// wantedShare is the part of the memory for shared reads, in quarters, that the requests of batches take: the rest is
// for the neighbours that are read at once, in some 30 passes over the requests of a group, a nanosecond for each. With
// an eighth for the rest, groups are a sixth larger and there are 70 passes.
const wantedShare = 3

// WantedRoom returns the memory for the requests of batches that share reads of neighbour lists.
func (s *Split) WantedRoom() int64 { return s.Together / 4 * wantedShare }

// togetherBytes returns the memory for shared reads of n batches, which request a share of their neighbours.
func (c *Costs) togetherBytes(n int64, missed float64) int64 {
	return int64(math.Ceil(float64(n)*missed*inWindow(c.Wanted)/wantedShare))*4 + 4
}
