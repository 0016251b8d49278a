package main

/*
#include "freshgo.h"
*/
import "C"

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"strings"
	"unsafe"
)

// taker takes over what a caller's structs point to. It keeps the first error, after which what it returns means
// nothing.
type taker struct{ err error }

// list views an array of n elements of the caller's, which stays where it is. P is what C calls T. It is nil only where
// there is no array.
func list[T, P any](t *taker, p *P, n int64, what string) []T {
	if !t.has(unsafe.Pointer(p), n, what) { // only compared
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(p)), n) // as long as the caller says
}

// has reports whether there is an array of n elements.
func (t *taker) has(p unsafe.Pointer, n int64, what string) bool {
	if t.err == nil && (n < 0 || n > 0 && p == nil) {
		t.err = invalid("%d %s at %p", n, what, p)
	}
	return t.err == nil && p != nil
}

// text returns a C string, or what NULL stands for.
func text(s *C.char, missing string) string {
	if s == nil {
		return missing
	}
	return C.GoString(s)
}

// members sets the fields of a Go struct from the members of a C struct. A field has the name of its member in a tag
// "option". An integer becomes a bool, which is true unless it is zero. A char pointer becomes a string, and NULL what
// stands after a comma in the tag. A pointer to numbers becomes a slice of the caller's memory; the member after the
// comma has its length, or else the one with "num_" before the name. A number that a byte cannot hold becomes its
// largest, which whoever checks the field refuses.
func (t *taker) members(out, in any) {
	to, from := reflect.ValueOf(out).Elem(), reflect.ValueOf(in).Elem()
	for i := range to.NumField() {
		tag, tagged := to.Type().Field(i).Tag.Lookup("option")
		if !tagged {
			continue
		}
		name, more, _ := strings.Cut(tag, ",")
		field, value := to.Field(i), member(from, name)
		switch field.Kind() {
		case reflect.Bool:
			field.SetBool(value.Int() != 0)
		case reflect.Int, reflect.Int64:
			field.SetInt(value.Int())
		case reflect.Uint8:
			field.SetUint(min(uint64(value.Int()), math.MaxUint8)) // negative ones are large
		case reflect.Uint64:
			field.SetUint(value.Uint())
		case reflect.Float64:
			field.SetFloat(value.Float())
		case reflect.String:
			field.SetString(text((*C.char)(value.UnsafePointer()), more)) // C has no other form of text
		case reflect.Slice:
			length := member(from, cmp.Or(more, "num_"+name)).Int()
			if field.Type().Elem().Size() != value.Type().Elem().Size() {
				panic(fmt.Sprintf("option %q: %v is no array of %v", name, value.Type(), field.Type().Elem()))
			}
			if t.has(value.UnsafePointer(), length, name) {
				// as long as the caller says, of elements of one size
				field.Set(reflect.SliceAt(field.Type().Elem(), value.UnsafePointer(), int(length)))
			}
		default:
			panic(fmt.Sprintf("option %q: no member becomes a %v", name, field.Type()))
		}
	}
}

// member returns the member of a C struct with a name.
func member(of reflect.Value, name string) reflect.Value {
	m := of.FieldByName(name)
	if !m.IsValid() {
		panic(fmt.Sprintf("%v has no member %q", of.Type(), name))
	}
	return m
}
