package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"context"
	"unsafe"

	"freshgo/core/draw"
	"freshgo/core/embed"
	"freshgo/core/loader"
	"freshgo/core/ssd"
)

// tableHandle is an open table.
type tableHandle struct{ table *embed.Table }

func (*tableHandle) kind() string { return "table" }

//export fg_table_create
func fg_table_create(path *C.char, in *C.fg_table_options, out **C.fg_table, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		o, err := sized(in, "fg_table_options")
		if err != nil {
			return err
		}
		t, err := embed.Create(ssd.OS, C.GoString(path), embed.Options{
			Rows: int64(o.num_rows), RowBytes: int(o.row_bytes), Description: text(o.description, ""),
		})
		if err == nil {
			*out = (*C.fg_table)(handles.add(&tableHandle{t}))
		}
		return err
	})
}

//export fg_table_open
func fg_table_open(path *C.char, out **C.fg_table, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		t, err := embed.Open(ssd.OS, C.GoString(path))
		if err == nil {
			*out = (*C.fg_table)(handles.add(&tableHandle{t}))
		}
		return err
	})
}

//export fg_table_describe
func fg_table_describe(h *C.fg_table, out *C.char, capacity C.int64_t, nBytes *C.int64_t, err *C.fg_error) C.int32_t {
	return writing(unsafe.Pointer(h), out, capacity, nBytes, err, func(t *tableHandle) (any, error) {
		return t.table.Describe(), nil
	})
}

// payload views the caller's memory of the payloads of rows.
func (h *tableHandle) payload(p unsafe.Pointer, count int64) ([]byte, error) {
	var t taker
	rows := list[byte](&t, (*C.char)(p), count*int64(h.table.Layout().RowBytes-embed.TrailerBytes), "bytes of rows")
	return rows, t.err
}

//export fg_table_write
func fg_table_write(h *C.fg_table, first, count C.int64_t, rows unsafe.Pointer, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(t *tableHandle) error {
		payload, err := t.payload(rows, int64(count))
		if err != nil {
			return err
		}
		return t.table.Write(int64(first), int64(count), payload)
	})
}

//export fg_table_read
func fg_table_read(h *C.fg_table, rows *C.int64_t, count C.int64_t, out unsafe.Pointer, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(t *tableHandle) error {
		var of taker
		numbers := list[int64](&of, rows, int64(count), "rows")
		if of.err != nil {
			return of.err
		}
		payload, err := t.payload(out, int64(count))
		if err != nil {
			return err
		}
		return t.table.Read(numbers, payload)
	})
}

//export fg_table_save
func fg_table_save(h *C.fg_table, description, token *C.char, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(t *tableHandle) error {
		var of *string
		if description != nil {
			given := C.GoString(description)
			of = &given
		}
		saved, err := t.table.Save(of)
		if err == nil {
			writeText(unsafe.Slice((*byte)(unsafe.Pointer(token)), C.FG_TOKEN_BYTES), saved) // as the header says
		}
		return err
	})
}

//export fg_table_restore
func fg_table_restore(h *C.fg_table, token *C.char, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(t *tableHandle) error { return t.table.Restore(C.GoString(token)) })
}

//export fg_table_close
func fg_table_close(h *C.fg_table, err *C.fg_error) C.int32_t {
	return export(err, func() error {
		t, err := find[*tableHandle](handles, unsafe.Pointer(h))
		if err != nil {
			return err
		}
		if err := t.table.Close(); err != nil {
			return err
		}
		_, err = remove[*tableHandle](handles, unsafe.Pointer(h))
		return err
	})
}

// tables returns the tables of a loader.
func (t *taker) tables(in *C.fg_loader_table, count int64) (tables []draw.Trained) {
	for _, of := range list[C.fg_loader_table](t, in, count, "tables") {
		h, err := find[*tableHandle](handles, unsafe.Pointer(of.table))
		if err != nil {
			if t.err == nil {
				t.err = err
			}
			return nil
		}
		tables = append(tables, draw.Trained{Table: h.table, Type: int(of.node_type)})
	}
	return tables
}

//export fg_loader_settle
func fg_loader_settle(h *C.fg_loader, out **C.fg_job, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		beginJob(out, func(context.Context, report) (result, error) { return result{}, l.alone(l.loader.Settle) })
		return nil
	})
}

//export fg_loader_flush
func fg_loader_flush(h *C.fg_loader, out **C.fg_job, err *C.fg_error) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		beginJob(out, func(context.Context, report) (result, error) {
			return result{}, l.within(l.turn, -1, func(context.Context) error { return loader.Flush(l.loader) })
		})
		return nil
	})
}

//export fg_loader_put
func fg_loader_put(
	h *C.fg_loader, table C.int64_t, rows *C.int64_t, count C.int64_t, records unsafe.Pointer, nBytes C.int64_t,
	err *C.fg_error,
) C.int32_t {
	return with(unsafe.Pointer(h), err, func(l *loaderHandle) error {
		var of taker
		numbers := list[int64](&of, rows, int64(count), "rows")
		bytes := list[byte](&of, (*C.char)(records), int64(nBytes), "bytes of rows")
		if of.err != nil {
			return of.err
		}
		return l.within(l.turn, -1, func(context.Context) error {
			return loader.PutRows(l.loader, int(table), numbers, bytes)
		})
	})
}
