package narrow

import (
	"encoding/binary"
	"math"
)

// The numbers of two bytes: float16 (IEEE 754 binary16) has 10 bits of fraction, bfloat16 has 7.

// FromFloat16 widens a float16, which is exact. A NaN becomes quiet, as the processor's own instruction makes it.
func FromFloat16(h uint16) float32 {
	sign, exponent, fraction := uint32(h&0x8000)<<16, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exponent {
	case 0: // zero, or a multiple of 2^-24
		v := float32(fraction) * 0x1p-24
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 0x1f:
		if fraction != 0 {
			fraction |= 0x200
		}
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// FromBFloat16 widens a bfloat16, which is exact.
func FromBFloat16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// Round writes numbers as Float16 or BFloat16, each rounded once to the nearest, ties to even: by way of float32 some
// float64 would be rounded twice, and to the wrong neighbour. A NaN stays one. A number that is too large becomes
// infinite; infinite reports whether there is any.
func Round[T float32 | float64](form Form, dst []byte, values []T) (infinite bool) {
	f := formatOf(form)
	drop := f.drop & 63
	for i, v := range values {
		bits := math.Float64bits(float64(v))
		magnitude := bits &^ (1 << 63)
		var h uint16
		if magnitude-f.least < f.normal {
			h = uint16((magnitude - f.shift + magnitude>>drop&1) >> drop)
		} else {
			h = f.beyond(magnitude)
			infinite = infinite || h == f.infinite
		}
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(bits>>48)&0x8000|h)
	}
	return infinite
}

// format describes a floating-point format of two bytes.
type format struct {
	infinite uint16
	drop     uint   // bits of its fraction that go
	least    uint64 // normal number
	normal   uint64 // how many float64 from there on round to normal numbers
	shift    uint64 // between the exponents, less nearly half of what is dropped
}

func formatOf(form Form) format {
	fraction := uint(10)
	if form == BFloat16 {
		fraction = 7
	}
	bias, drop := uint64(1)<<(14-fraction)-1, 52-fraction
	half := uint64(1) << (drop - 1)
	least := (1023 - bias + 1) << 52
	return format{
		infinite: 0x7fff >> fraction << fraction, drop: drop,
		least: least, normal: (1023+bias+1)<<52 - half - least, shift: (1023-bias)<<52 - (half - 1),
	}
}

// beyond rounds what becomes no normal number.
func (f *format) beyond(magnitude uint64) uint16 {
	switch {
	case magnitude > 0x7ff<<52: // NaN, made quiet
		return f.infinite | uint16(magnitude>>f.drop|1<<(51-f.drop))&^f.infinite&0x7fff
	case magnitude >= f.least:
		return f.infinite
	}
	// A multiple of the least number of all: the sum with a number whose last place that is rounds as it should.
	shifter := math.Float64frombits(f.least + uint64(f.drop)<<52 | 1<<51)
	sum := math.Float64frombits(magnitude) + shifter
	return uint16(math.Float64bits(sum) - math.Float64bits(shifter))
}
