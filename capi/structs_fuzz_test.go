package main

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// caller fills the structs of the C API as a caller may who keeps to the header in nothing but this: an array has as
// many elements as is said of it.
type caller struct {
	data     []byte
	elements unsafe.Pointer
}

func (c *caller) draw() uint64 {
	var word [8]byte
	c.data = c.data[copy(word[:], c.data):]
	return binary.LittleEndian.Uint64(word[:])
}

const (
	longest = 64 // arrays of numbers: maxDims, and 8 relations of 8 hops
	most    = 8  // what a count says
)

// fill fills a struct, and what its pointers lead to.
func (c *caller) fill(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			at := reflect.NewAt(field.Type, unsafe.Pointer(v.Field(i).UnsafeAddr())).Elem() // the same field, settable
			switch {
			case field.Name == "struct_size":
				at.SetUint(uint64(v.Type().Size()) - c.draw()%2*c.draw()%16)
			case strings.HasPrefix(field.Name, "num_") && field.Name != "num_nodes" || field.Name == "ndim":
				at.SetInt(int64(c.draw()%(most+2)) - 1)
			default:
				c.fill(at, depth)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			c.fill(v.Index(i), depth)
		}
	case reflect.Pointer:
		if kind := c.draw() % 8; kind == 0 || depth == 0 {
			return // NULL
		}
		of := v.Type().Elem()
		n := longest
		if of.Kind() == reflect.Struct && of.Size() > 32 {
			n = most
		}
		array := reflect.MakeSlice(reflect.SliceOf(of), n+1, n+1) // the last one stays zero, as the end of a string
		filled := min(n, 2)
		if of.Kind() != reflect.Struct {
			filled = min(n, int(c.draw()%longest))
		}
		for i := range filled {
			c.fill(array.Index(i), depth-1)
		}
		v.Set(array.Index(0).Addr())
	case reflect.UnsafePointer:
		if c.draw()%2 == 0 {
			v.SetPointer(c.elements)
		}
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(c.draw()))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(c.draw())
	case reflect.Float32, reflect.Float64:
		v.SetFloat(math.Float64frombits(c.draw()))
	}
}

// FuzzStructs: whatever a caller says in the structs of the C API is taken or refused.
func FuzzStructs(f *testing.F) {
	f.Add(make([]byte, 400))
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01"))
	page, err := syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	require.NoError(f, err)
	elements := unsafe.Pointer(unsafe.SliceData(page)) // which taking over a struct does not look at
	takers := []any{convertInput, updateChanges, graphInput, historyOptions, options}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, take := range takers {
			fn, c := reflect.ValueOf(take), &caller{data, elements}
			args := []reflect.Value{reflect.New(fn.Type().In(0).Elem())}
			c.fill(args[0].Elem(), 4)
			if fn.Type().NumIn() == 2 { // whether the graph is homogeneous
				args = append(args, reflect.ValueOf(c.draw()%2 == 0))
			}
			if err, ok := fn.Call(args)[1].Interface().(error); ok {
				require.True(t, errors.Is(err, errArgument) || errors.Is(err, errDType), "%v", err)
			}
		}
	})
}
