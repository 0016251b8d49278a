package batch

import (
	"encoding/json"
	"math"
	"strings"

	"freshgo/core/draw"
	"freshgo/core/manifest"
	"freshgo/core/mem"
)

// The tensors of a packed batch: PackName, uint8, has all others except those that are apart, and LayoutName, uint8,
// says in JSON where. It lists [name, stored dtype, dtype, first byte, shape] of each, dtypes by the names of NumPy.
const (
	PackName    = "fg/packed"
	LayoutName  = "fg/layout"
	PackTensors = 2 // that a packed batch has beside those that are apart
)

// packAlign is the alignment of tensors in a pack, as of a buffer.
const packAlign = 64

// pack is one buffer for the tensors of a batch, which then crosses to a device in one copy.
//
// int64 tensors are written as such, and narrowed in place by Pack. Tensors that narrow as they are written would need
// a second copy of the ids and edge numbers, from which rows are read.
type pack struct {
	buffer mem.Buffer // nil: the batch is not packed
	used   int64
	parts  []packPart
}

type packPart struct {
	name  string
	dtype manifest.DType
	shape []int64
	data  []byte
}

func (p *pack) on() bool { return p.buffer != nil }

func (p *pack) release() {
	if p.buffer != nil {
		p.buffer.Release()
	}
	*p = pack{}
}

// add returns memory for a tensor; nil if the batch is not packed, or there is no room.
func (p *pack) add(name string, dtype manifest.DType, shape []int64) []byte {
	if p.buffer == nil {
		return nil
	}
	n := bytesOf(dtype, shape)
	all := p.buffer.Bytes()
	if p.used+n > int64(len(all)) {
		return nil
	}
	data := all[p.used : p.used+n : p.used+n]
	p.used = aligned(p.used + n)
	p.parts = append(p.parts, packPart{name, dtype, shape, data})
	return data
}

func aligned(n int64) int64 { return (n + packAlign - 1) / packAlign * packAlign }

// Packs reports whether the rows of a tensor are in the pack: rows of integers that narrow. Other rows stay apart,
// because a tensor of the device that is a view of the pack keeps all of it alive.
func Packs(t *draw.Tensor) bool { return t.DType == manifest.DType_INT64 && t.Trained == nil }

// packGaps bounds the bytes between the tensors of a pack: a type has up to 6 and a relation up to 8, and at most as
// many again for each level of a pruned batch.
func packGaps(p *draw.Parts) int64 {
	return packAlign * int64((p.Schema.Hops+1)*(6*p.Schema.NumTypes()+8*len(p.Schema.Edges))+len(p.Tensors)+8)
}

// packBytes returns the size of the tensors of a batch that are packed, before they are narrowed.
func packBytes(c *draw.TypeOffsets, p *draw.Parts, seeds int64) int64 {
	total := TensorBytes(c, p, seeds)
	for i := range p.Tensors {
		if t := &p.Tensors[i]; !Packs(t) {
			total -= rowBytes(c, p, t)
		}
	}
	return total
}

// beginPack makes room for the tensors that are added from now on.
func (b *Batch) beginPack(n int64) (err error) {
	b.pack.buffer, err = b.alloc.Acquire(n)
	return err
}

// Pack moves the tensors of a packed batch together, int64 as the narrowest integers that hold their values, and
// replaces them by PackName and LayoutName. It reads and writes each byte once, in the thread of the loader that made
// the batch.
func (b *Batch) Pack() error {
	p := &b.pack
	if !p.on() {
		return nil
	}
	all, end := p.buffer.Bytes(), int64(0)
	layout := make([][5]any, len(p.parts))
	for i := range p.parts {
		part := &p.parts[i]
		dtype := part.dtype
		if dtype == manifest.DType_INT64 {
			dtype = narrowest(int64s(part.data))
		}
		to := all[end : end+bytesOf(dtype, part.shape)]
		moveNarrow(to, part.data, dtype, part.dtype)
		layout[i] = [5]any{part.name, nameOf(dtype), nameOf(part.dtype), end, part.shape}
		end = aligned(end + int64(len(to)))
	}
	described, err := json.Marshal(layout)
	if err != nil {
		return err
	}
	end = min(end, int64(len(all)))
	b.Arrays = append(b.Arrays, Array{Name: PackName, DType: manifest.DType_UINT8, Shape: []int64{end}, Buffer: p.buffer})
	*p = pack{}
	data, err := b.AddApart(LayoutName, manifest.DType_UINT8, []int64{int64(len(described))})
	copy(data, described)
	return err
}

func nameOf(dtype manifest.DType) string { return strings.ToLower(dtype.String()) }

// narrowest returns the narrowest signed type that holds the values.
func narrowest(values []int64) manifest.DType {
	bits := int64(0) // set where a value differs from its sign
	for _, v := range values {
		bits |= v ^ v>>63
	}
	switch {
	case bits <= math.MaxInt8:
		return manifest.DType_INT8
	case bits <= math.MaxInt16:
		return manifest.DType_INT16
	case bits <= math.MaxInt32:
		return manifest.DType_INT32
	}
	return manifest.DType_INT64
}

// moveNarrow copies a tensor to memory that may overlap it and begins no later, so ascending writes stay behind reads.
func moveNarrow(to, from []byte, dtype, was manifest.DType) {
	switch {
	case dtype == was:
		copy(to, from)
	case dtype == manifest.DType_INT8:
		narrowInto(mem.View[int8](to), int64s(from))
	case dtype == manifest.DType_INT16:
		narrowInto(mem.View[int16](to), int64s(from))
	default:
		narrowInto(mem.View[int32](to), int64s(from))
	}
}

func narrowInto[T int8 | int16 | int32](to []T, from []int64) {
	for i, v := range from {
		to[i] = T(v)
	}
}
