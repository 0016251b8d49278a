package sample

import "math"

// Logarithms and exponentials of weighted draws, as a sequence of operations that are rounded one by one: a conversion
// to float64 keeps the compiler from fusing a product and a sum. A device that draws computes the same sequence
// (csrc/cuda/logarithm.h), so batches have the same bits everywhere; testdata/logarithm.txt holds some. The results are
// those of math.Log and math.Expm1 on amd64. Both use the reductions and the coefficients of FreeBSD's msun.

const (
	ln2Hi = 6.93147180369123816490e-01
	ln2Lo = 1.90821492927058770002e-10
)

// logarithm returns log(x) of a normal x above 0: with x = 2^k (1+f), sqrt(1/2) <= 1+f < sqrt(2), and s = f/(2+f), it
// is k log(2) + log((1+s)/(1-s)), where the second is a polynomial of s.
func logarithm(x float64) float64 {
	const root = 0x6a09e667f3bcd // the fraction of sqrt(1/2)
	b := math.Float64bits(x)
	fraction := b & (1<<52 - 1)
	below := (fraction - root) >> 63 // no branch: half of them would be mispredicted
	k := float64(int64(b>>52) - 1022 - int64(below))
	f := math.Float64frombits(fraction|(1022+below)<<52) - 1
	s := f / (2 + f)
	s2 := float64(s * s)
	s4 := float64(s2 * s2)
	odd := float64(s4*1.479819860511658591e-01) + 1.818357216161805012e-01
	odd = float64(s4*odd) + 2.857142874366239149e-01
	odd = float64(s4*odd) + 6.666666666666735130e-01
	even := float64(s4*1.531383769920937332e-01) + 2.222219843214978396e-01
	even = float64(s4*even) + 3.999999999940941908e-01
	r := float64(s2*odd) + float64(s4*even)
	half := float64(float64(0.5*f) * f)
	r = float64(s*(half+r)) + float64(k*ln2Lo)
	return float64(k*ln2Hi) - ((half - r) - f)
}

// exponentialMinus1 returns exp(x)-1 of an x of at most 0: with x = k log(2) + r, abs(r) <= log(2)/2, it is
// 2^k exp(r) - 1, where exp(r) is a rational function of r.
func exponentialMinus1(x float64) float64 {
	const (
		log2By2, log2By2Times3 = 3.46573590279972654709e-01, 1.03972077083991796413e+00
		log2Times56            = 3.88162421113569373274e+01
	)
	k, c := 0, 0.
	switch {
	case x <= -log2Times56:
		return -1
	case x < -log2By2:
		k = -1
		if x <= -log2By2Times3 {
			k = int(float64(1.44269504088896338700e+00*x) - 0.5)
		}
		hi, lo := x-float64(float64(k)*ln2Hi), float64(float64(k)*ln2Lo)
		x = hi - lo
		c = (hi - x) - lo
	case x > -0x1p-54:
		return x
	}
	half := float64(0.5 * x)
	square := float64(x * half)
	p := float64(square*-2.01099218183624371326e-07) + 4.00821782732936239552e-06
	p = float64(square*p) + -7.93650757867487942473e-05
	p = float64(square*p) + 1.58730158725481460165e-03
	p = float64(square*p) + -3.33333333333331316428e-02
	p = float64(square*p) + 1
	t := 3 - float64(p*half)
	e := float64(square * ((p - t) / (6 - float64(x*t))))
	if k == 0 {
		return x - (float64(x*e) - square)
	}
	e = (float64(x*(e-c)) - c) - square
	if k == -1 {
		return float64(0.5*(x-e)) - 0.5
	}
	y := math.Float64bits(1 - (e - x))
	return math.Float64frombits(y+uint64(int64(k))<<52) - 1
}
