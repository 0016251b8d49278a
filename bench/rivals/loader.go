package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"freshgo/core/cache"
	"freshgo/core/mem"
	"freshgo/core/plan"
	"freshgo/core/rows"
	"freshgo/core/ssd"
)

// result holds the time and the reads of an epoch.
type result struct {
	Seconds  float64 `json:"seconds"`
	First    float64 `json:"first"` // until the first batch was whole
	Rows     int     `json:"rows"`
	Reads    int     `json:"reads"` // rows read
	Requests int64   `json:"requests"`
	Bytes    int64   `json:"bytes"`
	Kernel   int64   `json:"kernel"` // bytes read as the kernel counts them for this process
}

// pass is a batch on its way: what the policy decided, and its tensor.
type pass struct {
	rows   []uint32
	hits   []int32 // positions, and their slots
	slots  []int32
	misses []int32 // positions
	in     []cache.Move

	tensor []byte
	ready  chan error
}

func load(c config) error {
	drawn, err := newBatches(c)
	if err != nil {
		return err
	}
	epochs, err := drawn.trace()
	if err != nil {
		return err
	}
	values, err := os.ReadFile(c.check)
	if err != nil {
		return err
	}
	t, err := open(c, 0)
	if err != nil {
		return err
	}
	defer t.engine.Close()
	if !t.ordered || t.layout.SpanBytes() != ssd.PageBytes {
		return errors.New("the rows of x must be in the user's order, each within a page")
	}
	passes, err := decide(c, t.layout.NumRows, epochs)
	if err != nil {
		return err
	}
	width := t.layout.RowBytes
	longest := 0
	for _, b := range slices.Concat(epochs...) {
		longest = max(longest, len(b))
	}
	cached, err := cache.NewRows(mem.NewBudget(0), c.capacity, []int{width})
	if err != nil {
		return err
	}
	// Touched before the clock starts, as batches of a loader that has run for a while are.
	tensors := make(chan []byte, c.flight+1)
	for range cap(tensors) {
		tensor := make([]byte, longest*width)
		for i := 0; i < len(tensor); i += ssd.PageBytes {
			tensor[i] = 1
		}
		tensors <- tensor
	}
	l := &loader{table: t, drawn: drawn, cached: cached, tensors: tensors, values: values}
	for e, batches := range passes {
		r, err := l.epoch(e, batches)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// loader holds the state that all epochs share.
type loader struct {
	*table
	drawn   *batches
	cached  *cache.Rows
	tensors chan []byte
	values  []byte
}

// epoch samples and reads several batches at a time and completes them in their order.
func (l *loader) epoch(number int, batches []*pass) (r result, err error) {
	kernel, err := kernelReads()
	if err != nil {
		return r, err
	}
	width := l.layout.RowBytes
	before, start := l.engine.Stats(), time.Now()
	go func() {
		for i, b := range batches {
			b.tensor = <-l.tensors
			go func() {
				if err := l.drawn.draw(number, i, b.check); err != nil {
					b.ready <- err
					return
				}
				b.ready <- l.read(b)
			}()
		}
	}()
	for i, b := range batches {
		if err := <-b.ready; err != nil {
			return r, err
		}
		b.complete(l.cached, width)
		if i == 0 {
			r.First = time.Since(start).Seconds()
		}
		if err := b.verify(width, l.values); err != nil {
			return r, err
		}
		l.tensors <- b.tensor
		r.Rows += len(b.rows)
		r.Reads += len(b.misses)
	}
	r.Seconds = time.Since(start).Seconds()
	after := l.engine.Stats()
	r.Requests, r.Bytes = after.Requests-before.Requests, after.Bytes-before.Bytes
	now, err := kernelReads()
	r.Kernel = now - kernel
	return r, err
}

// read brings the missed rows, each by a request of its own.
func (t *table) read(b *pass) error {
	ranges := make([]ssd.Range, len(b.misses))
	for i, pos := range b.misses {
		ranges[i] = ssd.Range{Off: t.layout.Offset(int64(b.rows[pos])) / ssd.PageBytes * ssd.PageBytes, Len: ssd.PageBytes}
	}
	width := t.layout.RowBytes
	return t.engine.Read(context.Background(), t.handle, ranges, func(i int, data []byte) error {
		pos := int(b.misses[i])
		at := int(t.layout.Offset(int64(b.rows[pos])) - ranges[i].Off)
		copy(b.tensor[pos*width:(pos+1)*width], data[at:])
		return nil
	})
}

// complete copies what is cached into the batch, and then what enters the cache.
func (b *pass) complete(cached *cache.Rows, width int) {
	rows.Copy(b.tensor, b.hits, cached.Table(0), b.slots, width)
	for _, m := range b.in {
		copy(cached.Row(0, int64(m.Slot)), b.tensor[int(m.Pos)*width:(int(m.Pos)+1)*width])
	}
}

func (b *pass) verify(width int, values []byte) error {
	for i, row := range b.rows {
		got, want := binary.LittleEndian.Uint32(b.tensor[i*width:]), binary.LittleEndian.Uint32(values[4*row:])
		if got != want {
			return fmt.Errorf("row %d begins with %v, expected %v", row, math.Float32frombits(got), math.Float32frombits(want))
		}
	}
	return nil
}

// decide runs the policy over all epochs.
func decide(c config, numRows int64, epochs [][]plan.Batch) ([][]*pass, error) {
	budget := mem.NewBudget(0)
	passes := make([][]*pass, len(epochs))
	if c.policy == "ginex" {
		planner, err := plan.New(budget, plan.Config{NumRows: numRows, Capacity: c.capacity, Transfer: "random"})
		if err != nil {
			return nil, err
		}
		defer planner.Close()
		for e, batches := range epochs {
			p, err := planner.Plan(context.Background(), int64(e*len(batches)), plan.InMemory(batches), nil)
			if err != nil {
				return nil, err
			}
			for i, b := range batches {
				var step plan.Step
				if err := p.Step(context.Background(), i, &step); err != nil {
					return nil, err
				}
				passes[e] = append(passes[e], newPass(b, &step.Step))
			}
			p.Release()
		}
		return passes, nil
	}
	policy, err := cache.New(c.policy, budget, numRows, c.capacity)
	if err != nil {
		return nil, err
	}
	defer policy.Close()
	var step cache.Step
	for e, batches := range epochs {
		for _, b := range batches {
			policy.Step(b, &step)
			passes[e] = append(passes[e], newPass(b, &step))
		}
	}
	return passes, nil
}

func newPass(batch plan.Batch, s *cache.Step) *pass {
	p := &pass{rows: batch, in: slices.Clone(s.In), ready: make(chan error, 1)}
	for i, slot := range s.Slots {
		if slot == cache.Miss {
			p.misses = append(p.misses, int32(i))
		} else {
			p.hits, p.slots = append(p.hits, int32(i)), append(p.slots, slot)
		}
	}
	return p
}

// kernelReads returns the bytes that the kernel has read from devices for this process.
func kernelReads() (int64, error) {
	data, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(data), "\nread_bytes: ")
	if !found {
		return 0, fmt.Errorf("/proc/self/io has no read_bytes: %q", data)
	}
	return strconv.ParseInt(strings.SplitN(rest, "\n", 2)[0], 10, 64)
}
