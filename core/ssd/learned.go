package ssd

import (
	"math"
	"sync"
	"time"
)

// Learned is a Device as its engine finds it while it works. Volumes that are rented are fast for seconds or for half
// an hour and slower from then on, and a calibration sees no more than its first second.
//
// It has a factor for each of three prices: of a request of one page anywhere, of the longest request in order, and of
// a page that is written meanwhile. A stretch of work, while the engine's queue was full, says by which factor all of
// it took longer than by these prices. Short requests tell of the first price and long ones of the second; a price that
// no stretch has told of yet follows the others, since a volume with one limit has more of them. Solving for the prices
// by least squares was left out: most stretches of a window are alike, and what they do not tell apart would follow
// noise.
//
// It is safe for concurrent use; mu guards what changes.
type Learned struct {
	calibrated Device
	slotPages  float64

	mu      sync.Mutex
	factors [prices]float64 // of time: above 1, the device is slower than its calibration
	seen    [prices]float64 // stretches that told of each
	full    Full            // what the engine had done when the last stretch ended
	written int64           // bytes, and at what time that was
	at      time.Time
}

const (
	perPage, perSlot, perWritten = 0, 1, 2 // the prices

	prices = 3

	// stretch is for how long a queue is full that tells something: several tenths of a second, since there are volumes
	// that give out what they allow by the tenth.
	stretch = 400 * time.Millisecond
	// believed is the part of what a stretch tells, as a power, that is taken over. Arbitrary: three say it all but for
	// an eighth.
	believed = 0.5
	// unknowable is by how much, as a logarithm, a straight line through the bend of a disk is off, and what chance
	// does to a stretch: nothing is learned from that.
	unknowable = 0.15
	// slowest and fastest bound the factors. A volume of 3,000 requests a second may have answered 100,000 while it was
	// calibrated; one that was shared with others then may be faster now. Arbitrary beyond.
	slowest, fastest = 1024, 1. / 8
)

// Learn begins with what a calibration has found, for an engine with such slots that has done so much.
func Learn(calibrated Device, slotBytes int, done Full) *Learned {
	l := &Learned{calibrated: calibrated, slotPages: float64(slotBytes / PageBytes), full: done, at: time.Now()}
	for i := range l.factors {
		l.factors[i] = 1
	}
	return l
}

// Observe takes what the engine has done while its queue was full, and the bytes that were written to a Temp, both
// since they were opened.
func (l *Learned) Observe(full Full, written int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, took := time.Now(), full.Time-l.full.Time
	if took < stretch {
		return
	}
	// What was written is taken to be spread over the time.
	share := min(1, took.Seconds()/max(now.Sub(l.at), 1).Seconds())
	l.learn(took, full.Requests-l.full.Requests, full.Bytes-l.full.Bytes, share*float64(written-l.written))
	l.full, l.written, l.at = full, written, now
}

// learn takes a stretch of work.
func (l *Learned) learn(took time.Duration, requests, bytes int64, written float64) {
	if requests == 0 || l.calibrated.PageSeconds <= 0 {
		return
	}
	n, d := float64(requests), l.calibrated
	long := max(0, min(1, (float64(bytes)/PageBytes/n-1)/(l.slotPages-1))) // 0: a page each; 1: a slot
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

// slot returns the time of the longest request in order, by the calibration.
func (l *Learned) slot() float64 {
	if l.calibrated.ReadBytesPerSecond <= 0 {
		return l.calibrated.Seconds(1, int64(l.slotPages))
	}
	return l.slotPages * PageBytes / l.calibrated.ReadBytesPerSecond
}

// Device returns the device as calibrated, with the rates that have been learned.
func (l *Learned) Device() Device {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.calibrated
	if d.PageSeconds <= 0 {
		return d // it was not calibrated
	}
	// A page takes no longer than a slot, and as long as its part of one at least; a slot in order takes no longer than
	// anywhere, and longer than a page if it did when it was calibrated.
	page, slot, inOrder := d.Seconds(1, 1), d.Seconds(1, int64(l.slotPages)), l.slot()
	least := min(1, inOrder/page)
	page, slot, inOrder = page*l.factors[perPage], slot*l.factors[perSlot], inOrder*l.factors[perSlot]
	inOrder = max(inOrder, page*least)
	slot = max(slot, page, inOrder)
	page = max(page, slot/l.slotPages)
	d.PageSeconds = max((slot-page)/(l.slotPages-1), fastestPage)
	d.RequestSeconds = max(0, page-d.PageSeconds)
	d.ReadBytesPerSecond = l.slotPages * PageBytes / inOrder
	d.WriteBytesPerSecond /= l.factors[perWritten]
	return d
}

// Wrong reports whether reading has turned out to be slower or faster than calibrated by more than a factor, or writing
// where stretches have told of it.
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
