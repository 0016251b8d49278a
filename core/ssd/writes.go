package ssd

// Writes keeps several writes to a Temp in flight. It belongs to one goroutine, which it locks to its thread until
// Close.
//
// Where the engine has an io_uring, Writes has one as well: 16 writes of 64 KiB in flight then take half of the
// processor time of 16 threads that sleep for one write each. Elsewhere a write ends before Begin returns, and several
// goroutines have Writes of their own (TempWriters).
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

// writeRing is writes by descriptor.
type writeRing interface {
	begin(p []byte, off int64, done func(error))
	// await waits for some of the writes and calls done for them, and for all when it fails; then it is not used any
	// more.
	await() (ended int, err error)
	close()
}

// Writes returns none so far, with room for as many as TempWriters says.
func (e *Engine) Writes(t *Temp) *Writes {
	w := &Writes{temp: t, depth: 1}
	if depth := e.tempDepth(); depth > 1 && t.direct && ByDescriptor(t.file) {
		if ring := e.openWriteRing(t.file, depth); ring != nil {
			w.ring, w.depth = ring, depth
		}
	}
	return w
}

// InFlight returns the number of writes that have begun and not ended.
func (w *Writes) InFlight() int { return w.inFlight }

// Full reports whether no more writes may begin before Await.
func (w *Writes) Full() bool { return w.inFlight == w.depth }

// Begin writes whole pages of page-aligned memory within the file. Await calls done when they are written or cannot be;
// until then they must not change.
func (w *Writes) Begin(p []byte, off int64, done func(error)) {
	w.inFlight++
	if w.ring != nil {
		w.ring.begin(p, off, done)
		return
	}
	w.ended = append(w.ended, outcome{done, w.temp.Write(p, off)})
}

// Await waits until some of the writes in flight have ended. It returns at once where there are none.
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

// Close gives the ring back. Nothing is in flight.
func (w *Writes) Close() {
	if w.ring != nil {
		w.ring.close()
		w.ring = nil
	}
}

// WriteFilter is implemented by a File that has a say in writes which the kernel performs by descriptor, past Pwrite:
// as CompletionFilter does for reads, it takes the result of each (bytes, or a negated errno) and says what to go on
// with. A File that is neither one nor OS's own is not written by descriptor.
type WriteFilter interface {
	FilterWrite(off int64, length int, result int32) int32
}

// ByDescriptor reports whether a file may be written past Pwrite. A File around such a file may be a WriteFilter.
func ByDescriptor(f File) bool {
	_, filtered := f.(WriteFilter)
	_, plain := f.(*osFile)
	return filtered || plain
}
