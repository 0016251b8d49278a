package ssd

import "time"

const (
	MaxRetries  = maxRetries
	DirtyBytes  = dirtyBytes
	FastestPage = fastestPage
)

// NewEngineOn is NewEngine with a stub before the kernel.
func NewEngineOn(stub *KernelStub, o Options, probeDir string) (*Engine, error) {
	return newEngine(o, probeDir, stub)
}

// Fit is fit through requests of these lengths that took these times.
func Fit(pages []int64, seconds []float64) (request, page float64) {
	points := make([]tally, len(pages))
	for i := range points {
		points[i] = tally{pages: pages[i], count: 1000, took: time.Duration(seconds[i] * 1e12)}
	}
	return fit(points, tally.perRequest)
}

// Direct reports whether writes bypass the page cache.
func (t *Temp) Direct() bool { return t.direct }
