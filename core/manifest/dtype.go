package manifest

import "fmt"

var dtypes = [...]struct {
	name string
	size int
}{
	DType_BOOL:     {"bool", 1},
	DType_INT8:     {"int8", 1},
	DType_INT16:    {"int16", 2},
	DType_INT32:    {"int32", 4},
	DType_INT64:    {"int64", 8},
	DType_UINT8:    {"uint8", 1},
	DType_UINT16:   {"uint16", 2},
	DType_UINT32:   {"uint32", 4},
	DType_UINT64:   {"uint64", 8},
	DType_FLOAT16:  {"float16", 2},
	DType_BFLOAT16: {"bfloat16", 2},
	DType_FLOAT32:  {"float32", 4},
	DType_FLOAT64:  {"float64", 8},
	DType_UINT40:   {"uint40", 5},
}

// Known reports whether d is a type of this version that tensors may have.
func (d DType) Known() bool { return d > DType_UNSPECIFIED && d < DType_UINT40 }

// Size returns the bytes of an element. d must be Known, or UINT40.
func (d DType) Size() int { return dtypes[d].size }

// Label returns NumPy's and PyTorch's name of the type, or a number where no version has it.
func (d DType) Label() string {
	if d <= DType_UNSPECIFIED || int(d) >= len(dtypes) {
		return fmt.Sprintf("dtype(%d)", int32(d))
	}
	return dtypes[d].name
}

// IsInteger reports whether d is a signed or unsigned integer; bool is not.
func (d DType) IsInteger() bool { return d >= DType_INT8 && d <= DType_UINT64 }

// IsFloat reports whether d can hold NaN.
func (d DType) IsFloat() bool { return d >= DType_FLOAT16 && d <= DType_FLOAT64 }
