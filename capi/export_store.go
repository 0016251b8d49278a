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
	return writing(unsafe.Pointer(h), out, capacity, nBytes, err, func(s *storeHandle) (any, error) {
		return s.store.Describe(), nil
	})
}

//export fg_store_read
func fg_store_read(
	h *C.fg_store, kind, place C.int32_t, name *C.char, versioned C.int32_t, out **C.fg_job, err *C.fg_error,
) C.int32_t {
	return storeJob(h, out, err, func(s *storeHandle) (work, error) {
		read, err := s.reader(int32(kind), int32(place), C.GoString(name))
		return func(ctx context.Context, _ report) (result, error) { return read(ctx, versioned != 0) }, err
	})
}

//export fg_store_read_rows
func fg_store_read_rows(
	h *C.fg_store, name *C.char, first, count C.int64_t, versioned C.int32_t, out **C.fg_job, err *C.fg_error,
) C.int32_t {
	return storeJob(h, out, err, func(s *storeHandle) (work, error) {
		read, err := s.rowReader(C.GoString(name), int64(first), int64(count))
		return func(ctx context.Context, _ report) (result, error) { return read(ctx, versioned != 0) }, err
	})
}

//export fg_store_verify_topology
func fg_store_verify_topology(h *C.fg_store, out **C.fg_job, err *C.fg_error) C.int32_t {
	return storeJob(h, out, err, func(s *storeHandle) (work, error) {
		return func(ctx context.Context, _ report) (result, error) { return result{}, s.store.VerifyTopology(ctx) }, nil
	})
}

//export fg_store_verify
func fg_store_verify(h *C.fg_store, out **C.fg_job, err *C.fg_error) C.int32_t {
	return storeJob(h, out, err, func(s *storeHandle) (work, error) {
		return func(ctx context.Context, report report) (result, error) {
			return result{}, s.store.Verify(ctx, func(done, total int64) { report("verify", done, total) })
		}, nil
	})
}

// storeJob starts the job that prepare makes for an open store, which stays open until the job has ended.
func storeJob(
	h *C.fg_store, out **C.fg_job, err *C.fg_error, prepare func(s *storeHandle) (work, error),
) C.int32_t {
	return export(err, func() error {
		s, err := useStore(h)
		if err != nil {
			return err
		}
		run, err := prepare(s)
		if err != nil {
			s.drop()
			return err
		}
		beginJob(out, func(ctx context.Context, report report) (result, error) {
			defer s.drop()
			return run(ctx, report)
		})
		return nil
	})
}

//export fg_store_close
func fg_store_close(h *C.fg_store, err *C.fg_error) C.int32_t {
	return closing(unsafe.Pointer(h), err, (*storeHandle).end)
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
