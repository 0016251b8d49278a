package store

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"freshgo/core/manifest"
	"freshgo/core/narrow"
	"freshgo/core/ssd"
)

// Source is an array of the user's: strided memory or the payload of a file. Nothing of it is copied before it is
// needed, and never all of it.
//
// Mem points to the element with index 0 in every dimension and must stay valid and unmoved while the source is in use.
// Negative strides are allowed for memory. A file must be laid out in C order, Fortran order, or as one regular slice
// of its first dimension.
type Source struct {
	DType   manifest.DType
	Shape   []int64 // the first dimension counts rows
	Strides []int64 // bytes from one index to the next, per dimension; nil for C order without gaps
	Mem     unsafe.Pointer
	File    string   // path of the file, when Mem is nil
	Offset  int64    // in File, of the element with index 0 in every dimension
	Pipe    int      // not 0: an open pipe from which all rows come once, in C order without gaps, when Mem is nil
	parts   []Source // whose rows follow one another, where joined made it; Mem and File are theirs

	Narrow narrow.Form // in which floats are stored; narrow.None: as they are
	Clip   bool        // numbers that overflow that form are clipped to it, rather than an error
}

// NamedSource is a tensor of the user's with its name.
type NamedSource struct {
	Name string
	Source
}

// Dense returns a source over the bytes of a C-ordered array in memory.
func Dense(dtype manifest.DType, shape []int64, data []byte) Source {
	// not dereferenced where data is empty
	return Source{DType: dtype, Shape: shape, Mem: unsafe.Pointer(unsafe.SliceData(data))}
}

// check validates a source called name and returns a copy with its strides filled in.
func (s Source) check(fs ssd.FS, name string) (Source, error) {
	if !s.DType.Known() {
		return s, invalid("%s has the unknown dtype %d", name, s.DType)
	}
	if len(s.Shape) == 0 || len(s.Shape) > maxDims+1 {
		return s, invalid("%s has %d dimensions, expected 1 to %d", name, len(s.Shape), maxDims+1)
	}
	if s.Shape[0] < 0 {
		return s, invalid("%s has shape %v", name, s.Shape)
	}
	rowBytes, ok := rowBytesOf(s.DType, s.Shape[1:])
	if !ok {
		advice := ""
		if slices.Contains(s.Shape[1:], 0) {
			advice = ": leave it out"
		}
		return s, invalid("%s has shape %v, expected rows of 1 to %d bytes%s", name, s.Shape, maxRowBytes, advice)
	}
	if _, ok := product(s.Shape[0], int64(rowBytes)); !ok {
		return s, invalid("%s has shape %v, expected fewer than 2^63 bytes", name, s.Shape)
	}
	if s.Strides == nil {
		s.Strides = denseStrides(s.Shape, s.DType)
	}
	if len(s.Strides) != len(s.Shape) {
		return s, invalid("%s has %d strides for %d dimensions", name, len(s.Strides), len(s.Shape))
	}
	if s.Pipe != 0 {
		return s, s.checkPipe(name)
	}
	if s.File == "" {
		if s.Mem == nil && s.Shape[0] > 0 {
			return s, invalid("%s has neither memory nor a file", name)
		}
		return s, nil
	}
	return s, s.checkFile(fs, name)
}

// checkPipe refuses what would have to be read twice, or in another order.
func (s Source) checkPipe(name string) error {
	switch {
	case s.Pipe < 0 || s.Mem != nil || s.File != "":
		return invalid("%s has pipe %d, expected an open one and neither memory nor a file", name, s.Pipe)
	case !s.dense():
		return invalid("%s comes through a pipe with strides %v, expected C order without gaps", name, s.Strides)
	case s.Narrow != narrow.None:
		return invalid("%s comes through a pipe, and is read more than once to store it as %s", name, s.Narrow)
	}
	return nil
}

// checkFile compares the bytes that a file must have with those it has.
func (s Source) checkFile(fs ssd.FS, name string) error {
	need := s.Offset
	if s.Offset < 0 {
		return invalid("%s begins at byte %d of %s, expected at least 0", name, s.Offset, s.File)
	}
	if s.Shape[0] > 0 {
		need += int64(s.DType.Size())
		for d, stride := range s.Strides {
			extent, ok := product(s.Shape[d]-1, max(stride, 0))
			if stride < 0 || !ok || need > math.MaxInt64-extent {
				return invalid("%s has strides %v in %s, expected C or Fortran order", name, s.Strides, s.File)
			}
			need += extent
		}
	}
	info, err := fs.Stat(s.File)
	if err != nil {
		return fmt.Errorf("store: %s: %w", name, access(err))
	}
	if !info.IsFile {
		return invalid("%s: %s is a directory, a pipe or a device, expected a file", name, s.File)
	}
	if info.Size < need {
		return invalid("%s: %s has %d bytes, expected %d: the file is truncated", name, s.File, info.Size, need)
	}
	if s.rowsContiguous() || s.Strides[0] == int64(s.DType.Size()) { // equal elements of successive rows are adjacent
		return nil
	}
	return invalid("%s has strides %v in %s, expected C or Fortran order", name, s.Strides, s.File)
}

// joined returns checked numbers of one dimension that lie in several places, one after the other.
func joined(parts []Source) Source {
	if len(parts) == 1 {
		return parts[0]
	}
	all := Source{DType: parts[0].DType, Shape: []int64{0}, parts: parts}
	for _, s := range parts {
		all.Shape[0] += s.rows()
	}
	all.Strides = denseStrides(all.Shape, all.DType)
	return all
}

// partOf returns the part that has a row, and the first row of it.
func (s Source) partOf(row int64) (part Source, first int64) {
	for _, part = range s.parts {
		if row < first+part.rows() {
			return part, first
		}
		first += part.rows()
	}
	return s, 0
}

// where ends what messages call a row: the file that has it, and its place there if other files come before.
func (s Source) where(row int64) string {
	part, first := s.partOf(row)
	switch {
	case part.File == "":
		return ""
	case first == 0:
		return " in " + part.File
	}
	return fmt.Sprintf(", which is number %d in %s,", row-first, part.File)
}

// rows returns the number of rows.
func (s Source) rows() int64 { return s.Shape[0] }

// rowBytes returns the size of a row without gaps.
func (s Source) rowBytes() int64 {
	n := int64(s.DType.Size())
	for _, d := range s.Shape[1:] {
		n *= d
	}
	return n
}

// slice returns the source of one index of the first dimension.
func (s Source) slice(i int64) Source {
	if s.File != "" {
		s.Offset += i * s.Strides[0]
	} else {
		s.Mem = unsafe.Add(s.Mem, i*s.Strides[0]) // within the array, as i is within its first dimension
	}
	s.Shape, s.Strides = s.Shape[1:], s.Strides[1:]
	return s
}

// rowsContiguous reports whether the elements of a row follow each other without gaps.
func (s Source) rowsContiguous() bool {
	dense := denseStrides(s.Shape, s.DType)
	for d := 1; d < len(s.Shape); d++ {
		if s.Shape[d] > 1 && s.Strides[d] != dense[d] {
			return false
		}
	}
	return s.File == "" || s.Strides[0] >= s.rowBytes() || s.rows() < 2
}

func denseStrides(shape []int64, dtype manifest.DType) []int64 {
	strides := make([]int64, len(shape))
	stride := int64(dtype.Size())
	for d, n := range slices.Backward(shape) {
		strides[d] = stride
		stride *= max(n, 1)
	}
	return strides
}
