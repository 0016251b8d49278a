package batch

import (
	"math"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

// TransposedNames are the tensors that Options.Transpose adds to a batch: int64[nodes+1], int32[edges] and
// int32[edges], see sample.Subgraph.Transpose. A batch of 2^31 edges or more has none.
var TransposedNames = [3]string{"source_ptr", "source_target", "source_edge"}

// transposedBytes returns the size of the transposed tensors.
func transposedBytes(nodes, edges int64) int64 { return (nodes+1)*8 + edges*8 }

// transposeGraph adds a graph grouped by source, if requested, under names between a prefix and a suffix. It runs in
// the thread of the loader that copies out the batch, so that backward passes find it ready.
func (d *Drawn) transposeGraph(b *Batch, g *sample.Subgraph, prefix, suffix string) error {
	if edges := int64(len(g.Row)); !d.Parts.Transposed || edges > math.MaxInt32 {
		return nil
	}
	ptr, err := b.add(prefix+TransposedNames[0]+suffix, int64(len(g.Nodes))+1)
	if err != nil {
		return err
	}
	var lists [2][]int32
	for i, name := range TransposedNames[1:] {
		data, err := b.AddTensor(prefix+name+suffix, manifest.DType_INT32, []int64{int64(len(g.Row))})
		if err != nil {
			return err
		}
		lists[i] = mem.View[int32](data)
	}
	g.Transpose(ptr, lists[0], lists[1])
	return nil
}
