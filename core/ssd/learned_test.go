package ssd_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

// volume is a cloud disk in virtual time, limited in requests and bytes a second. Writes have the same limits beside
// reads, or share them.
type volume struct {
	requests, bytes float64 // a second
	shared          bool
	full            ssd.Full
	written         int64
}

func (v *volume) seconds(requests, pages, written int64) float64 {
	bytes := float64(pages * ssd.PageBytes)
	if v.shared {
		bytes += float64(written)
	}
	return max(float64(requests)/v.requests, bytes/v.bytes)
}

// work does a stretch of reads of pagesEach pages, with writes meanwhile.
func (v *volume) work(to *ssd.Learned, requests, pagesEach, written int64) {
	v.full.Requests += requests
	v.full.Bytes += requests * pagesEach * ssd.PageBytes
	v.full.Time += time.Duration(v.seconds(requests, requests*pagesEach, written) * 1e9)
	v.written += written
	to.Observe(v.full, v.written)
}

var quick = ssd.Device{
	RequestSeconds: 9e-6, PageSeconds: 1.5e-6, ReadBytesPerSecond: 2.5e9, WriteBytesPerSecond: 2.5e9, Engine: "pread",
}

// TestASlowerDeviceIsLearned: after a few stretches of work a disk that was calibrated at thirty times its rates is
// known within 30 %, for requests of one page, and for long ones where such were read, and when it is fast again, that.
func TestASlowerDeviceIsLearned(t *testing.T) {
	for _, v := range []volume{
		{requests: 3000, bytes: 125e6}, {requests: 16_000, bytes: 125e6}, {requests: 3000, bytes: 1e9},
	} {
		l := ssd.Learn(quick, ssd.DefaultSlotBytes, ssd.Full{})
		require.InEpsilon(t, quick.Seconds(1, 1), l.Device().Seconds(1, 1), 1e-9)
		require.False(t, l.Wrong(2))
		for range 4 {
			v.work(l, 10_000, 2, 0)
			v.work(l, 10_000, 16, 0)
		}
		d := l.Device()
		require.InEpsilon(t, v.seconds(1, 1, 0), d.Seconds(1, 1), 0.3, "%+v: %+v", v, d)
		require.InEpsilon(t, v.seconds(1, 16, 0), 16*ssd.PageBytes/d.ReadBytesPerSecond, 0.3, "%+v: %+v", v, d)
		require.True(t, l.Wrong(2))
		v.requests, v.bytes = 95_000, 2.5e9
		for range 8 {
			v.work(l, 1_000_000, 2, 0)
			v.work(l, 100_000, 16, 0)
		}
		d = l.Device()
		require.InEpsilon(t, quick.Seconds(1, 1), d.Seconds(1, 1), 0.3, "%+v", d)
		require.InEpsilon(t, quick.ReadBytesPerSecond, d.ReadBytesPerSecond, 0.3, "%+v", d)
		require.False(t, l.Wrong(2))
	}
}

// TestAPriceThatIsTwiceWrongIsCorrected: within three seconds of work, and half of that is kept for the next loader, so
// that it is right after a few.
func TestAPriceThatIsTwiceWrongIsCorrected(t *testing.T) {
	for _, factor := range []float64{0.5, 2} {
		v := volume{requests: factor / quick.Seconds(1, 1), bytes: factor * 16 * ssd.PageBytes / quick.Seconds(1, 16)}
		calibrated, off := quick, math.Log(factor)
		for range 4 {
			l := ssd.Learn(calibrated, ssd.DefaultSlotBytes, v.full)
			_, learned := l.Prior()
			require.False(t, learned, "nothing is known")
			for range 4 {
				v.work(l, 100_000, 2, 0)
				v.work(l, 50_000, 16, 0)
			}
			require.InEpsilon(t, v.seconds(1, 1, 0), l.Device().Seconds(1, 1), 0.3)
			require.False(t, l.Wrong(4))
			if calibrated, learned = l.Prior(); !learned {
				break
			}
			before := off
			off = math.Log(calibrated.Seconds(1, 1) / v.seconds(1, 1, 0))
			require.Less(t, math.Abs(off), math.Abs(before))
		}
		require.Less(t, math.Abs(off), 0.35, "of %g", math.Ln2)
	}
}

// TestWhatWritingTakesFromReadingIsLearned: much where both share a limit, little where each has its own.
func TestWhatWritingTakesFromReadingIsLearned(t *testing.T) {
	calibrated := quick
	calibrated.WriteBeside = 0.5
	for _, shared := range []bool{false, true} {
		l, v := ssd.Learn(calibrated, ssd.DefaultSlotBytes, ssd.Full{}), volume{requests: 3000, bytes: 125e6, shared: shared}
		for range 10 {
			v.work(l, 2_000, 16, 0)
			v.work(l, 2_000, 16, 100<<20)
		}
		d, reads := l.Device(), int64(2000*16)
		predicted := float64(reads*ssd.PageBytes)/d.ReadBytesPerSecond + d.WriteSeconds(100<<20)
		require.InEpsilon(t, v.seconds(2000, reads, 100<<20), predicted, 0.3, "shared %v: %+v", shared, d)
	}
}

// TestACalibrationOfWritesIsWrong: writes that were calibrated while something else held them up are found to be
// faster, by stretches with writes and by no others.
func TestACalibrationOfWritesIsWrong(t *testing.T) {
	calibrated := quick
	calibrated.WriteBytesPerSecond /= 100
	v := volume{requests: 95_000, bytes: 2.5e9}
	l := ssd.Learn(calibrated, ssd.DefaultSlotBytes, ssd.Full{})
	for range 8 {
		v.work(l, 100_000, 2, 0)
	}
	require.False(t, l.Wrong(4))
	for range 8 {
		v.work(l, 100_000, 2, 1<<30)
	}
	require.True(t, l.Wrong(4))
	require.Greater(t, l.Device().WriteBytesPerSecond, 4*calibrated.WriteBytesPerSecond)
}

// TestWhatIsNotLearned: short stretches say nothing, factors have bounds, and what was not calibrated stays unknown.
func TestWhatIsNotLearned(t *testing.T) {
	l, v := ssd.Learn(quick, ssd.DefaultSlotBytes, ssd.Full{}), volume{requests: 3000, bytes: 125e6}
	v.work(l, 1000, 1, 0)
	require.InEpsilon(t, quick.Seconds(1, 1), l.Device().Seconds(1, 1), 1e-9)
	v.work(l, 1000, 1, 0)
	require.Greater(t, l.Device().Seconds(1, 1), 2*quick.Seconds(1, 1), "two of them together do")
	for range 100 {
		v.requests = 1
		v.work(l, 1000, 1, 0)
		v.work(l, 1000, 16, 1<<20)
	}
	d := l.Device()
	require.Less(t, d.Seconds(1, 1), 1100*quick.Seconds(1, 1))
	for _, x := range []float64{d.RequestSeconds, d.PageSeconds, d.ReadBytesPerSecond, d.WriteBytesPerSecond} {
		require.False(t, math.IsNaN(x) || math.IsInf(x, 0) || x < 0, "%+v", d)
	}
	none := ssd.Learn(ssd.Device{}, ssd.DefaultSlotBytes, ssd.Full{})
	v.work(none, 10_000, 1, 0)
	require.Equal(t, ssd.Device{}, none.Device())
	require.False(t, none.Wrong(2))
}

// tokens limits requests a second. All requests of a tenth of a second pass at its beginning, as the kernel does for a
// control group.
type tokens struct {
	next chan time.Time // when the tenth ends that is under way, with what it has left
	left int
	each int
}

func limit(perSecond int) *tokens {
	l := &tokens{next: make(chan time.Time, 1), each: perSecond / 10}
	l.next <- time.Time{}
	return l
}

func (l *tokens) take() {
	for {
		end := <-l.next
		if now := time.Now(); now.After(end) {
			end, l.left = now.Add(100*time.Millisecond), l.each
		}
		if l.left > 0 {
			l.left--
			l.next <- end
			return
		}
		l.next <- end
		time.Sleep(time.Until(end))
	}
}

// TestALimitedDeviceIsCalibrated: a disk that answers at once and then not at all for the rest of each tenth of a
// second is found to be as slow as it is on the whole, by bursts that each are shorter than that. The engine finds the
// same while it works.
func TestALimitedDeviceIsCalibrated(t *testing.T) {
	const perSecond = 3000
	r := newRig(t, ssd.Options{Kind: ssd.Pread, Depth: 64}, 4<<20)
	defer r.Close()
	reads := limit(perSecond)
	r.fs.Arm(faultfs.Fault{
		Op: faultfs.Read, Times: faultfs.Forever, Nth: 1, Short: 1 << 20, Hook: reads.take,
	})
	d, err := ssd.Calibrate(context.Background(), r.engine, r.handle, ssd.Calibration{Budget: r.budget})
	require.NoError(t, err)
	require.Greater(t, d.Seconds(1, 1), 0.5/perSecond, "%+v", d) // less is impossible, more where the test is slow
	require.Greater(t, d.Seconds(1, 16), 0.5/perSecond, "%+v", d)

	l := ssd.Learn(quick, r.engine.SlotBytes(), r.engine.Stats().Full)
	ranges := make([]ssd.Range, 2100) // five full tenths at least: more than a stretch
	for i := range ranges {
		ranges[i] = ssd.Range{Off: int64(i%1000) * ssd.PageBytes, Len: ssd.PageBytes}
	}
	for range 4 {
		before := r.engine.Stats().Full
		require.NoError(t, r.engine.Read(context.Background(), r.handle, ranges, func(int, []byte) error { return nil }))
		after := r.engine.Stats().Full
		require.Greater(t, after.Requests-before.Requests, int64(2000))
		l.Observe(after, 0)
	}
	require.Greater(t, l.Device().Seconds(1, 1), 0.5/perSecond, "%+v", l.Device())
}
