// Package batch makes the tensors of a batch from a sampled subgraph.
//
// A Drawn is a batch in preparation: its inputs, its subgraph, the result of pruning, and the rows that it needs.
// CopyOut converts it to the arrays of a Batch, without the rows of the graph's tensors, which the loader adds:
//
//   - tensors.go: nodes and relations (n_id, edge_index, ptr, e_id, counts by hop), tensors of the inputs, and the size
//     of all of them, known in advance
//   - history_tensors.go: the levels of a pruned batch
//   - transpose.go: edges grouped by source
//   - pack.go: batches on their way to a device, in one buffer and in few bytes
package batch

import (
	"freshgo/core/manifest"
	"freshgo/core/mem"
)

// Array is one tensor of a batch: row-major, dense, in memory that the
// allocator given to Open handed out. Whoever holds the batch owns the buffer.
type Array struct {
	Name   string
	DType  manifest.DType
	Shape  []int64
	Buffer mem.Buffer
}

// Batch is one sampled mini-batch with its rows.
//
// Arrays holds n_id int64[nodes], edge_index int64[2, edges],
// e_id int64[edges] (the user's edge numbers), ptr int64[targets+1] (edges of
// local target t are edge_index[:, ptr[t]:ptr[t+1]]), input_id int64[seeds]
// (positions in the seed list), num_sampled_nodes int64[hops+1],
// num_sampled_edges int64[hops], and every node tensor by n_id and every
// edge tensor by e_id; with Options.Held also PlaceName, and node tensors hold the
// rows that the consumer does not. Samplers that weigh edges bring edge_weight
// float32[edges], see sample.CanEdgeWeight; walks have neither e_id nor edge tensors. With
// Options.Subgraph other than Directional all nodes are targets, and edges are not
// counted by hop. A trace holds n_id and input_id only. A heterogeneous graph has
// these for each node type and relation, see Drawn.CopyOut.
type Batch struct {
	Index    int64 // position in the epoch, counted from 0
	NumSeeds int64
	Arrays   []Array
	Reserved int64 // bytes that the gate counted for it
	alloc    mem.Allocator
	pack     pack
}

// NewBatch returns a batch without tensors, which are to be in an allocator's memory.
func NewBatch(index int64, alloc mem.Allocator) *Batch { return &Batch{Index: index, alloc: alloc} }

// Release hands every buffer back; for batches nobody will take.
func (b *Batch) Release() {
	for i := range b.Arrays {
		b.Arrays[i].Buffer.Release()
	}
	b.Arrays = nil
	b.pack.release()
}

// Array returns the array of that name, or nil.
func (b *Batch) Array(name string) *Array {
	for i := range b.Arrays {
		if b.Arrays[i].Name == name {
			return &b.Arrays[i]
		}
	}
	return nil
}

// int64s views the memory of an int64 array.
func int64s(p []byte) []int64 { return mem.View[int64](p) }

// add appends an int64 tensor to the batch and returns its elements.
func (b *Batch) add(name string, shape ...int64) ([]int64, error) {
	data, err := b.AddTensor(name, manifest.DType_INT64, shape)
	if err != nil {
		return nil, err
	}
	return int64s(data), nil
}

// AddTensor appends a tensor to the batch and returns its memory.
func (b *Batch) AddTensor(name string, dtype manifest.DType, shape []int64) ([]byte, error) {
	if data := b.pack.add(name, dtype, shape); data != nil {
		return data, nil
	}
	return b.AddApart(name, dtype, shape)
}

// AddApart appends a tensor to the batch in a buffer of its own, also if the batch is packed.
func (b *Batch) AddApart(name string, dtype manifest.DType, shape []int64) ([]byte, error) {
	buffer, err := b.Acquire(bytesOf(dtype, shape))
	if err != nil {
		return nil, err
	}
	b.Arrays = append(b.Arrays, Array{Name: name, DType: dtype, Shape: shape, Buffer: buffer})
	return buffer.Bytes(), nil
}

// Acquire returns memory that is no tensor of the batch, from the same allocator. The caller releases it.
func (b *Batch) Acquire(n int64) (mem.Buffer, error) { return b.alloc.Acquire(n) }

func bytesOf(dtype manifest.DType, shape []int64) int64 {
	n := int64(dtype.Size())
	for _, d := range shape {
		n *= d
	}
	return n
}

// addCounts appends a copy of counts to the batch.
func (b *Batch) addCounts(name string, counts []int64) error {
	to, err := b.add(name, int64(len(counts)))
	copy(to, counts)
	return err
}

// addNarrow appends a list as an int64 tensor.
func (b *Batch) addNarrow(name string, values []int32) error {
	data, err := b.add(name, int64(len(values)))
	if err != nil {
		return err
	}
	for i, v := range values {
		data[i] = int64(v)
	}
	return nil
}
