package ssd

import (
	"errors"
	"io"

	"freshgo/core/internal/guard"
)

// transfer is a range on its way into a staging slot. It belongs to the thread that owns the slot.
//
// It always reads whole pages: after a short read it goes on from the last page boundary, since O_DIRECT takes no other
// offset.
type transfer struct {
	task
	slot      []byte // the whole slot
	done      int    // bytes in place, whole pages
	fruitless int    // attempts in a row that added no page
	requests  int64
	received  int64 // bytes that came from the device, those read twice included
}

// begin makes the transfer that of another range.
func (t *transfer) begin(next task) { *t = transfer{task: next, slot: t.slot} }

// rest returns where the next attempt reads to, and from which offset.
func (t *transfer) rest() ([]byte, int64) {
	r := t.job.ranges[t.index]
	return t.slot[t.done:r.Len], r.Off + int64(t.done)
}

// advance takes the outcome of an attempt and returns whether the transfer is over, and if so whether it failed.
func (t *transfer) advance(n int, err error) (over bool, _ error) {
	t.requests++
	t.received += int64(n)
	file := t.job.handle.file
	r := t.job.ranges[t.index]
	at := r.Off + int64(t.done)
	if err != nil {
		if transient(err) && t.fruitless < maxRetries {
			t.fruitless++
			return false, nil
		}
		var located *PathError
		if !errors.As(err, &located) {
			err = &PathError{Op: "read", Path: file.Name(), Off: at, Err: err}
		}
		return true, err
	}
	if t.done+n >= t.job.handle.reach(r) {
		return true, nil
	}
	pages := n / PageBytes * PageBytes
	if n == 0 || (pages == 0 && t.fruitless == maxRetries) {
		return true, &PathError{Op: "read", Path: file.Name(), Off: at + int64(n), Err: io.ErrUnexpectedEOF}
	}
	if pages == 0 {
		t.fruitless++
	} else {
		t.fruitless = 0
		t.done += pages
	}
	return false, nil
}

// deliver hands the data to the job, unless that has failed meanwhile. A panic of the receiver is its error.
func (t *transfer) deliver() error {
	if t.job.failed.Load() {
		return nil
	}
	return guard.Run(func() error {
		return t.job.deliver(t.index, t.slot[:t.job.handle.reach(t.job.ranges[t.index])])
	})
}
