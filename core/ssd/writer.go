package ssd

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"freshgo/core/internal/guard"
	"freshgo/core/mem"
)

const (
	// writerChunks is the number of chunks of a Writer: one that fills, one that is written, and one between them, so that
	// neither side waits for the other's jitter. One write at a time suffices: two were no faster on the disk measured.
	writerChunks = 3
	// dirtyBytes bounds buffered writes in the page cache before they are forced to disk. Arbitrary: a fraction of a
	// second for a disk, and little memory.
	dirtyBytes = 64 << 20
)

// Writer writes a file from beginning to end, with O_DIRECT if the file system allows it, else through the page cache
// with at most dirtyBytes of it dirty. A goroutine writes a chunk while the next one fills.
//
// A Writer belongs to one goroutine. It ends with Close or Abort.
type Writer struct {
	fs      FS
	file    File // belongs to flush until stopped is closed
	direct  bool // with file
	dirty   int64
	block   *mem.Block
	filling []byte // the filled part of a chunk, whose size is its capacity
	offset  int64
	full    chan []byte
	free    chan []byte
	stopped chan struct{}                // closed when the goroutine has ended
	failure atomic.Pointer[writeFailure] // the first error of the goroutine
	ended   bool
	result  error // returned by Close
}

type writeFailure struct{ err error }

// NewWriter creates path, or overwrites the file there, which may have reserved space: Close truncates it to the bytes
// written. It follows no symbolic link at the end of path. The Writer uses chunks of chunk bytes, a multiple of
// PageBytes; 1 to 4 MiB reach a disk's sequential rate. It charges WriterBytes(chunk) of Staging to the budget until
// Close or Abort.
func NewWriter(fs FS, path string, budget *mem.Budget, chunk int) (*Writer, error) {
	if chunk <= 0 || chunk%PageBytes != 0 {
		return nil, fmt.Errorf("ssd: chunk of %d bytes, expected a positive multiple of %d", chunk, PageBytes)
	}
	block, err := budget.Alloc(mem.Staging, WriterBytes(chunk))
	if err != nil {
		return nil, err
	}
	w := &Writer{
		fs: fs, direct: true, block: block,
		full: make(chan []byte, writerChunks), free: make(chan []byte, writerChunks), stopped: make(chan struct{}),
	}
	flags := syscall.O_WRONLY | syscall.O_CREAT | syscall.O_NOFOLLOW
	w.file, err = fs.Open(path, flags|Direct, 0o644)
	if errors.Is(err, syscall.EINVAL) {
		w.direct = false
		w.file, err = fs.Open(path, flags, 0o644)
	}
	if err != nil {
		block.Free()
		return nil, err
	}
	memory := block.Bytes()
	for i := range writerChunks {
		w.free <- memory[i*chunk : i*chunk : (i+1)*chunk]
	}
	w.filling = <-w.free
	guard.Go(w.flush, func(p *guard.PanicError) { w.stop(p) })
	return w, nil
}

// WriterBytes returns the memory of a Writer with chunks of this size.
func WriterBytes(chunk int) int64 { return writerChunks * int64(chunk) }

// Offset returns the number of bytes written so far.
func (w *Writer) Offset() int64 { return w.offset }

// Write appends p. It blocks while all chunks wait for the disk. An error may belong to an earlier Write; the Writer is
// then unusable.
func (w *Writer) Write(p []byte) (int, error) {
	if w.ended {
		return 0, ErrClosed
	}
	written := 0
	for len(p) > 0 {
		if len(w.filling) == cap(w.filling) {
			if err := w.next(); err != nil {
				return written, err
			}
		}
		n := copy(w.filling[len(w.filling):cap(w.filling)], p)
		w.filling = w.filling[:len(w.filling)+n]
		w.offset += int64(n)
		written += n
		p = p[n:]
	}
	return written, nil
}

// Close writes the rest, makes the file durable and closes it. It returns the first error of the Writer's life;
// repeated calls return the same.
func (w *Writer) Close() error {
	if w.ended {
		return w.result
	}
	if n := len(w.filling); n > 0 {
		// Direct writes are whole pages; the padding is truncated below.
		padded := w.filling[:(n+PageBytes-1)/PageBytes*PageBytes]
		clear(padded[n:])
		w.full <- padded
	}
	w.result = w.end(func() error {
		return errors.Join(w.file.Truncate(w.offset), w.file.Sync())
	})
	return w.result
}

// Abort stops without writing the rest. The file stays, incomplete. After Close it does nothing.
func (w *Writer) Abort() {
	if w.ended {
		return
	}
	w.result = ErrClosed
	_ = w.end(func() error { return nil })
}

// end waits for the goroutine, runs finish if all was written, and frees everything.
func (w *Writer) end(finish func() error) error {
	w.ended = true
	close(w.full)
	<-w.stopped
	err := w.failed()
	if err == nil {
		err = finish()
	}
	err = errors.Join(err, w.file.Close())
	w.block.Free()
	w.filling = nil
	return err
}

// next passes on the full chunk and takes an empty one.
func (w *Writer) next() error {
	if err := w.failed(); err != nil {
		return err
	}
	w.full <- w.filling // has room for every chunk
	select {
	case w.filling = <-w.free:
		return nil
	case <-w.stopped:
		w.filling = nil
		return w.failed()
	}
}

func (w *Writer) failed() error {
	if f := w.failure.Load(); f != nil {
		return f.err
	}
	return nil
}

// flush writes chunks in the goroutine. It ends after a failure, which next detects.
func (w *Writer) flush() {
	offset := int64(0)
	for chunk := range w.full {
		if err := w.writeChunk(chunk, offset); err != nil {
			w.stop(err)
			return
		}
		offset += int64(len(chunk))
		w.free <- chunk[:0]
	}
	w.stop(nil)
}

func (w *Writer) stop(err error) {
	if err != nil {
		w.failure.Store(&writeFailure{err})
	}
	close(w.stopped)
}

func (w *Writer) writeChunk(chunk []byte, offset int64) error {
	err := WriteFull(w.file, chunk, offset)
	if w.direct && errors.Is(err, syscall.EINVAL) {
		// Some file systems accept O_DIRECT at open and refuse it here.
		if err = w.reopenBuffered(); err == nil {
			err = WriteFull(w.file, chunk, offset)
		}
	}
	if err != nil || w.direct {
		return err
	}
	if w.dirty += int64(len(chunk)); w.dirty >= dirtyBytes {
		w.dirty = 0
		return w.file.Sync()
	}
	return nil
}

func (w *Writer) reopenBuffered() error {
	buffered, err := w.fs.Open(w.file.Name(), syscall.O_WRONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	_ = w.file.Close() // a later Sync of the new descriptor covers the writes through this one
	w.file, w.direct = buffered, false
	return nil
}
