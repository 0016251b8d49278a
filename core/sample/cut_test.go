package sample

import (
	"context"
)

// cutBatch is a batch cut by node type and relation.
type cutBatch struct {
	Nodes       [][]int64 // ids within the type
	NodesPerHop [][]int64
	Trees       [][]uint32
	Relations   []cutEdges
}

type cutEdges struct {
	Ptr         []int64
	Row         []uint32
	Pos         []int64
	Weight      []float32
	EdgesPerHop []int64
}

// cut cuts a batch by its counts alone.
func (s *Sampler) cut(sub Subgraph) (out cutBatch) {
	hops, reached, all := s.hops, make([]int64, s.numTypes()), make([]int64, s.numTypes())
	for t := range reached {
		counts := sub.NodesPerHop[t*(hops+1) : (t+1)*(hops+1)]
		for hop, k := range counts {
			all[t] += k
			if hop < hops {
				reached[t] += k
			}
		}
		var nodes []int64
		for _, v := range sub.Nodes[:all[t]] {
			nodes = append(nodes, v-s.first[t])
		}
		out.Nodes, out.NodesPerHop = append(out.Nodes, nodes), append(out.NodesPerHop, counts)
		if sub.Nodes = sub.Nodes[all[t]:]; sub.Tree != nil {
			out.Trees, sub.Tree = append(out.Trees, sub.Tree[:all[t]]), sub.Tree[all[t]:]
		}
	}
	for i, r := range s.relations {
		targets := reached[r.Target]
		if s.subgraph != Directional {
			targets = all[r.Target]
		}
		e := cutEdges{Ptr: sub.Ptr[:targets+1], EdgesPerHop: sub.EdgesPerHop[i*hops : (i+1)*hops]}
		total := e.Ptr[targets]
		e.Row = sub.Row[:total]
		sub.Ptr, sub.Row = sub.Ptr[targets+1:], sub.Row[total:]
		if sub.Pos != nil {
			e.Pos, sub.Pos = sub.Pos[:total], sub.Pos[total:]
		}
		if sub.Weight != nil {
			e.Weight, sub.Weight = sub.Weight[:total], sub.Weight[total:]
		}
		out.Relations = append(out.Relations, e)
	}
	return out
}

// cutWorker draws for seeds by type and cuts its batches.
type cutWorker struct{ *Worker }

func (w cutWorker) Sample(ctx context.Context, key Key, seeds [][]int64, out *cutBatch) error {
	return w.SampleTimed(ctx, key, seeds, nil, out)
}

// SampleTimed is Sample with the times of the trees, in their order: of each seed, type after type.
func (w cutWorker) SampleTimed(ctx context.Context, key Key, seeds [][]int64, times []int64, out *cutBatch) error {
	var sub Subgraph
	err := w.Draw(ctx, key, Request{Seeds: w.sampler.flat(seeds), Times: times}, &sub)
	if err == nil {
		*out = w.sampler.cut(sub)
	}
	return err
}

// flat are seeds by the numbers of all nodes.
func (s *Sampler) flat(seeds [][]int64) (all []int64) {
	for t, of := range seeds {
		for _, v := range of {
			all = append(all, s.first[t]+v)
		}
	}
	return all
}
