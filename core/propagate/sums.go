package propagate

import (
	"context"
	"unsafe"

	"freshgo/core/internal/asm"
	"freshgo/core/internal/guard"
	"freshgo/core/mem"
	"freshgo/core/store"
)

// spillWriters is the number of concurrent writes of slices. Arbitrary: a disk works best with a few writes at once.
const spillWriters = 4

// edgesAhead is the distance of prefetches of sources from the edge that is added up. Rows of 128 columns are 16 KiB
// then, which the first cache holds; shorter ones are more loads than a core keeps on their way.
const edgesAhead = 32

// addPart makes the results of a part, one slice of columns after the other.
func (p *pass) addPart(ctx context.Context, i int) (err error) {
	of := &p.out.parts[i]
	at := bounds(of.rows.count, p.plan.slices[i])
	p.r.report.Slices += p.plan.slices[i]
	var sources *spill
	if p.plan.divides(i) {
		if sources, err = p.divideSources(ctx, i); err != nil {
			return err
		}
	}
	for s := range p.plan.slices[i] {
		if err := p.addSlice(ctx, i, s, at[s], at[s+1], sources); err != nil {
			return err
		}
	}
	return nil
}

// divideSources reads the rows of a part's sources once and puts their columns into the temporary file by slices.
func (p *pass) divideSources(ctx context.Context, i int) (*spill, error) {
	c, n := p.out.parts[i].rows, p.out.parts[i].sources.Count
	at := bounds(c.count, p.plan.slices[i])
	s, _, err := p.spill(p.sourcesAt, n, at, c.elementBytes())
	if err != nil {
		return nil, err
	}
	s.temp = p.temp
	rows := min(p.plan.rows, n)
	sizes := []int64{c.spanBytes(rows)}
	for _, width := range s.width {
		sizes = append(sizes, rows*width)
	}
	memory, free, err := p.scratch(sizes...)
	if err != nil {
		return nil, err
	}
	defer free()
	for first := int64(0); first < n; first += rows {
		rows := min(rows, n-first)
		data, err := p.read[i].Span(ctx, memory[0], first, rows)
		if err != nil {
			return nil, err
		}
		guard.Split(p.r.threads, len(s.width), func(lo, hi int) {
			for j := lo; j < hi; j++ {
				c.widen(data, at[j], at[j+1], memory[1+j][:rows*s.width[j]])
			}
		})
		err = guard.Each(ctx, min(spillWriters, len(s.width)), func(ctx context.Context, w int) error {
			for j := w; j < len(s.width); j += spillWriters {
				if err := s.write(j, first, memory[1+j][:cap(memory[1+j])]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		p.progress(rows)
	}
	return s, nil
}

// addSlice adds up the columns lo to hi of a part, the s-th slice, for all targets.
func (p *pass) addSlice(ctx context.Context, i, s, lo, hi int, sources *spill) error {
	c, n := p.out.parts[i].rows, p.out.parts[i].sources.Count
	element := int64(c.elementBytes())
	table, free, err := p.scratch(n * int64(hi-lo) * element)
	if err != nil {
		return err
	}
	defer free()
	if sources == nil {
		err = p.loadRows(ctx, i, lo, hi, table[0])
	} else {
		whole := table[0][:cap(table[0])]
		err = sources.read(ctx, s, 0, chunks(n, sources.chunk), [][]byte{whole})
	}
	if err != nil {
		return err
	}
	a, done, err := p.newAdder(i, s, lo, hi)
	if err != nil {
		return err
	}
	defer done()
	if p.plan.direct && p.plan.last(i, s) {
		if a.emitter, err = p.newEmitter(); err != nil {
			return err
		}
		defer a.emitter.close()
	}
	if element == 8 {
		err = addUp(ctx, a, mem.View[float64](table[0]))
	} else {
		err = addUp(ctx, a, mem.View[float32](table[0]))
	}
	if err == nil && a.emitter != nil {
		p.made.array, p.made.in, err = a.emitter.finish(ctx)
	}
	return err
}

// loadRows reads columns lo to hi of all rows of a part's sources.
func (p *pass) loadRows(ctx context.Context, i, lo, hi int, table []byte) error {
	c, n := p.out.parts[i].rows, p.out.parts[i].sources.Count
	width := int64((hi - lo) * c.elementBytes())
	space, free, err := p.scratch(c.spanBytes(min(p.plan.rows, n)))
	if err != nil {
		return err
	}
	defer free()
	for first := int64(0); first < n; first += p.plan.rows {
		rows := min(p.plan.rows, n-first)
		data, err := p.read[i].Span(ctx, space[0], first, rows)
		if err != nil {
			return err
		}
		out, stored := table[first*width:(first+rows)*width], c.array.Layout.RowBytes
		guard.Split(p.r.threads, int(rows), func(from, to int) {
			c.widen(data[from*stored:], lo, hi, out[int64(from)*width:int64(to)*width])
		})
	}
	return nil
}

// widen turns columns lo to hi of stored rows into float32, or float64 where they are.
func (c *column) widen(data []byte, lo, hi int, out []byte) {
	stored := int(c.array.Layout.RowBytes)
	size := c.elementBytes()
	width := (hi - lo) * size
	numbers := make([]float64, hi-lo)
	for i := 0; i*width < len(out); i++ {
		row, to := data[i*stored:][:stored], out[i*width:][:width]
		if c.narrow == nil && c.array.DType.Size() == size {
			copy(to, row[c.offset+lo*size:])
			continue
		}
		c.decode(row, lo, hi, numbers)
		for k, to := 0, mem.View[float32](to); k < len(to); k++ {
			to[k] = float32(numbers[k])
		}
	}
}

// adder adds up some columns of one part for all targets.
type adder struct {
	pass    *pass
	lists   *lists
	rowOf   []uint32
	width   int
	sums    []float64 // of a batch of targets
	loops   []float64 // with GCN, the weights of their self-loops
	slice   int
	whole   bool     // results are in memory for all targets
	result  *spill   // where they go; nil: they stay, or
	emitter *emitter // writes them with the other columns of their rows

	out    []byte // results: rows of stride bytes from row first on, these columns at offset
	first  int64
	stride int64
	offset int64
}

// newAdder makes the buffers for columns lo to hi of a part, the slice s.
func (p *pass) newAdder(i, s, lo, hi int) (*adder, func(), error) {
	a := &adder{pass: p, lists: p.lists[i], rowOf: p.rowOf[i], width: hi - lo, slice: s}
	targets, size := min(p.plan.rows, p.out.rows), int64(p.out.dtype.Size())
	a.stride = int64(a.width) * size
	sizes := []int64{8 * targets * int64(a.width), 0, 0}
	if p.out.kind == GCN {
		sizes[1] = 8 * targets
	}
	a.whole = p.plan.held || p.out.moved()
	if !p.plan.held {
		if !p.plan.direct || !p.plan.last(i, s) {
			a.result = p.results[i]
		}
		sizes[2] = targets * a.stride
		if a.whole {
			sizes[2] = p.out.rows * a.stride
		}
	}
	memory, free, err := p.scratch(sizes...)
	if err != nil {
		return nil, nil, err
	}
	a.sums, a.loops, a.out = mem.View[float64](memory[0]), mem.View[float64](memory[1]), memory[2]
	if p.plan.held {
		a.out, a.stride, a.offset = p.held, p.out.resultRowBytes(), int64(p.out.parts[i].first+lo)*size
	}
	return a, free, nil
}

// addUp sums the rows of the sources, a batch of targets at a time, for each target in the order of its list.
func addUp[T float32 | float64](ctx context.Context, a *adder, table []T) error {
	err := a.lists.scan(ctx, a.pass.plan.rows, func(c *piece) error {
		if c.begins {
			clear(a.sums)
			fill(a.loops, 1)
		}
		n := int64(len(c.ids))
		a.lists.each(c, a.pass.r.threads, func(target, lo, hi int64) {
			sums := a.sums[int(target-c.first)*a.width:][:a.width]
			prefetch(a, table, c.ids[min(lo+edgesAhead, n):min(hi+edgesAhead, n)])
			for k := lo; k < hi; k++ {
				by := c.weight(k)
				if a.loops != nil {
					if c.ids[k] == target {
						a.loops[target-c.first] = by
						continue
					}
					by *= a.lists.inverse[c.ids[k]]
				}
				add(sums, table[a.rowNumber(c.ids[k])*a.width:], by)
			}
		})
		if !c.last {
			return nil
		}
		if !a.whole {
			a.first = c.first
		}
		guard.Split(a.pass.r.threads, int(c.end-c.first), func(lo, hi int) {
			for t := c.first + int64(lo); t < c.first+int64(hi); t++ {
				sums := a.sums[int(t-c.first)*a.width:][:a.width]
				if a.loops != nil {
					by := a.loops[t-c.first] * a.lists.inverse[t]
					add(sums, table[a.rowNumber(t)*a.width:], by)
				}
				a.put(t, sums)
			}
		})
		a.pass.progress(c.end - c.first)
		switch {
		case a.whole:
			return nil
		case a.emitter != nil:
			return a.emitter.take(ctx, c.first, c.end-c.first, a.out)
		}
		return a.result.write(a.slice, c.first, a.out[:cap(a.out)])
	})
	if err != nil || a.result == nil || !a.whole {
		return err
	}
	for first := int64(0); first < a.pass.out.rows; first += a.result.chunk {
		if err := a.result.write(a.slice, first, a.out[first*a.stride:cap(a.out)]); err != nil {
			return err
		}
	}
	return nil
}

// prefetch asks for what adding up needs of these sources: rows, and weights of a GCN.
func prefetch[T float32 | float64](a *adder, table []T, sources []int64) {
	if a.loops != nil {
		asm.Prefetch(a.lists.inverse, sources)
	}
	for _, id := range sources {
		row := table[a.rowNumber(id)*a.width:][:a.width]
		asm.PrefetchRange(unsafe.Pointer(&row[0]), int(unsafe.Sizeof(row[0]))*a.width) // unsafe: only prefetched
	}
}

// add adds a multiple of a row to sums. The conversion keeps the compiler from fusing product and sum, which not every
// processor can.
func add[T float32 | float64](sums []float64, row []T, by float64) {
	row = row[:len(sums)]
	if by == 1 {
		for i, v := range row {
			sums[i] += float64(v)
		}
		return
	}
	for i, v := range row {
		sums[i] += float64(by * float64(v))
	}
}

// put converts a target's sums to the result of the reduction, and writes it to its row.
func (a *adder) put(target int64, sums []float64) {
	switch l := a.lists; l.kind {
	case Mean:
		n := float64(max(l.indptr.Degree(target), 1))
		for i := range sums {
			sums[i] /= n
		}
	case GCN:
		for i := range sums {
			sums[i] *= l.inverse[target]
		}
	}
	row := target
	if a.pass.at != nil {
		row = int64(a.pass.at[target])
	}
	dtype := a.pass.out.dtype
	at := (row-a.first)*a.stride + a.offset
	store.EncodeFloats(dtype, sums, a.out[at:][:int64(a.width)*int64(dtype.Size())])
}

// rowNumber returns the row of a source.
func (a *adder) rowNumber(node int64) int {
	if a.rowOf == nil {
		return int(node)
	}
	return int(a.rowOf[node])
}
