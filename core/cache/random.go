package cache

import "freshgo/core/mem"

// Random gives every row a score in [0, 1) that depends on the seed and the row
// alone: the random policy that FGNN compares with (section 6.3).
func Random(budget *mem.Budget, numRows int64, seed uint64) (*Vector, error) {
	v, err := NewVector(budget, numRows)
	if err != nil {
		return nil, err
	}
	key := scramble(seed)
	for row := range v.Hotness {
		// A float32 in this range distinguishes the upper 24 bits.
		v.Hotness[row] = float32(scramble(key^uint64(row))>>40) / (1 << 24)
	}
	return v, nil
}

// scramble is the output function of SplitMix64 (Steele et al., OOPSLA 2014).
func scramble(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
