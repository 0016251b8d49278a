package ssd

import (
	"math"
	"sync"
	"time"
)

// Learned corrects a calibrated Device while its engine works. Rented volumes are fast for seconds or for half an hour
// and slower afterwards, and a calibration measures only the first second.
//
// It has a factor for each of three costs: of a request of one page anywhere, of the longest request in order, and of a
// page written meanwhile. After a stretch of work with a full queue of the engine, it compares the time with the time
// by these costs. Short requests inform the first cost and long ones the second; a cost without stretches of its own
// follows the others, since a volume with one limit usually has more. Rejected: solving for the costs by least squares,
// as most stretches of a window are alike, and costs that they do not tell apart would follow noise.
//
// It is safe for concurrent use; mu guards the mutable fields.
type Learned struct {
	calibrated Device
	slotPages  float64

	mu      sync.Mutex
	factors [prices]float64 // of time: above 1, the device is slower than calibrated
	seen    [prices]float64 // stretches that informed each factor
	full    Full            // counts of the engine at the end of the last stretch
	written int64           // bytes written by then, and the time
	at      time.Time
}

const (
	perPage, perSlot, perWritten = 0, 1, 2 // indices of the costs

	prices = 3

	// stretch is the time with a full queue after which factors are updated: several tenths of a second, since some
	// volumes grant their limits per tenth.
	stretch = 400 * time.Millisecond
	// believed is the part of a measured deviation, as an exponent, that a stretch applies. Arbitrary: three stretches
	// apply seven eighths.
	believed = 0.5
	// settled is the number of stretches after which a price is worth keeping: see believed.
	settled = 3
	// unknowable is the error, as a logarithm, of a straight line through the bend of a disk and of chance within a
	// stretch; smaller deviations change nothing.
	unknowable = 0.15
	// slowest and fastest bound the factors. A volume of 3,000 requests a second may have answered 100,000 during its
	// calibration; one that was busy then may be faster now. Arbitrary beyond that.
	slowest, fastest = 1024, 1. / 8
)

// Learn starts from a calibration, for an engine with the given slot size and counts.
func Learn(calibrated Device, slotBytes int, done Full) *Learned {
	l := &Learned{calibrated: calibrated, slotPages: float64(slotBytes / PageBytes), full: done, at: time.Now()}
	for i := range l.factors {
		l.factors[i] = 1
	}
	return l
}

// Observe takes the engine's counts with a full queue, and the bytes written to a Temp, both since they were opened.
func (l *Learned) Observe(full Full, written int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, took := time.Now(), full.Time-l.full.Time
	if took < stretch {
		return
	}
	// Writes are assumed to be spread evenly over the time.
	share := min(1, took.Seconds()/max(now.Sub(l.at), 1).Seconds())
	l.learn(took, full.Requests-l.full.Requests, full.Bytes-l.full.Bytes, share*float64(written-l.written))
	l.full, l.written, l.at = full, written, now
}

// learn updates the factors by a stretch of work.
func (l *Learned) learn(took time.Duration, requests, bytes int64, written float64) {
	if requests == 0 || l.calibrated.PageSeconds <= 0 {
		return
	}
	n, d := float64(requests), l.calibrated
	long := max(0, min(1, (float64(bytes)/PageBytes/n-1)/(l.slotPages-1))) // 0: requests of one page; 1: of a slot
	parts := [prices]float64{n * (1 - long) * d.Seconds(1, 1), n * long * l.slot(), d.WriteSeconds(written)}
	sum := 0.
	for i := range parts {
		parts[i] *= l.factors[i]
		sum += parts[i]
	}
	longer := math.Log(took.Seconds() / sum)
	longer = math.Copysign(max(0, math.Abs(longer)-unknowable), longer)
	about := [prices]float64{1 - long, long, parts[perWritten] / sum}
	blame, whole := about, 0.
	for i := range parts {
		blame[i] += 1 / (1 + l.seen[i])
		whole += blame[i] * parts[i] / sum
		l.seen[i] += about[i]
	}
	for i := range parts {
		change := longer * min(1, believed*blame[i]/whole)
		l.factors[i] = max(fastest, min(l.factors[i]*math.Exp(change), slowest))
	}
}

// slot returns the calibrated time of the longest request in order.
func (l *Learned) slot() float64 {
	if l.calibrated.ReadBytesPerSecond <= 0 {
		return l.calibrated.Seconds(1, int64(l.slotPages))
	}
	return l.slotPages * PageBytes / l.calibrated.ReadBytesPerSecond
}

// Device returns the calibrated device with its corrected rates.
func (l *Learned) Device() Device {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.with(l.factors)
}

// Prior returns what to begin with next time, or false where that is the calibration: too little has been learned, or
// nothing new. It is half way, as a power, between the two, since either may have met a burst of somebody else's work.
func (l *Learned) Prior() (Device, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	half, changed := l.factors, false
	for i, f := range l.factors {
		half[i] = math.Sqrt(f)
		changed = changed || l.seen[i] >= settled && math.Abs(math.Log(f)) > unknowable
	}
	return l.with(half), changed
}

// with returns the device with factors of its calibrated prices.
func (l *Learned) with(factors [prices]float64) Device {
	d := l.calibrated
	if d.PageSeconds <= 0 {
		return d // not calibrated
	}
	// A page takes at most the time of a slot, and at least its share of a slot. A slot in order takes at most the time of
	// a slot anywhere, and at least the time of a page if it did when calibrated.
	page, slot, inOrder := d.Seconds(1, 1), d.Seconds(1, int64(l.slotPages)), l.slot()
	least := min(1, inOrder/page)
	page, slot, inOrder = page*factors[perPage], slot*factors[perSlot], inOrder*factors[perSlot]
	inOrder = max(inOrder, page*least)
	slot = max(slot, page, inOrder)
	page = max(page, slot/l.slotPages)
	d.PageSeconds = max((slot-page)/(l.slotPages-1), fastestPage)
	d.RequestSeconds = max(0, page-d.PageSeconds)
	d.ReadBytesPerSecond = l.slotPages * PageBytes / inOrder
	d.WriteBytesPerSecond /= factors[perWritten]
	return d
}

// Wrong reports whether reads have turned out slower or faster than calibrated by more than a factor, or writes, if
// stretches informed them.
func (l *Learned) Wrong(factor float64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, f := range l.factors {
		if (i != perWritten || l.seen[i] >= 1) && (f > factor || f < 1/factor) {
			return true
		}
	}
	return false
}
