package ssd

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Constants of linux/io_uring.h.
const (
	setupCoopTaskrun  = 1 << 8  // since 5.19: completions do not interrupt the thread
	setupSingleIssuer = 1 << 12 // since 6.0
	setupDeferTaskrun = 1 << 13 // since 6.1: completions are handled in enter, in batches

	enterGetEvents = 1 << 0

	featSingleMmap = 1 << 0 // since 5.4
	featNoDrop     = 1 << 1 // since 5.5
	featRWCurPos   = 1 << 3 // since 5.6, like opRead

	opReadFixed = 4
	opPollAdd   = 6
	opRead      = 22

	registerBuffers = 0

	offsetRings   = 0
	offsetEntries = 0x10000000

	pollIn = 1
)

// kernel holds the three system calls of io_uring. Tests refuse and interrupt them; linux is the real one.
type kernel interface {
	setup(entries uint32, params *ringParams) (fd int, err error)
	enter(fd int, submit, wait uint32) (submitted int, err error)
	register(fd int, op uint32, args unsafe.Pointer, n uint32) error
}

type linux struct{}

func system() kernel { return linux{} }

func (linux) setup(entries uint32, params *ringParams) (int, error) {
	// The kernel writes params during the call only.
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(params)), 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

func (linux) enter(fd int, submit, wait uint32) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(submit), uintptr(wait), enterGetEvents, 0,
		0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func (linux) register(fd int, op uint32, args unsafe.Pointer, n uint32) error {
	// args is converted in the call's argument list, which keeps it alive and in place during the call.
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(fd), uintptr(op), uintptr(args), uintptr(n), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// ringParams is struct io_uring_params.
type ringParams struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFd uint32

	_  [3]uint32
	sq ringOffsets
	cq ringOffsets
}

// ringOffsets is struct io_sqring_offsets, and struct io_cqring_offsets with other meanings from the fifth field on.
type ringOffsets struct {
	head, tail, mask, entries uint32
	flagsOrOverflow           uint32
	droppedOrCqes             uint32
	array                     uint32
	_                         uint32
	_                         uint64
}

// submission is struct io_uring_sqe.
type submission struct {
	opcode   uint8
	flags    uint8
	priority uint16
	fd       int32
	off      uint64
	addr     uint64
	length   uint32
	opFlags  uint32
	userData uint64
	bufIndex uint16
	_        [22]byte
}

// completion is struct io_uring_cqe.
type completion struct {
	userData uint64
	result   int32
	flags    uint32
}

// ring is one io_uring. Only the thread that opened it may call it, as the fast modes of the kernel require.
type ring struct {
	kernel  kernel
	fd      int
	rings   []byte // the kernel's two index rings and its completions, shared with the kernel
	entries []byte // the submissions, shared with the kernel

	sqHead, sqTail *uint32
	sqMask         uint32
	submissions    []submission

	cqHead, cqTail *uint32
	cqMask         uint32
	completions    []completion

	queued uint32 // submissions that the kernel has not taken
}

// ringModes are tried in this order: a kernel returns EINVAL for a flag that it does not know.
var ringModes = [...]uint32{setupSingleIssuer | setupDeferTaskrun, setupCoopTaskrun, 0}

// openRing returns a ring with the given number of entries for submissions, and twice as many for completions.
func openRing(k kernel, entries int) (*ring, error) {
	var params ringParams
	fd, err := -1, error(nil)
	for _, mode := range ringModes {
		params = ringParams{flags: mode}
		if fd, err = k.setup(uint32(entries), &params); err != syscall.EINVAL {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("setup: %w", err)
	}
	r := &ring{kernel: k, fd: fd}
	const needed = featSingleMmap | featNoDrop | featRWCurPos
	if params.features&needed != needed {
		r.close()
		return nil, fmt.Errorf("setup: the kernel offers features %#x, expected at least %#x (Linux 5.6)", params.features,
			needed)
	}
	if err := r.mapShared(&params); err != nil {
		r.close()
		return nil, fmt.Errorf("mapping the ring: %w", err)
	}
	return r, nil
}

func (r *ring) mapShared(p *ringParams) error {
	submissionBytes := int(p.sqEntries) * int(unsafe.Sizeof(submission{}))
	ringBytes := max(int(p.sq.array)+int(p.sqEntries)*4,
		int(p.cq.droppedOrCqes)+int(p.cqEntries)*int(unsafe.Sizeof(completion{})))
	var err error
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if r.rings, err = unix.Mmap(r.fd, offsetRings, ringBytes, prot, flags); err != nil {
		return err
	}
	if r.entries, err = unix.Mmap(r.fd, offsetEntries, submissionBytes, prot, flags); err != nil {
		return err
	}
	// All pointers below are within the two maps, at offsets from the kernel, and valid until close.
	at := func(offset uint32) unsafe.Pointer { return unsafe.Pointer(&r.rings[offset]) }
	r.sqHead, r.sqTail, r.sqMask = (*uint32)(at(p.sq.head)), (*uint32)(at(p.sq.tail)), *(*uint32)(at(p.sq.mask))
	r.cqHead, r.cqTail, r.cqMask = (*uint32)(at(p.cq.head)), (*uint32)(at(p.cq.tail)), *(*uint32)(at(p.cq.mask))
	r.submissions = unsafe.Slice((*submission)(unsafe.Pointer(&r.entries[0])), p.sqEntries)
	r.completions = unsafe.Slice((*completion)(at(p.cq.droppedOrCqes)), p.cqEntries)
	for i, array := uint32(0), unsafe.Slice((*uint32)(at(p.sq.array)), p.sqEntries); i < p.sqEntries; i++ {
		array[i] = i // submissions are used in ring order
	}
	return nil
}

// registerSlots registers memory with the kernel as buffers of slotBytes each, which avoids pinning pages for every
// read.
func (r *ring) registerSlots(memory []byte, slotBytes int) error {
	vectors := make([]unix.Iovec, len(memory)/slotBytes)
	for i := range vectors {
		vectors[i].Base = &memory[i*slotBytes]
		vectors[i].SetLen(slotBytes)
	}
	// read during the call only
	err := r.kernel.register(r.fd, registerBuffers, unsafe.Pointer(unsafe.SliceData(vectors)), uint32(len(vectors)))
	runtime.KeepAlive(vectors)
	return err
}

// submission returns the next free entry, zeroed; push queues it. The caller never exceeds the number of entries.
func (r *ring) submission() *submission {
	tail := *r.sqTail // written by this thread only
	if tail-atomic.LoadUint32(r.sqHead) > r.sqMask {
		panic("ssd: more submissions than the ring has entries")
	}
	s := &r.submissions[tail&r.sqMask]
	*s = submission{}
	return s
}

func (r *ring) push() {
	atomic.StoreUint32(r.sqTail, *r.sqTail+1) // releases the entry to the kernel
	r.queued++
}

// enter submits the queued entries and waits for at least wait completions.
func (r *ring) enter(wait uint32) error {
	n, err := r.kernel.enter(r.fd, r.queued, wait)
	r.queued -= uint32(n)
	return err
}

// reap calls each for every completion that has arrived.
func (r *ring) reap(each func(completion)) {
	head := *r.cqHead // written by this thread only
	for tail := atomic.LoadUint32(r.cqTail); head != tail; head++ {
		c := r.completions[head&r.cqMask]
		atomic.StoreUint32(r.cqHead, head+1) // gives the entry back
		each(c)
	}
}

// close frees the ring. The kernel cancels requests in flight, and keeps the pages of their buffers until then.
func (r *ring) close() {
	if r.rings != nil {
		_ = unix.Munmap(r.rings) // fails only for a range that is not mapped
	}
	if r.entries != nil {
		_ = unix.Munmap(r.entries)
	}
	_ = unix.Close(r.fd)
}

// address returns the address of p. The kernel writes there after the call, so p must be memory outside the Go heap.
func address(p []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) }
