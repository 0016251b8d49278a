package ssd

import (
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"freshgo/core/internal/guard"
)

// job is one call of Engine.Read. Its queue's lock guards next, running and err until done is closed.
type job struct {
	handle  *Handle
	ranges  []Range
	deliver func(i int, data []byte) error

	next    int // the first range that no thread has taken
	running int // ranges in progress
	err     error
	done    chan struct{} // closed when all ranges are finished
	failed  atomic.Bool   // err is set: later results are not delivered
}

func (j *job) settled() bool { return j.running == 0 && j.next == len(j.ranges) }

// task is one range of a job.
type task struct {
	job   *job
	index int
}

// queue hands the ranges of all jobs to the threads of an engine, first come first served. mu guards all of its state.
//
// There are two ways to wait for work: workers block in take; the ring's thread, which also waits for completions,
// polls, and wake ends its sleep. Both check for work under the lock that push holds, so no arrival is missed.
type queue struct {
	wake func() // called under mu while asleep; nil: no thread polls

	mu       sync.Mutex
	arrived  sync.Cond
	ready    []*job // jobs with ranges that no thread has taken; ended jobs are removed when met
	stopped  error  // why no more jobs are accepted
	asleep   bool   // the last poll found fewer tasks than it had room for
	inFlight int
	since    time.Time // the time when inFlight last left 0
	full     bool      // ranges wait while others are in flight
	filled   time.Time // the time when full last became true
	stats    Stats
}

func newQueue() *queue {
	q := &queue{}
	q.arrived.L = &q.mu
	return q
}

// push adds a job, which has at least one range.
func (q *queue) push(j *job) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped != nil {
		return q.stopped
	}
	q.ready = append(q.ready, j)
	q.rouse()
	return nil
}

func (q *queue) rouse() {
	q.arrived.Broadcast()
	if q.asleep {
		q.asleep = false
		q.wake()
	}
}

// take waits for a task. It returns false if the queue has stopped.
func (q *queue) take() (task, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var one [1]task
	for q.fill(one[:]) == 0 {
		if q.stopped != nil {
			return task{}, false
		}
		q.arrived.Wait()
	}
	return one[0], true
}

// poll fills tasks with waiting tasks, and returns their number and whether the queue still runs. After it found fewer
// than it had room for, the next push or stop calls wake.
func (q *queue) poll(tasks []task) (n int, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = q.fill(tasks)
	q.asleep = n < len(tasks) && q.stopped == nil
	return n, q.stopped == nil
}

func (q *queue) fill(tasks []task) int {
	n := 0
	for n < len(tasks) && len(q.ready) > 0 {
		j := q.ready[0]
		if j.next == len(j.ranges) {
			q.ready[0] = nil
			q.ready = q.ready[1:]
			continue
		}
		tasks[n] = task{j, j.next}
		j.next++
		j.running++
		n++
	}
	if n > 0 && q.inFlight == 0 {
		q.since = time.Now()
	}
	q.inFlight += n
	q.setFull(q.inFlight > 0 && q.waits())
	return n
}

// waits reports whether a range waits for a thread.
func (q *queue) waits() bool {
	return slices.ContainsFunc(q.ready, func(j *job) bool { return j.next < len(j.ranges) })
}

func (q *queue) setFull(full bool) {
	switch {
	case full == q.full:
		return
	case full:
		q.filled = time.Now()
	default:
		q.stats.Full.Time += time.Since(q.filled)
	}
	q.full = full
}

// finish ends a task that poll or take returned. After an error its job takes no more.
func (q *queue) finish(t *transfer, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stats.Requests += t.requests
	q.stats.Retries += max(t.requests-1, 0)
	q.stats.Bytes += t.received
	if q.full {
		q.stats.Full.Requests += t.requests
		q.stats.Full.Bytes += t.received
	}
	if q.inFlight--; q.inFlight == 0 {
		q.stats.Busy += time.Since(q.since)
	}
	j := t.job
	j.handle.requests.Add(t.requests)
	j.handle.received.Add(t.received)
	j.running--
	if err != nil {
		j.fail(err)
	}
	if j.settled() {
		close(j.done)
	}
}

func (j *job) fail(err error) {
	if j.err == nil {
		j.err = err
	}
	j.next = len(j.ranges)
	j.failed.Store(true)
}

// abort fails a job unless it is over, which it is after its ranges in flight have completed.
func (q *queue) abort(j *job, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(j, err)
}

func (q *queue) drop(j *job, err error) {
	if j.settled() {
		return
	}
	j.fail(err)
	if j.settled() {
		close(j.done)
	}
}

// stop fails every job that has ranges left and refuses new ones. The first reason is kept.
func (q *queue) stop(reason error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped == nil {
		q.stopped = reason
	}
	for _, j := range q.ready {
		q.drop(j, reason)
	}
	q.ready = nil
	q.rouse()
}

// retire records that no thread polls any more: wake will not be called again.
func (q *queue) retire() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asleep = false
}

func (q *queue) snapshot() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats
	if q.inFlight > 0 {
		s.Busy += time.Since(q.since)
	}
	if q.full {
		s.Full.Time += time.Since(q.filled)
	}
	return s
}

// transfer is the read of a range into a staging slot. It belongs to the thread that owns the slot.
//
// It always reads whole pages: after a short read it continues at the last page boundary, as O_DIRECT requires.
type transfer struct {
	task
	slot      []byte // the whole slot
	done      int    // bytes in place, whole pages
	fruitless int    // consecutive attempts that added no page
	requests  int64
	received  int64 // bytes from the device, including those read twice
}

// begin makes the transfer read another range.
func (t *transfer) begin(next task) { *t = transfer{task: next, slot: t.slot} }

// rest returns the destination and the offset of the next attempt.
func (t *transfer) rest() ([]byte, int64) {
	r := t.job.ranges[t.index]
	return t.slot[t.done:r.Len], r.Off + int64(t.done)
}

// advance takes the result of an attempt and returns whether the transfer is over, and if so its error.
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

// deliver hands the data to the job, unless the job has failed meanwhile. A panic of the receiver becomes its error.
func (t *transfer) deliver() error {
	if t.job.failed.Load() {
		return nil
	}
	return guard.Run(func() error {
		return t.job.deliver(t.index, t.slot[:t.job.handle.reach(t.job.ranges[t.index])])
	})
}
