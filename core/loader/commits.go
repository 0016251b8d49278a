package loader

import (
	"cmp"
	"fmt"
	"sync"

	"freshgo/core/draw"
	"freshgo/core/window"
)

// commits orders the batches of an epoch whose rows training changes: a preparer keeps its batch until the consumer is
// done with it, and then takes the rows back (window.Batch.Commit).
type commits struct {
	mu      sync.Mutex
	changed sync.Cond
	wanted  int64 // the consumer is done with batches before this one
	ended   int64 // those whose rows were taken back
	shut    bool  // the consumer takes no more batches
	err     error // why rows were not taken back
	request *turnRequest
}

// turnRequest is work in the turn of a batch that the consumer has.
type turnRequest struct {
	batch int64
	do    func(p *preparer) error
	done  bool
	err   error
}

func newCommits(first int64) *commits {
	c := &commits{wanted: first, ended: first}
	c.changed.L = &c.mu
	return c
}

// finish says that the consumer is done with the batches before end, and waits until their rows were taken back.
func (c *commits) finish(end int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = max(c.wanted, end)
	c.changed.Broadcast()
	for c.ended < end && c.err == nil {
		c.changed.Wait()
	}
	return c.err
}

// await waits until the consumer is done with batch i, and serves requests in its turn until then. It returns false if
// the consumer never had the batch.
func (c *commits) await(i int64, p *preparer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.wanted <= i && !c.shut {
		if r := c.request; r != nil && r.batch == i {
			c.request = nil
			func() {
				c.mu.Unlock()
				defer c.mu.Lock()
				r.err = r.do(p)
			}()
			r.done = true
			c.changed.Broadcast()
			continue
		}
		c.changed.Wait()
	}
	return c.wanted > i
}

// inTurn has the preparer of the last batch before end, which the consumer has, call do in the turn of this batch.
func (c *commits) inTurn(end int64, do func(p *preparer) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended >= end {
		return ErrNoEpoch
	}
	r := &turnRequest{batch: end - 1, do: do}
	c.request = r
	c.changed.Broadcast()
	for !r.done && c.err == nil && !c.shut {
		c.changed.Wait()
	}
	if !r.done {
		return cmp.Or(c.err, draw.ErrStopped)
	}
	return r.err
}

// end records that the rows of batch i were taken back, or why not.
func (c *commits) end(i int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.err == nil {
		c.err = err
	}
	c.ended = max(c.ended, i+1)
	c.changed.Broadcast()
}

// shutdown says that the consumer takes no more batches.
func (c *commits) shutdown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut = true
	c.changed.Broadcast()
}

// Flush writes the current rows of the tables that training changes into their files. The epoch goes on, and its last
// batch stays with the consumer. It may be called until the next Next, Start, Stop, Settle or Close.
func Flush(l *Loader) error {
	e, err := inEpoch(l)
	if err != nil {
		return err
	}
	return e.commits.inTurn(e.yielded, func(p *preparer) error { return window.Flush(&p.window, &p.filler) })
}

// inEpoch returns the epoch that runs, which has handed over a batch whose rows training changes.
func inEpoch(l *Loader) (*epoch, error) {
	if err := l.usable(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.running
	if e == nil || e.commits == nil || e.yielded == e.first {
		return nil, ErrNoEpoch
	}
	return e, nil
}

// PutRows writes rows of the table at a place among the tables of a loader, where several adjacent ranks train the
// batches of a step together: once all of these were handed over, and before the next Next, Start, Stop, Settle or
// Close. The rows ascend, and each is in a batch of the step. Records are in this order, and as wide as in a batch.
func PutRows(l *Loader, table int, rows []int64, records []byte) error {
	e, err := inEpoch(l)
	if err != nil {
		return err
	}
	if err := checkPut(l.draw.Options.Tables, table, rows, records); err != nil {
		return err
	}
	return e.commits.inTurn(e.yielded, func(p *preparer) error {
		return window.PutRows(&p.window, &p.filler, table, rows, records)
	})
}

// checkPut returns an error if there are no such rows, or records of another size.
func checkPut(tables []draw.Trained, table int, rows []int64, records []byte) error {
	if table < 0 || table >= len(tables) {
		return fmt.Errorf("%w: the place of a table must be in [0, %d), got %d", draw.ErrOption, len(tables), table)
	}
	of := tables[table].Table.Layout()
	if want := len(rows) * of.RowBytes; len(records) != want {
		return fmt.Errorf("%w: %d rows of the table have %d bytes, got %d", draw.ErrOption, len(rows), want, len(records))
	}
	before := int64(-1)
	for _, row := range rows {
		if row <= before || row >= of.NumRows {
			return fmt.Errorf("%w: rows must ascend within [0, %d), got %d after %d", draw.ErrOption, of.NumRows, row, before)
		}
		before = row
	}
	return nil
}
