package ssd

import (
	"fmt"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// wakeUp marks the completion that signals news in the queue; others have the number of their slot.
	wakeUp = ^uint64(0)
	// batch is the part of the requests in flight whose completions are awaited together: fewer turns through the kernel
	// and Go's scheduler, which saved a fifth of the processor time at depth 128. With fewer than batch in flight, each is
	// delivered as it arrives.
	batch = 16
	// pause is the delay before retries when the kernel is short of memory. Arbitrary.
	pause = 100 * time.Microsecond
	// registerAfter is the number of requests after which an engine registers its slots, as pinning costs about as much as
	// it saves by then. An engine that only calibrates, or serves a small graph, does without.
	registerAfter = 4096
)

// uring is the thread of the io_uring engine. It fills free slots from the queue, waits in the kernel for completions,
// and delivers.
//
// While it has room and the queue is empty, an arriving job must end the wait, so the ring then always holds a poll of
// an eventfd, which push signals. (A thread cannot wait for a condition variable and for completions together, and busy
// polling would use a whole core.)
//
// Files are not registered: in the C loop of bench/ssd this saved 3% of the processor time, registered buffers 10%.
type uring struct {
	queue      *queue
	ring       *ring
	event      int
	memory     []byte // of the slots
	slot       int    // bytes of one
	slots      []transfer
	free       []int  // slots without a range
	tasks      []task // scratch of fill
	started    int    // requests
	asked      bool   // registration was tried
	registered bool   // registration succeeded
}

// startRing starts the io_uring engine, or returns why the system refuses.
func (e *Engine) startRing(k kernel) error {
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	u := &uring{queue: e.queue, event: event, memory: e.memory.Bytes(), slot: e.slot, slots: e.slots()}
	u.tasks = make([]task, len(u.slots))
	for i := range u.slots {
		u.free = append(u.free, i)
	}
	e.queue.wake = func() { signal(event) }
	opened := make(chan error, 1)
	e.spawn(func() error {
		// The ring belongs to one thread, as the kernel checks the submitter.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var err error
		u.ring, err = openRing(k, len(u.slots)+1)
		opened <- err
		if err != nil {
			return err
		}
		defer u.ring.close()
		return u.run()
	}, func(err error) {
		e.queue.retire()
		_ = unix.Close(event) // no more signals come
		for i := range u.slots {
			if t := &u.slots[i]; t.job != nil {
				e.queue.finish(t, err)
			}
		}
	})
	return <-opened
}

// signal increments an eventfd. It cannot fail: the counter overflows after 2^64 signals without a read.
func signal(event int) {
	one := [8]byte{1}
	_, _ = unix.Write(event, one[:])
}

// register registers the slots with the kernel, once. It is called while the poll of the eventfd is not in the ring:
// old kernels wait for everything in flight, and the poll might stay there for ever.
func (u *uring) register() {
	if u.asked || u.started < registerAfter {
		return
	}
	u.asked = true
	// Registered memory is pinned and counts against RLIMIT_MEMLOCK, often 8 MiB. If that is too small, reads cost
	// slightly more.
	u.registered = u.ring.registerSlots(u.memory, u.slot) == nil
}

func (u *uring) run() error {
	u.await()
	for {
		open := u.fill()
		if !open && len(u.free) == len(u.slots) {
			return ErrClosed
		}
		if err := u.enter(); err != nil {
			return err
		}
		u.ring.reap(u.complete)
	}
}

// fill starts as many tasks as there are free slots.
func (u *uring) fill() (open bool) {
	n, open := u.queue.poll(u.tasks[:len(u.free)])
	for _, next := range u.tasks[:n] {
		slot := u.free[len(u.free)-1]
		u.free = u.free[:len(u.free)-1]
		u.slots[slot].begin(next)
		u.submit(slot)
	}
	clear(u.tasks[:n])
	return open
}

// enter submits and waits for at least one completion, and never for more than are in flight.
func (u *uring) enter() error {
	wait := 1 + (len(u.slots)-len(u.free))/batch
	for attempt := 0; ; attempt++ {
		err := u.ring.enter(uint32(wait))
		switch {
		case err == nil:
			return nil
		case err == syscall.EINTR:
		case (err == syscall.EAGAIN || err == syscall.EBUSY) && attempt < maxRetries:
			time.Sleep(pause)
		default:
			return fmt.Errorf("ssd: io_uring_enter: %w", err)
		}
	}
}

func (u *uring) submit(slot int) {
	t := &u.slots[slot]
	p, off := t.rest()
	s := u.ring.submission()
	s.opcode = opRead
	if u.registered {
		s.opcode, s.bufIndex = opReadFixed, uint16(slot)
	}
	s.fd = int32(t.job.handle.file.Fd())
	s.off, s.length, s.userData = uint64(off), uint32(len(p)), uint64(slot)
	s.addr = address(p)
	u.ring.push()
	if u.started++; u.started == registerAfter {
		signal(u.event) // complete registers
	}
}

func (u *uring) await() {
	s := u.ring.submission()
	s.opcode, s.fd, s.opFlags, s.userData = opPollAdd, int32(u.event), pollIn, wakeUp
	u.ring.push()
}

func (u *uring) complete(c completion) {
	if c.userData == wakeUp {
		var counter [8]byte
		_, _ = unix.Read(u.event, counter[:]) // only resets it: the queue is checked in any case
		u.register()
		u.await()
		return
	}
	slot := int(c.userData)
	t := &u.slots[slot]
	result := c.result
	if h := t.job.handle; h.filter != nil {
		p, off := t.rest()
		result = h.filter.FilterCompletion(off, len(p), result)
	}
	var over bool
	var err error
	if result < 0 {
		over, err = t.advance(0, syscall.Errno(-result))
	} else {
		over, err = t.advance(int(result), nil)
	}
	switch {
	case over && err == nil:
		err = t.deliver()
	case !over && !t.job.failed.Load():
		u.submit(slot)
		return
	}
	u.queue.finish(t, err)
	t.job = nil
	u.free = append(u.free, slot)
}
