package store

import (
	"encoding/binary"
	"fmt"
	"path/filepath"

	"freshgo/core/internal/crc"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// The two files of an array are its name with these suffixes.
const (
	dataSuffix = ".bin"
	sumsSuffix = ".crc"
)

// tensorFile names the files of tensor number i, or split, of those whose files begin so.
func tensorFile(prefix string, i int, name string) string {
	return fmt.Sprintf("%s%d_%s", prefix, i, fileName(name))
}

// arrayWriter writes one array of a store: its rows in their layout, and the checksums of its pages. It ends with
// finish or abort.
type arrayWriter struct {
	array   *manifest.Array
	layout  ssd.Layout // its NumRows is not used: it is known at the end
	data    *ssd.Writer
	sums    *ssd.Writer
	page    uint32 // checksum of the page being filled
	filled  int    // its bytes
	sumsCRC uint32
}

// newArrayWriter creates the files of an array with rows of this type and shape. It charges arrayWriterBytes(chunk) to
// the budget until it ends.
func newArrayWriter(
	fs ssd.FS, dir, name string, dtype manifest.DType, rowShape []int64, chunk int, budget *mem.Budget,
) (*arrayWriter, error) {
	rowBytes, ok := rowBytesOf(dtype, rowShape)
	if !ok {
		panic("store: row size was not checked")
	}
	w := &arrayWriter{layout: LayoutFor(rowBytes, 0), array: &manifest.Array{
		File: name + dataSuffix, CrcFile: name + sumsSuffix, Dtype: dtype, RowShape: rowShape,
	}}
	w.array.RowsPerPage = int64(w.layout.RowsPerPage)
	var err error
	if w.data, err = ssd.NewWriter(fs, filepath.Join(dir, w.array.File), budget, chunk); err != nil {
		return nil, err
	}
	if w.sums, err = ssd.NewWriter(fs, filepath.Join(dir, w.array.CrcFile), budget, sumsChunk(chunk)); err != nil {
		w.data.Abort()
		return nil, err
	}
	return w, nil
}

// useLayout places rows as another array of the same type and shape does. It comes before the first write.
func (w *arrayWriter) useLayout(l ssd.Layout) {
	w.layout = l
	w.array.RowsPerPage = int64(l.RowsPerPage)
}

// sumsChunk returns the chunk of the checksums' writer: a thousandth of the data passes through it.
func sumsChunk(chunk int) int { return int(roundUp(int64(chunk)/64, ssd.PageBytes)) }

// arrayWriterBytes returns the memory of an arrayWriter.
func arrayWriterBytes(chunk int) int64 {
	return ssd.WriterBytes(chunk) + ssd.WriterBytes(sumsChunk(chunk))
}

// writeRows appends dense rows.
func (w *arrayWriter) writeRows(p []byte) error {
	pageRows := w.layout.RowsPerPage * w.layout.RowBytes
	if pageRows == 0 || pageRows == ssd.PageBytes {
		return w.write(p)
	}
	for len(p) > 0 {
		n := min(pageRows-w.filled, len(p))
		if err := w.write(p[:n]); err != nil {
			return err
		}
		if w.filled == pageRows {
			if err := w.pad(); err != nil {
				return err
			}
		}
		p = p[n:]
	}
	return nil
}

// write appends bytes of the file.
func (w *arrayWriter) write(p []byte) error {
	if _, err := w.data.Write(p); err != nil {
		return err
	}
	for len(p) > 0 {
		n := min(ssd.PageBytes-w.filled, len(p))
		w.page = crc.Update(w.page, p[:n])
		w.filled += n
		p = p[n:]
		if w.filled == ssd.PageBytes {
			if err := w.endPage(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *arrayWriter) endPage() error {
	var sum [crcBytes]byte
	binary.LittleEndian.PutUint32(sum[:], w.page)
	w.sumsCRC = crc.Update(w.sumsCRC, sum[:])
	w.page, w.filled = 0, 0
	_, err := w.sums.Write(sum[:])
	return err
}

var zeroPage [ssd.PageBytes]byte

// pad fills the page with zeros, if it has been begun.
func (w *arrayWriter) pad() error {
	if w.filled == 0 {
		return nil
	}
	return w.write(zeroPage[w.filled:])
}

// finish makes both files durable and returns the description of the array with this many rows.
func (w *arrayWriter) finish(rows int64) (*manifest.Array, error) {
	defer w.abort()
	if err := w.pad(); err != nil {
		return nil, err
	}
	if err := w.data.Close(); err != nil {
		return nil, err
	}
	if err := w.sums.Close(); err != nil {
		return nil, err
	}
	w.array.Rows, w.array.FileBytes, w.array.CrcFileCrc = rows, w.data.Offset(), w.sumsCRC
	return w.array, nil
}

// abort gives everything back and leaves the files incomplete. After finish it does nothing.
func (w *arrayWriter) abort() {
	w.data.Abort()
	w.sums.Abort()
}
