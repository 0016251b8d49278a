package plan

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// deviceCount counts the reads of a plan with the merger that executors use.
func deviceCount(
	c Config, s *wholePlan, delivered func(batch int64, pos int32) bool, batch func(int64) Batch,
) (requests, bytes int64) {
	var m ssd.Merger
	count := func(rows []int64, hole int) {
		for _, l := range c.Tables {
			for _, r := range m.Plan(l, rows, hole, c.SlotBytes).Ranges {
				requests++
				bytes += int64(r.Len)
			}
		}
	}
	packed := map[Dest]bool{}
	s.eachDest(func(d Dest) { packed[d] = true })
	var rows []int64
	for _, f := range s.Prologue.Fill {
		rows = append(rows, int64(f.Row))
	}
	for _, x := range s.Prologue.Pack {
		rows = append(rows, int64(x.Row))
	}
	count(rows, s.Prologue.HolePages)
	for i := range s.Steps {
		rows = rows[:0]
		for pos, slot := range s.Steps[i].Slots {
			if d := (Dest{int32(i), int32(pos)}); slot < 0 && !packed[d] && !delivered(s.First+int64(i), d.Pos) {
				rows = append(rows, int64(batch(s.First + int64(i))[pos]))
			}
		}
		for _, x := range s.Steps[i].Extra {
			rows = append(rows, int64(x.Row))
		}
		count(rows, ssd.DefaultHole)
	}
	return requests, bytes
}

// Plans of few cold rows are priced without a sample: what is predicted is what a run does, under every method, with
// packs of earlier plans.
func TestPredictionsAreWhatHappens(t *testing.T) {
	used := map[string]int{}
	for seed := range uint64(60) {
		for _, name := range Transfers() {
			rng := explore.Rand(t, seed, 6)
			numRows := 200 + rng.IntN(3000)
			trace := makeTrace(rng, 4+rng.IntN(30), 10+rng.IntN(80), numRows, float64(1+rng.IntN(3)))
			c := testConfig(int64(numRows), int64(rng.IntN(numRows/2)), name)
			c.PackMemory, c.PackFile = int64(rng.IntN(500))*620, int64(rng.IntN(500))*620
			if rng.IntN(3) == 0 {
				c.Tables = []ssd.Layout{{RowBytes: 612, NumRows: int64(numRows)}} // rows straddle
			}
			p, err := New(mem.NewBudget(0), c)
			require.NoError(t, err)
			e := newExecutor(t, p.config.Capacity, c.Depth)
			batch := func(i int64) Batch { return trace[i] }
			for size, first := 1+rng.IntN(8), 0; first < len(trace); first += size {
				end := min(first+size, len(trace))
				delivered := map[int64]map[int32]pair{}
				for at, k := range e.packs {
					delivered[at] = k
				}
				s, err := planned(context.Background(), p, int64(first), trace[first:end], trace[end:min(end+size, len(trace))])
				require.NoError(t, err)
				requests, bytes := deviceCount(c, s, func(b int64, pos int32) bool { _, ok := delivered[b][pos]; return ok }, batch)
				require.Equal(t, requests, s.Choice.Requests, "seed %d, %s", seed, name)
				require.Equal(t, bytes, s.Choice.BytesRead, "seed %d, %s", seed, name)
				cold := int64(0)
				for i := range s.Steps {
					for pos, slot := range s.Steps[i].Slots {
						if _, ok := delivered[s.First+int64(i)][int32(pos)]; slot < 0 && !ok {
							cold++
						}
					}
				}
				require.Equal(t, s.Choice.ColdRows, cold+int64(len(s.Prologue.Fill)))
				if name != auto {
					require.Equal(t, name, s.Choice.Chosen)
				}
				rows := int64(0)
				for _, k := range s.Packs {
					rows += int64(k.Rows)
				}
				used[name] += int(rows) + len(s.Prologue.Fill)
				for _, o := range s.Choice.Options {
					require.False(t, math.IsNaN(o.Seconds) || math.IsInf(o.Seconds, 0) || o.Seconds < o.AheadSeconds)
					if o.Name == s.Choice.Chosen {
						require.Equal(t, rows, o.PackRows)
					}
				}
				e.run(s, batch, len(s.Steps))
				s.Release()
			}
			p.Close()
		}
	}
	for _, name := range Transfers() {
		require.Equal(t, name == "random", used[name] == 0, "%s sets rows aside", name)
	}
}

// TestRowsThatCrowdShareRequests: hubs lie side by side in the first pages of many stores. They make rows of a sample
// and no requests, which are predicted within a tenth.
func TestRowsThatCrowdShareRequests(t *testing.T) {
	const numRows, hubs, others = 1 << 21, 2000, 38_000
	rng := rand.New(rand.NewPCG(5, 5)) // constant: it is the sample that may be off
	rows := map[uint32]bool{}
	for row := range uint32(hubs) {
		rows[row] = true
	}
	for len(rows) < hubs+others {
		rows[uint32(rng.IntN(numRows))] = true
	}
	trace := []Batch{slices.Collect(maps.Keys(rows))}
	c := testConfig(numRows, 0, "random")
	c.Tables = []ssd.Layout{{RowBytes: 512, RowsPerPage: 8, NumRows: numRows}}
	s := planOnce(t, c, trace)
	batch := func(i int64) Batch { return trace[i] }
	requests, bytes := deviceCount(c, s, func(int64, int32) bool { return false }, batch)
	require.InEpsilon(t, requests, s.Choice.Requests, 0.1)
	require.InEpsilon(t, bytes, s.Choice.BytesRead, 0.1)
}

// wide is a trace whose every batch has rows of all pages: a scan serves them all.
func wide(rng *rand.Rand, batches, width, numRows int) []Batch {
	trace := make([]Batch, batches)
	for i := range trace {
		step := 1 + 2*rng.IntN(numRows/2) // odd: for a power of two, every row comes once
		for row := rng.IntN(numRows); len(trace[i]) < width; row = (row + step) % numRows {
			trace[i] = append(trace[i], uint32(row))
		}
	}
	return trace
}

func TestTheCheapestIsChosen(t *testing.T) {
	const numRows = 1 << 16
	rng := rand.New(rand.NewPCG(7, 7)) // constant: where two cost nearly the same, chance decides
	dense, sparse := wide(rng, 16, 4000, numRows), wide(rng, 16, 2, numRows)
	slow := testDevice()
	slow.WriteBytesPerSecond = 1e6
	onlyFile := func(c *Config) { c.PackMemory, c.PackFile = 0, 1<<30 }
	onlyMemory := func(c *Config) { c.PackMemory, c.PackFile = 1<<30, 0 }
	for name, test := range map[string]struct {
		trace  []Batch
		change func(*Config)
		device ssd.Device
		want   []string
	}{
		"dense": {dense, onlyMemory, testDevice(), []string{"scan", "scan+forward"}},
		"dense, packs in the file": {dense, onlyFile, testDevice(),
			[]string{"pack", "pack+forward", scanAhead, "page-once", "page-once+forward"}},
		"dense, a file that is slow": {dense, onlyFile, slow, []string{"random"}},
		"dense, no room": {dense, func(c *Config) { c.PackMemory, c.PackFile, c.Capacity = 0, 0, 0 },
			testDevice(), []string{"random"}},
		"sparse": {sparse, func(c *Config) { onlyMemory(c); c.Capacity = 0 }, testDevice(),
			[]string{"random"}},
		"rows wider than a page": {dense, func(c *Config) {
			onlyMemory(c)
			c.RowBytes = 8192
			c.Tables = []ssd.Layout{{RowBytes: 8192, NumRows: numRows}}
		}, testDevice(), []string{"scan", "scan+forward"}},
		"a device that is not known": {dense, onlyMemory, ssd.Device{}, []string{"random"}},
		"sequential is no faster": {sparse, onlyMemory,
			ssd.Device{RequestSeconds: 0, PageSeconds: 1e-5, ReadBytesPerSecond: 4e8,
				WriteBytesPerSecond: 4e8}, []string{"random"}},
	} {
		c := testConfig(numRows, 2000, auto)
		test.change(&c)
		c.Device = test.device
		p, err := New(mem.NewBudget(0), c)
		require.NoError(t, err)
		s, err := planned(context.Background(), p, 0, test.trace[:8], test.trace[8:])
		require.NoError(t, err)
		require.Contains(t, test.want, s.Choice.Chosen, "%s: %+v", name, s.Choice)
		require.False(t, s.Choice.Forced)
		for _, o := range s.Choice.Options {
			require.LessOrEqual(t, s.Choice.Seconds, o.Seconds/worthwhile+1e-12, name)
		}
		text, err := json.Marshal(s.Choice)
		require.NoError(t, err)
		require.Contains(t, string(text), `"chosen":"`+s.Choice.Chosen+`"`)
		require.Contains(t, string(text), `"predicted_seconds":`)
		p.Close()
	}
}

// A sample tells within a few per cent what all rows would.
func TestSamplesTellTheCosts(t *testing.T) {
	const numRows = 1 << 21
	rng := explore.Rand(t, 8, 8)
	trace := make([]Batch, 12)
	for i := range trace {
		seen := map[uint32]bool{}
		for len(trace[i]) < 20000 {
			u := rng.Float64()
			if row := uint32(u * u * numRows); !seen[row] {
				seen[row] = true
				trace[i] = append(trace[i], row)
			}
		}
	}
	for _, name := range []string{"random", "page-once+forward", "scan", "pack+forward", scanAhead} {
		c := testConfig(numRows, 20000, name)
		c.PackMemory, c.PackFile = 30000*620, 1<<30
		p, err := New(mem.NewBudget(0), c)
		require.NoError(t, err)
		s, err := planned(context.Background(), p, 0, trace[:6], trace[6:])
		require.NoError(t, err)
		require.Greater(t, s.Choice.ColdRows, int64(8*sampleMin), "it is not worth a sample")
		nothing := func(int64, int32) bool { return false }
		requests, bytes := deviceCount(c, s, nothing, func(i int64) Batch { return trace[i] })
		require.InEpsilon(t, requests, s.Choice.Requests, 0.1, name)
		require.InEpsilon(t, bytes, s.Choice.BytesRead, 0.1, name)
		s.Release()
		p.Close()
	}
}

func TestScanPrice(t *testing.T) {
	d := ssd.Device{RequestSeconds: 11e-6, PageSeconds: 4e-6, ReadBytesPerSecond: 2e9}
	p := scanPrice(d, 16)
	require.InDelta(t, 15e-6, p.of(1, 1), 1e-12, "a page alone costs what it costs anywhere")
	require.InDelta(t, 16*4096/2e9, p.of(1, 16), 1e-12, "a slot what was measured")
	require.Equal(t, 11, p.hole(16), "13.8 us for a request, 1.18 for a page")
	require.Equal(t, ssd.DefaultHole, price{1e-6, 1e-6}.hole(16))
	require.Equal(t, 16, price{1e-6, 0}.hole(16))
	d.ReadBytesPerSecond = 1e6
	require.Equal(t, price{11e-6, 4e-6}, scanPrice(d, 16),
		"a scan that is slower than the same requests anywhere was disturbed")
	d.ReadBytesPerSecond = 1e12
	p = scanPrice(d, 16)
	require.LessOrEqual(t, p.of(1, 16), 16*4096/1e12+1e-12)
	require.GreaterOrEqual(t, p.request, 0.0)
}

// TestFloorOfAWindow counts by hand: nothing is cached, so that every access is missed, in two tables, one of them with
// rows narrower than the pages that they touch.
func TestFloorOfAWindow(t *testing.T) {
	for _, rows := range []int64{40, 100_000} {
		c := Config{
			NumRows: rows, Transfer: "random", RowBytes: 600, SlotBytes: 2 * ssd.PageBytes,
			Tables: []ssd.Layout{
				{RowBytes: 500, NumRows: rows, RowsPerPage: 8}, {RowBytes: 100, NumRows: rows, RowsPerPage: 40},
			},
			Device: ssd.Device{ReadBytesPerSecond: 2e6, WriteBytesPerSecond: 1e6},
		}
		p, err := New(mem.NewBudget(0), c)
		require.NoError(t, err)
		s, err := planned(context.Background(), p, 0, []Batch{{1, 2, 3}, {2, 30}}, nil)
		require.NoError(t, err)
		const missed = 5
		scan := int64(2 * missed * ssd.PageBytes) // a page for each row of each table
		if rows == 40 {
			scan = (5 + 1) * ssd.PageBytes
		}
		require.EqualValues(t, missed, s.Choice.MissedRows)
		require.Equal(t, scan+2*missed*600, s.Choice.FloorBytes)
		require.InDelta(t, float64(scan+missed*600)/2e6+missed*600/1e6, s.Choice.FloorSeconds, 1e-12)
		s.Release()
		p.Close()
	}
}

// planOnce plans all batches of a trace together, for the time of a test.
func planOnce(t *testing.T, c Config, trace []Batch) *wholePlan {
	t.Helper()
	p, err := New(mem.NewBudget(0), c)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	s, err := planned(context.Background(), p, 0, trace, nil)
	require.NoError(t, err)
	t.Cleanup(s.Release)
	return s
}

// TestABatchReadsABoundedNumberOfRowsAlong: each batch wants a row of every page, so that the first could read all rows
// of the window along. The second goes on where it has read enough.
func TestABatchReadsABoundedNumberOfRowsAlong(t *testing.T) {
	const perPage, pages = 64, 8192
	trace := make([]Batch, perPage)
	for page := range uint32(pages) {
		for b := range uint32(perPage) {
			trace[b] = append(trace[b], page*perPage+b)
		}
	}
	c := testConfig(perPage*pages, 0, "page-once")
	c.Tables = []ssd.Layout{{RowBytes: ssd.PageBytes / perPage, RowsPerPage: perPage, NumRows: perPage * pages}}
	c.PackMemory, c.PackFile = 1<<30, 0
	s := planOnce(t, c, trace)
	e := newExecutor(t, 0, c.Depth)
	e.room = perPage * pages
	e.run(s, func(i int64) Batch { return trace[i] }, len(trace))
	first, second := len(s.Steps[0].Extra), len(s.Steps[1].Extra)
	require.InDelta(t, mostAlong, first, perPage)
	// Packs of the batches that follow too soon are not ready.
	firstPages := first / (perPage - 1 - c.Depth)
	require.Equal(t, (pages-firstPages)*(perPage-2-c.Depth), second)
	for _, step := range s.Steps[2:] {
		require.Empty(t, step.Extra)
	}
}

// TestRowsLeftAheadAreCountedAsTheyAreRead: where the next prologue reads what a way leaves to the batches ahead in one
// scan, its bytes are those of the scan and of the packs that it fills, as its seconds are: not a page for each row of
// each batch, which would be eight times as much here.
func TestRowsLeftAheadAreCountedAsTheyAreRead(t *testing.T) {
	const numRows = 1 << 15
	rng := rand.New(rand.NewPCG(9, 9)) // constant: where two cost nearly the same, chance decides
	trace := wide(rng, 32, 4000, numRows)
	c := testConfig(numRows, 1000, auto)
	c.PackMemory, c.PackFile = 0, 1<<30
	p, err := New(mem.NewBudget(0), c)
	require.NoError(t, err)
	defer p.Close()
	s, err := planned(context.Background(), p, 0, trace[:16], trace[16:])
	require.NoError(t, err)
	defer s.Release()
	file := int64(0)
	for _, l := range c.Tables {
		file += l.FileBytes()
	}
	packs := 2 * 32 * 4000 * c.recordBytes() // a write and a read of every row of both windows, at most
	at := slices.IndexFunc(s.Choice.Options, func(o Option) bool { return o.Name == "pack" })
	o := s.Choice.Options[at]
	require.LessOrEqual(t, o.BytesRead+o.BytesWritten, 2*file+packs)
	require.Greater(t, o.BytesRead+o.BytesWritten, 2*file, "two scans, and packs")
	require.Less(t, o.BytesWritten, packs/2)
	require.Greater(t, o.BytesWritten, int64(16*4000)*c.recordBytes(), "rows ahead are written as well")
}

// TestBytesAreCertain: of two ways, the one that moves more bytes must be cheaper where requests cost half of what they
// are believed to as well.
func TestBytesAreCertain(t *testing.T) {
	const rate, request = 1e9, 10e-6
	d := ssd.Device{RequestSeconds: request, PageSeconds: 4e-6, ReadBytesPerSecond: rate}
	way := func(requests, bytes int64) Option {
		seconds := float64(requests)*request + float64(bytes)/rate
		return Option{Requests: requests, BytesRead: bytes, Seconds: seconds, Cost: seconds}
	}
	few := way(100_000, 1e9) // 2 s
	for name, want := range map[string]struct {
		other Option
		taken bool
	}{
		"hardly any requests, 1.4 times the bytes": {way(0, 1.4e9), true},
		"and 1.6 times":                    {way(0, 1.6e9), false}, // 1.6 s, or 1.5 s at half the price
		"as many requests, fewer bytes":    {way(100_000, 0.9e9), true},
		"a few requests more, fewer bytes": {way(105_000, 0.97e9), true},
	} {
		require.Equal(t, want.taken, want.other.certain(d) < few.certain(d), name)
	}
	d.ReadBytesPerSecond = 0
	require.InDelta(t, 2+1e9*4e-6/ssd.PageBytes, few.certain(d), 1e-9, "by the page where no rate is known")
}

// TestSamplesAreBounded: where hundreds of rows share a page of a narrow table, a sample has at most twice sampleMost
// rows, in memory that no budget counts.
func TestSamplesAreBounded(t *testing.T) {
	const numRows, width = 400_000, 20_000
	trace := wide(explore.Rand(t, 51, 51), 60, width, numRows)
	c := testConfig(numRows, 100, "auto")
	c.Tables = []ssd.Layout{
		{RowBytes: 256, RowsPerPage: 16, NumRows: numRows}, {RowBytes: 8, RowsPerPage: 512, NumRows: numRows},
	}
	c.RowBytes, c.PackFile = 264, 1<<40
	p, err := New(mem.NewBudget(0), c)
	require.NoError(t, err)
	defer p.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, err := p.Plan(context.Background(), 0, InMemory(trace[:40]), InMemory(trace[40:]))
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	s.Release()
	const each = 8*5 + 24 + 2*16 // a row while the slice grows, and its other fields
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2*sampleMost*each+4<<20))
}
