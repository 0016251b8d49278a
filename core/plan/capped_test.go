package plan

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// cappedDisk is a cloud disk in virtual time: requests and bytes a second are limited, each way, and neighbouring pages
// are no faster than others.
type cappedDisk struct {
	requests, bytes float64 // a second
	asked, moved    [2]float64

	// Beside it: what the processor takes for each request, page and row of a pack, and the loop that takes the
	// batches.
	request, page float64
	processor     float64
	load          Load
}

const readWay, writeWay = 0, 1

func (d *cappedDisk) ask(way int, requests, bytes int64) {
	d.asked[way] += float64(requests)
	d.moved[way] += float64(bytes)
	d.processor += float64(requests)*d.request + float64(bytes)/ssd.PageBytes*d.page
}

// seconds returns the time of all requests, reads beside writes, in a loop of the given number of batches, which goes
// on meanwhile and loses its share of the processor.
func (d *cappedDisk) seconds(batches int) (longest float64) {
	for way := range d.asked {
		longest = max(longest, d.asked[way]/d.requests, d.moved[way]/d.bytes)
	}
	return max(longest, d.load.LoopSeconds*float64(batches)) + d.load.Share*d.processor
}

// calibrated returns the result of a calibration: the line through requests of one page and of sixteen, and the rates.
func (d *cappedDisk) calibrated() ssd.Device {
	one, sixteen := max(1/d.requests, ssd.PageBytes/d.bytes), max(1/d.requests, 16*ssd.PageBytes/d.bytes)
	page := max((sixteen-one)/15, 1e-9) // as there, never nothing
	return ssd.Device{
		RequestSeconds: one - page, PageSeconds: page, ReadBytesPerSecond: d.bytes, WriteBytesPerSecond: d.bytes,
		RequestProcessor: d.request, PageProcessor: d.page, WriteProcessor: d.page,
	}
}

// TestACappedDiskIsPlannedFor: on a disk of 125 MB/s and 3,000 requests a second, whatever the rows, what is chosen
// window by window takes at most a fifth longer than the best way for all of them.
func TestACappedDiskIsPlannedFor(t *testing.T) {
	explore.Figures(t)
	const numRows = 1 << 15
	chosen := map[string]bool{}
	for _, disk := range []cappedDisk{
		{requests: 3000, bytes: 125e6}, {requests: 16_000, bytes: 125e6}, {requests: 3000, bytes: 1e9},
	} {
		for _, width := range []int{2, 30, 300, 2000} {
			rng := rand.New(rand.NewPCG(uint64(width), 3)) // constant: where two cost nearly the same, chance decides
			trace := wide(rng, 32, width, numRows)
			took := map[string]float64{}
			for _, name := range Transfers() {
				d := disk
				runCapped(t, &d, name, trace, numRows, chosen)
				took[name] = d.seconds(len(trace))
			}
			best := "random"
			for name, seconds := range took {
				if seconds < took[best] {
					best = name
				}
			}
			require.LessOrEqual(t, took[auto], 1.2*took[best], "batches of %d: %v", width, took)
		}
	}
	require.Greater(t, len(chosen), 2, "%v", chosen)
}

// TestTheProcessorIsWeighed is the same where reading takes the processor of a loop: the way is another where the loop
// waits for its batches than where its own work is what an epoch takes.
func TestTheProcessorIsWeighed(t *testing.T) {
	const numRows = 1 << 15
	disk := cappedDisk{requests: 3000, bytes: 1e9} // which has time to read through holes
	others := 0
	for _, width := range []int{30, 300, 2000} {
		rng := rand.New(rand.NewPCG(uint64(width), 3)) // constant: where two cost nearly the same, chance decides
		trace := wide(rng, 32, width, numRows)
		var ways []map[string]bool
		for _, loop := range []float64{0, 1} {
			took, chosen := map[string]float64{}, map[string]bool{}
			best := "random"
			for _, name := range Transfers() {
				d := disk
				d.request, d.page, d.load = 5e-6, 150e-6, Load{LoopSeconds: loop, Share: 0.5} // a slow processor
				runCapped(t, &d, name, trace, numRows, chosen)
				took[name] = d.seconds(len(trace))
				if took[name] < took[best] {
					best = name
				}
			}
			work := loop * float64(len(trace)) // what no way can save
			require.LessOrEqual(t, took[auto]-work, 1.2*(took[best]-work), "batches of %d, loop %v: %v", width, loop, took)
			ways = append(ways, chosen)
		}
		if !maps.Equal(ways[0], ways[1]) {
			others++
		}
	}
	require.Positive(t, others, "a loop that waits and one that does not read alike")
}

func TestWhatALoopLoses(t *testing.T) {
	for name, c := range map[string]struct {
		load              Load
		device, processor float64
		want              float64
	}{
		"nothing is known":                    {Load{}, 3, 2, 3},
		"the loop only waits":                 {Load{Share: 0.5}, 3, 2, 4},
		"all of the device is hidden":         {Load{LoopSeconds: 1, Share: 0.5}, 3, 2, 3./8 + 1},
		"a part of it is":                     {Load{LoopSeconds: 0.2, Share: 0.5}, 3, 2, 1 + 2./8 + 1},
		"the processor is busy, reading late": {Load{LoopSeconds: 0.2, Share: 0.5, Pace: 2}, 3, 2, 5 + 2./8 + 1},
	} {
		require.InDelta(t, c.want, c.load.cost(c.device, c.processor, 10), 1e-12, name)
	}
}

// runCapped plans windows of eight batches, and asks a disk for what they need. Packs are in the file.
func runCapped(t *testing.T, d *cappedDisk, name string, trace []Batch, numRows int64, chosen map[string]bool) {
	c := testConfig(numRows, 1000, name)
	c.PackMemory, c.PackFile, c.Device = 0, 1<<30, d.calibrated()
	p, err := New(mem.NewBudget(0), c)
	require.NoError(t, err)
	defer p.Close()
	p.SetLoad(d.load)
	e := newExecutor(t, p.config.Capacity, c.Depth)
	batch := func(i int64) Batch { return trace[i] }
	for first := 0; first < len(trace); first += 8 {
		end := first + 8
		s, err := planned(context.Background(), p, int64(first), trace[first:end], trace[end:min(end+8, len(trace))])
		require.NoError(t, err)
		requests, bytes := deviceCount(c, s, func(b int64, pos int32) bool { _, ok := e.packs[b][pos]; return ok }, batch)
		d.ask(readWay, requests, bytes)
		for _, pack := range s.Packs {
			bytes := int64(pack.Rows) * c.recordBytes()
			chunks := (bytes + int64(c.SlotBytes) - 1) / int64(c.SlotBytes)
			d.ask(writeWay, chunks, bytes)
			d.ask(readWay, chunks, bytes)
			if d.page > 0 {
				d.processor += float64(pack.Rows) * packRowProcessor
			}
		}
		if name == auto {
			chosen[s.Choice.Chosen] = true
		}
		e.run(s, batch, len(s.Steps))
		s.Release()
	}
}

// TestWhatIsLearnedIsPlannedFor: a disk with credit answers a calibration as fast as a disk without limits. What the
// first window takes of it makes the plans after that: in the median they are predicted within 30 %, and they take long
// requests of packs where without it many short ones seemed as cheap.
func TestWhatIsLearnedIsPlannedFor(t *testing.T) {
	for width, pool := range map[int]int{100: 32, 120: 32, 150: 32} {
		run := func(learns bool) (seconds float64, errors []float64, chosen map[string]int) {
			rng := rand.New(rand.NewPCG(uint64(width), 3)) // constant: where two cost nearly the same, chance decides
			trace := wide(rng, pool, width, 1<<15)
			for len(trace) < 64 {
				trace = append(trace, trace[rng.IntN(pool)])
			}
			c := testConfig(1<<15, 1000, auto)
			c.PackMemory, c.PackFile = 0, 1<<30
			c.Device = ssd.Device{PageSeconds: 100e-6, ReadBytesPerSecond: 4e7, WriteBytesPerSecond: 4e7}
			learned := ssd.Learn(c.Device, c.SlotBytes, ssd.Full{})
			p, err := New(mem.NewBudget(0), c)
			require.NoError(t, err)
			defer p.Close()
			e := newExecutor(t, p.config.Capacity, c.Depth)
			batch := func(i int64) Batch { return trace[i] }
			chosen = map[string]int{}
			var full ssd.Full
			written, next := int64(0), []int64(nil) // bytes of packs that the next window reads
			for first := 0; first < len(trace); first += 8 {
				end := first + 8
				if learns {
					p.SetDevice(learned.Device())
				}
				ahead := trace[end:min(end+8, len(trace))]
				s, err := planned(context.Background(), p, int64(first), trace[first:end], ahead)
				require.NoError(t, err)
				d := cappedDisk{requests: 100, bytes: 4e6}
				atHand := func(b int64, pos int32) bool { _, ok := e.packs[b][pos]; return ok }
				requests, bytes := deviceCount(c, s, atHand, batch)
				d.ask(readWay, requests, bytes)
				for _, n := range next {
					d.ask(readWay, 1, n)
				}
				next = next[:0]
				for _, pack := range s.Packs {
					n := int64(pack.Rows) * c.recordBytes()
					d.ask(writeWay, 1, n)
					if pack.Dest < 8 {
						d.ask(readWay, 1, n)
					} else {
						next = append(next, n)
					}
				}
				stretches := math.Ceil(d.seconds(0) * 2) // of half a second
				for range int(stretches) {
					full.Requests += int64(d.asked[readWay] / stretches)
					full.Bytes += int64(d.moved[readWay] / stretches)
					full.Time += time.Duration(d.seconds(0) * 1e9 / stretches)
					written += int64(d.moved[writeWay] / stretches)
					learned.Observe(full, written)
				}
				if first > 0 {
					errors = append(errors, math.Abs(d.seconds(0)/s.Choice.Seconds-1))
				}
				seconds += d.seconds(0)
				chosen[s.Choice.Chosen]++
				e.run(s, batch, len(s.Steps))
				s.Release()
			}
			slices.Sort(errors)
			return seconds, errors, chosen
		}
		before, _, blind := run(false)
		after, errors, chosen := run(true)
		require.LessOrEqual(t, errors[len(errors)/2], 0.3, "batches of %d: %v", width, errors)
		require.Less(t, after, 0.95*before, "batches of %d: %v instead of %v", width, chosen, blind)
		packs := func(of map[string]int) int { return of["pack"] + of["pack+forward"] + of[scanAhead] }
		require.Greater(t, packs(chosen), packs(blind), "batches of %d: %v instead of %v", width, chosen, blind)
	}
}

// TestShortRequestsAreLearnedToCost: where a calibration has found that requests cost nothing, rows that leave the
// cache are set aside and batches read the others, page by page. Two seconds of such reads say otherwise, and the same
// window is scanned into packs. A scan that serves two windows is left out: here it pays at either price.
func TestShortRequestsAreLearnedToCost(t *testing.T) {
	const width = 600
	rng := rand.New(rand.NewPCG(width, 3)) // constant: where two cost nearly the same, chance decides
	trace := wide(rng, 9, width, 1<<15)
	for len(trace) < 24 {
		trace = append(trace, trace[rng.IntN(9)])
	}
	c := testConfig(1<<15, 300, auto)
	c.PackMemory, c.PackFile = 0, 1<<30
	c.Device = ssd.Device{PageSeconds: 100e-6, ReadBytesPerSecond: 4e7, WriteBytesPerSecond: 4e7}
	for want, learns := range map[string]bool{"page-once+forward": false, "pack+forward": true} {
		p, err := New(mem.NewBudget(0), c)
		require.NoError(t, err)
		p.transfer.methods = withoutAhead(p.transfer.methods)
		learned, full := ssd.Learn(c.Device, c.SlotBytes, ssd.Full{}), ssd.Full{}
		for first := 0; first < 16; first += 8 {
			s, err := planned(context.Background(), p, int64(first), trace[first:first+8], trace[first+8:first+16])
			require.NoError(t, err)
			if first == 8 {
				require.Equal(t, want, s.Choice.Chosen)
			}
			s.Release()
			for range 4 { // of half a second
				full.Requests, full.Bytes, full.Time = full.Requests+50, full.Bytes+75*ssd.PageBytes, full.Time+time.Second/2
				learned.Observe(full, 0)
			}
			if learns {
				p.SetDevice(learned.Device())
			}
		}
		p.Close()
	}
}
