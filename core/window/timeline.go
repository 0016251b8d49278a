package window

import (
	"sync"
	"time"
)

// timeline keeps when a planned loader did what, for its picture.
type timeline struct {
	opened time.Time
	mu     sync.Mutex // guards all below
	spans  [numActivities]spans
}

// activity is the kind of work of a span of the timeline.
type activity int

const (
	spanSampling activity = iota // a window's batches
	spanPlanning                 // a window
	spanScanning                 // a window's prologue
	spanUpdating                 // the cache at a batch: rows that leave and enter
	spanReading                  // a batch: its packs, and its other cold rows
	spanWaiting                  // the consumer, for a batch
	numActivities
)

var activities = [numActivities]string{"sampling", "planning", "scanning", "updating", "reading", "waiting"}

// Span is a piece of work for a batch, or for a window by its first batch: the batch's number since planning began, and
// seconds since the loader was opened.
type Span [3]float64

// spans is the last spans of an activity, the oldest at next where there are keptSpans.
type spans struct {
	last []Span
	next int
}

const keptSpans = 2048 // arbitrary: some epochs of batches

// add records an activity since start for the batch number first.
func (t *timeline) add(a activity, first int64, start time.Time) {
	end := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.spans[a]
	of := Span{float64(first), start.Sub(t.opened).Seconds(), end.Sub(t.opened).Seconds()}
	if len(s.last) < keptSpans {
		s.last = append(s.last, of)
		return
	}
	s.last[s.next] = of
	s.next = (s.next + 1) % keptSpans
}

// all returns the spans kept by activity, in the order in which they ended.
func (t *timeline) all() map[string][]Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := map[string][]Span{}
	for a := range t.spans {
		s := &t.spans[a]
		found[activities[a]] = append(append([]Span{}, s.last[s.next:]...), s.last[:s.next]...)
	}
	return found
}
