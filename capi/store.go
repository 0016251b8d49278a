package main

import (
	"context"
	"encoding/json"
	"slices"
	"unsafe"

	"freshgo/core/draw"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/store"
	"freshgo/csrc"
)

// storeHandle is an open store, which loaders and jobs may use for longer than its handle lives.
type storeHandle struct {
	*shared
	store *store.Store
	draft *store.Draft // what becomes of the store where it is not published, else nil
}

func (*storeHandle) kind() string { return "store" }

func newStoreHandle(s *store.Store) *storeHandle {
	// closing a store that was only read has nothing to fail
	return &storeHandle{shared: newShared(func() { _ = s.Close() }), store: s}
}

// opened returns the store as a loader is opened over it.
func (h *storeHandle) opened() opened { return openedOver(h.shared, draw.OpenStore(h.store)) }

// What a tensor of a store belongs to, as in the header.
const (
	splitTensor = iota
	nodeTensor
	edgeTensor
)

// reader loads a whole split or tensor into a tensor of C memory.
type reader func(ctx context.Context, versioned bool) (result, error)

// reader finds a split or a tensor by its type's place and its name.
func (h *storeHandle) reader(kind, place int32, name string) (reader, error) {
	nodes, edges := h.store.NodeTypes(), h.store.EdgeTypes()
	types := len(nodes)
	if kind == edgeTensor {
		types = len(edges)
	}
	if place < 0 || int(place) >= types {
		return nil, invalid("the type is %d of %d", place, types)
	}
	switch kind {
	case splitTensor:
		t := &nodes[place]
		split, err := named(t.Splits, "split", name)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, versioned bool) (result, error) {
			ids, err := t.LoadSplit(ctx, split.Name)
			if err != nil {
				return result{}, err
			}
			shape := []int64{int64(len(ids))}
			return made(split.Name, manifest.DType_INT64, shape, shape[0]*8, versioned, func(to []byte) error {
				copy(to, bytesOf(ids))
				return nil
			})
		}, nil
	case nodeTensor:
		return h.tensorReader(nodes[place].Tensors, "node tensor", name)
	case edgeTensor:
		return h.tensorReader(edges[place].Tensors, "edge tensor", name)
	}
	return nil, invalid("kind is %d, expected 0 to 2", kind)
}

func (h *storeHandle) tensorReader(list []store.Tensor, word, name string) (reader, error) {
	t, err := named(list, word, name)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, versioned bool) (result, error) {
		dtype, shape := t.Values()
		n := t.Rows * int64(t.ValueBytes())
		return made(t.Name, dtype, append([]int64{t.Rows}, shape...), n, versioned, func(to []byte) error {
			dense := to[n-t.Rows*int64(t.Layout.RowBytes):]
			if err := h.store.ReadTensor(ctx, &t.Array, dense, mem.NewBudget(0)); err != nil {
				return err
			}
			if t.Narrow != nil {
				t.Narrow.Widen(to)
			}
			return nil
		})
	}, nil
}

// rowReader finds an attachment by its name.
func (h *storeHandle) rowReader(name string, first, n int64) (reader, error) {
	t, err := named(h.store.Attachments(), "attachment", name)
	if err != nil {
		return nil, err
	}
	if err := t.CheckRows(first, n); err != nil {
		return nil, err
	}
	return func(ctx context.Context, versioned bool) (result, error) {
		shape, bytes := append([]int64{n}, t.RowShape...), n*int64(t.Layout.RowBytes)
		return made(t.Name, t.DType, shape, bytes, versioned, func(to []byte) error {
			return t.ReadRows(ctx, first, to, mem.NewBudget(0))
		})
	}, nil
}

// named finds one of a list by name.
func named(list []store.Tensor, word, name string) (*store.Tensor, error) {
	i := slices.IndexFunc(list, func(t store.Tensor) bool { return t.Name == name })
	if i < 0 {
		known := make([]string, len(list))
		for j := range list {
			known[j] = list[j].Name
		}
		return nil, invalid("the store has no %s %q, it has %q", word, name, known)
	}
	return &list[i], nil
}

// made makes a tensor of n bytes in C memory, which fill fills.
func made(
	name string, dtype manifest.DType, shape []int64, n int64, versioned bool, fill func([]byte) error,
) (result, error) {
	buffer, err := csrc.Allocator{}.Acquire(n)
	if err != nil {
		return result{}, err
	}
	defer buffer.Release()
	if err := fill(buffer.Bytes()); err != nil {
		return result{}, err
	}
	t, err := buffer.(*csrc.Buffer).Tensor(name, dtypes[dtype], shape, versioned)
	if err != nil {
		return result{}, err
	}
	return result{pointer: t.Managed, discard: t.Delete}, nil
}

func bytesOf(ids []int64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(ids))), len(ids)*8) // the same memory, 8 bytes an id
}

// writeJSON writes v to a caller's buffer if it fits and returns its length.
func writeJSON(v any, out unsafe.Pointer, capacity int64) (int64, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return 0, err
	}
	n := int64(len(text))
	if n <= capacity {
		copy(unsafe.Slice((*byte)(out), n), text) // within the capacity of the caller's buffer
	}
	return n, nil
}
