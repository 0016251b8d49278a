package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"context"
	"unsafe"

	"freshgo/core/ssd"
	"freshgo/core/store"
)

//export fg_store_open
func fg_store_open(path *C.char, out **C.fg_store, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		s, err := store.Open(ssd.OS, C.GoString(path))
		if err == nil {
			*out = (*C.fg_store)(handles.add(newStoreHandle(s)))
		}
		return err
	})
}

//export fg_store_describe
func fg_store_describe(h *C.fg_store, out *C.char, capacity C.int64_t, nBytes *C.int64_t, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		s, err := find[*storeHandle](handles, unsafe.Pointer(h))
		if err != nil {
			return err
		}
		n, err := writeJSON(s.store.Describe(), unsafe.Pointer(out), int64(capacity))
		*nBytes = C.int64_t(n)
		return err
	})
}

//export fg_store_read
func fg_store_read(
	h *C.fg_store, kind, place C.int32_t, name *C.char, versioned C.int32_t, out **C.fg_job, err *C.fg_error,
) C.int32_t {
	return export(err, func() error {
		s, err := useStore(h)
		if err != nil {
			return err
		}
		read, err := s.reader(int32(kind), int32(place), C.GoString(name))
		if err != nil {
			s.drop()
			return err
		}
		beginJob(out, func(ctx context.Context, _ report) (result, error) {
			defer s.drop()
			return read(ctx, versioned != 0)
		})
		return nil
	})
}

//export fg_store_read_rows
func fg_store_read_rows(
	h *C.fg_store, name *C.char, first, count C.int64_t, versioned C.int32_t, out **C.fg_job, err *C.fg_error,
) C.int32_t {
	return export(err, func() error {
		s, err := useStore(h)
		if err != nil {
			return err
		}
		read, err := s.rowReader(C.GoString(name), int64(first), int64(count))
		if err != nil {
			s.drop()
			return err
		}
		beginJob(out, func(ctx context.Context, _ report) (result, error) {
			defer s.drop()
			return read(ctx, versioned != 0)
		})
		return nil
	})
}

//export fg_store_verify_topology
func fg_store_verify_topology(h *C.fg_store, out **C.fg_job, err *C.fg_error) C.int32_t {
	return verifying(h, out, err, func(ctx context.Context, s *store.Store, _ report) error {
		return s.VerifyTopology(ctx)
	})
}

//export fg_store_verify
func fg_store_verify(h *C.fg_store, out **C.fg_job, err *C.fg_error) C.int32_t {
	return verifying(h, out, err, func(ctx context.Context, s *store.Store, report report) error {
		return s.Verify(ctx, func(done, total int64) { report("verify", done, total) })
	})
}

// verifying starts a job that reads a store and has no result.
func verifying(
	h *C.fg_store, out **C.fg_job, err *C.fg_error, verify func(context.Context, *store.Store, report) error,
) C.int32_t {
	return export(err, func() error {
		s, err := useStore(h)
		if err != nil {
			return err
		}
		beginJob(out, func(ctx context.Context, report report) (result, error) {
			defer s.drop()
			return result{}, verify(ctx, s.store, report)
		})
		return nil
	})
}

//export fg_store_close
func fg_store_close(h *C.fg_store, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		s, err := remove[*storeHandle](handles, unsafe.Pointer(h))
		if err == nil {
			s.drop()
		}
		return err
	})
}

// useStore finds an open store and keeps it open until drop.
func useStore(h *C.fg_store) (*storeHandle, error) {
	s, err := find[*storeHandle](handles, unsafe.Pointer(h))
	if err != nil {
		return nil, err
	}
	return s, s.use()
}

// beginJob starts fn and gives the caller its handle.
func beginJob(out **C.fg_job, fn work) { *out = (*C.fg_job)(handles.add(startJob(fn))) }
