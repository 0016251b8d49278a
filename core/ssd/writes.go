package ssd

// Writes keeps several writes to a Temp in flight. It belongs to one goroutine, which it locks to its thread until
// Close.
//
// With an io_uring engine, Writes has a ring of its own: 16 writes of 64 KiB in flight then take half the processor
// time of 16 threads that each block in a write. Otherwise a write ends before Begin returns, and several goroutines
// have their own Writes (TempWriters).
type Writes struct {
	temp     *Temp
	depth    int
	inFlight int
	ring     writeRing // nil: there is none
	ended    []outcome // without a ring
}

// outcome is the result of a write.
type outcome struct {
	done func(error)
	err  error
}

// writeRing makes writes by descriptor.
type writeRing interface {
	begin(p []byte, off int64, done func(error))
	// await waits for some of the writes and calls their done; if it fails, it calls done for all and must not be used
	// again.
	await() (ended int, err error)
	close()
}

// Writes returns a Writes without writes in flight, with room for the number that TempWriters says.
func (e *Engine) Writes(t *Temp) *Writes {
	w := &Writes{temp: t, depth: 1}
	if depth := e.tempDepth(); depth > 1 && t.direct && ByDescriptor(t.file) {
		if ring := e.openWriteRing(t.file, depth); ring != nil {
			w.ring, w.depth = ring, depth
		}
	}
	return w
}

// InFlight returns the number of writes in flight.
func (w *Writes) InFlight() int { return w.inFlight }

// Full reports whether Await must be called before another write begins.
func (w *Writes) Full() bool { return w.inFlight == w.depth }

// Begin writes whole pages of page-aligned memory within the file. Await calls done after they are written or have
// failed; until then they must not change.
func (w *Writes) Begin(p []byte, off int64, done func(error)) {
	w.inFlight++
	if w.ring != nil {
		w.ring.begin(p, off, done)
		return
	}
	w.ended = append(w.ended, outcome{done, w.temp.Write(p, off)})
}

// Await waits until some of the writes in flight have ended. It returns at once if there are none.
func (w *Writes) Await() {
	if w.inFlight == 0 {
		return
	}
	if w.ring == nil {
		w.inFlight = 0
		for _, o := range w.ended {
			o.done(o.err)
		}
		w.ended = w.ended[:0]
		return
	}
	ended, err := w.ring.await()
	w.inFlight -= ended
	if err != nil {
		w.Close()
		w.depth = 1
	}
}

// Close frees the ring. No writes are in flight.
func (w *Writes) Close() {
	if w.ring != nil {
		w.ring.close()
		w.ring = nil
	}
}

// WriteFilter is implemented by a File that intercepts writes which the kernel performs by descriptor, without Pwrite.
// Like CompletionFilter for reads, it takes each result (bytes, or a negated errno) and returns the result to continue
// with. A File that is neither a WriteFilter nor OS's own is not written by descriptor.
type WriteFilter interface {
	FilterWrite(off int64, length int, result int32) int32
}

// ByDescriptor reports whether a file may be written without Pwrite. A File around such a file may be a WriteFilter.
func ByDescriptor(f File) bool {
	_, filtered := f.(WriteFilter)
	_, plain := f.(*osFile)
	return filtered || plain
}
