//go:build fgtest

package main

/*
#include "freshgo.h"
*/
import "C"

// fg_test_panic breaks an invariant. It exists only in the library that the tests build to see what their callers then
// see.
//
//export fg_test_panic
func fg_test_panic(err *C.fg_error) C.int32_t {
	return export(err, func() error { panic("broken on purpose, größe") })
}
