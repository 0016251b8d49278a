package window

import "sync/atomic"

// progress is the progress of an inspector at sampling a superbatch. It is reported where the executor waits for one of
// its batches.
type progress struct {
	first, count int64
	done         atomic.Int64 // batches that have been sampled
}

// begin begins sampling a superbatch of count batches.
func (p *progress) begin(first, count int64) {
	p.first, p.count = first, count
	p.done.Store(0)
}

// sampled counts a batch.
func (p *progress) sampled(in *inspector) {
	p.report(in, "sampling batches", min(p.done.Add(1), p.count), p.count)
}

// reportPlanning reports that the superbatch from batch first on is planned, where the executor waits for it, and
// returns the end of this stage.
func reportPlanning(in *inspector, first int64) (end func()) {
	if !hasBegun(in, first) {
		return func() {}
	}
	in.cache.draw.Options.Progress.Report("planning batches", 0, 0)
	return func() { in.cache.draw.Options.Progress.Report("", 0, 0) }
}

func (p *progress) report(in *inspector, stage string, done, total int64) {
	if hasBegun(in, p.first) {
		in.cache.draw.Options.Progress.Report(stage, done, total)
	}
}
