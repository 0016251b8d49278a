package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"freshgo/core/draw"
	"freshgo/core/manifest"
	"freshgo/core/narrow"
	"freshgo/core/store"
	"freshgo/csrc"
)

// dtypes maps element types to what DLPack calls them.
var dtypes = map[manifest.DType]csrc.DType{
	manifest.DType_BOOL:     {Code: C.kDLBool, Bits: 8},
	manifest.DType_INT8:     {Code: C.kDLInt, Bits: 8},
	manifest.DType_INT16:    {Code: C.kDLInt, Bits: 16},
	manifest.DType_INT32:    {Code: C.kDLInt, Bits: 32},
	manifest.DType_INT64:    {Code: C.kDLInt, Bits: 64},
	manifest.DType_UINT8:    {Code: C.kDLUInt, Bits: 8},
	manifest.DType_UINT16:   {Code: C.kDLUInt, Bits: 16},
	manifest.DType_UINT32:   {Code: C.kDLUInt, Bits: 32},
	manifest.DType_UINT64:   {Code: C.kDLUInt, Bits: 64},
	manifest.DType_FLOAT16:  {Code: C.kDLFloat, Bits: 16},
	manifest.DType_BFLOAT16: {Code: C.kDLBfloat, Bits: 16},
	manifest.DType_FLOAT32:  {Code: C.kDLFloat, Bits: 32},
	manifest.DType_FLOAT64:  {Code: C.kDLFloat, Bits: 64},
}

// maxDims is more than any tensor of a store has; it bounds what is read from a caller's pointer.
const maxDims = 64

// sized copies an options struct of a caller's, whose first member says how long its version of the struct is. What a
// shorter one lacks is zero. Any struct has at least 8 bytes.
func sized[T any](p *T, name string) (T, error) {
	var out T
	if p == nil {
		return out, invalid("%s is NULL", name)
	}
	size := uintptr(*(*uint32)(unsafe.Pointer(p))) // struct_size, the first member of every options struct
	if size < 8 || size > unsafe.Sizeof(out) {
		return out, invalid("%s.struct_size is %d, expected 8 to %d", name, size, unsafe.Sizeof(out))
	}
	// Both have at least size bytes.
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&out)), size), unsafe.Slice((*byte)(unsafe.Pointer(p)), size))
	return out, nil
}

// source describes a caller's array to package store. The description is copied, the elements are not.
func source(a *C.fg_array, name string) (store.Source, error) {
	s := store.Source{Mem: a.data, Offset: int64(a.offset), Pipe: int(a.pipe)}
	for dtype, d := range dtypes {
		if d == (csrc.DType{Code: uint8(a.dtype.code), Bits: uint8(a.dtype.bits)}) && a.dtype.lanes == 1 {
			s.DType = dtype
		}
	}
	if s.DType == manifest.DType_UNSPECIFIED {
		return s, fmt.Errorf("%w: %s has the DLPack type (%d, %d, %d), expected numbers or bool",
			errDType, name, a.dtype.code, a.dtype.bits, a.dtype.lanes)
	}
	if a.ndim < 1 || a.ndim > maxDims || a.shape == nil {
		return s, invalid("%s has %d dimensions, expected 1 to %d with a shape", name, a.ndim, maxDims)
	}
	s.Shape = slices.Clone(unsafe.Slice((*int64)(a.shape), a.ndim)) // as long as the caller says
	if a.strides != nil {
		s.Strides = slices.Clone(unsafe.Slice((*int64)(a.strides), a.ndim)) // as long as the caller says
	}
	if a.path != nil {
		s.File, s.Mem = C.GoString(a.path), nil
	}
	if a.stored != nil {
		var known bool
		if s.Narrow, known = narrow.Parse(C.GoString(a.stored)); !known {
			return s, invalid("%s is to be stored as %q, expected one of %q", name, C.GoString(a.stored), narrow.Labels())
		}
	}
	return s, nil
}

// sources describes a list of named arrays.
func sources(list *C.fg_array, n C.int32_t, what string) ([]store.NamedSource, error) {
	if n < 0 || (n > 0 && list == nil) {
		return nil, invalid("%s: %d arrays at %p", what, n, list)
	}
	arrays := unsafe.Slice(list, n) // as long as the caller says
	out := make([]store.NamedSource, n)
	for i := range arrays {
		if arrays[i].name == nil {
			return nil, invalid("%s[%d] has no name", what, i)
		}
		out[i].Name = C.GoString(arrays[i].name)
		var err error
		if out[i].Source, err = source(&arrays[i], fmt.Sprintf("%s %q", what, out[i].Name)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// graphTensors describes tensors that a graph uses in place, which needs dense rows in memory.
func graphTensors(list *C.fg_array, n C.int32_t, what string) ([]draw.GraphTensor, error) {
	named, err := sources(list, n, what)
	if err != nil {
		return nil, err
	}
	out := make([]draw.GraphTensor, n)
	for i, s := range named {
		rows, err := denseBytes(s.Source)
		if err == nil && s.Narrow != narrow.None {
			err = invalid("a graph in memory is used as it is, not as %s", s.Narrow)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s %q", err, what, s.Name)
		}
		out[i] = draw.GraphTensor{Name: s.Name, DType: s.DType, RowShape: s.Shape[1:], Rows: rows}
	}
	return out, nil
}

// denseBytes returns the memory of an array in C order without gaps.
func denseBytes(s store.Source) ([]byte, error) {
	n := int64(s.DType.Size())
	empty := slices.Contains(s.Shape, 0) // without elements NumPy writes any strides
	for d, length := range slices.Backward(s.Shape) {
		if length < 0 || (length > 0 && n > (1<<62)/length) {
			return nil, invalid("shape %v", s.Shape)
		}
		if s.Strides != nil && length > 1 && !empty && s.Strides[d] != n {
			return nil, invalid("strides %v, expected rows without gaps", s.Strides)
		}
		n *= length
	}
	if s.Mem == nil && n > 0 {
		return nil, invalid("expected an array in memory")
	}
	return unsafe.Slice((*byte)(s.Mem), n), nil // as long as shape and dtype say
}
