package ssd_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/ssd"
)

func TestLayoutOffsets(t *testing.T) {
	const page = ssd.PageBytes
	for name, c := range map[string]struct {
		layout    ssd.Layout
		row       int64
		offset    int64
		fileBytes int64
		span      int64
	}{
		"power of two": {ssd.Layout{RowBytes: 512, RowsPerPage: 8, NumRows: 17}, 16, 2 * page, 3 * page, page},
		"padded pages": {ssd.Layout{RowBytes: 400, RowsPerPage: 10, NumRows: 25}, 19, page + 9*400, 3 * page,
			page},
		"packed":                  {ssd.Layout{RowBytes: 3000, NumRows: 5}, 3, 9000, 4 * page, 2 * page},
		"packed, whole file":      {ssd.Layout{RowBytes: 1024, NumRows: 8}, 7, 7168, 2 * page, page},
		"page":                    {ssd.Layout{RowBytes: page, RowsPerPage: 1, NumRows: 3}, 2, 2 * page, 3 * page, page},
		"several pages":           {ssd.Layout{RowBytes: 2 * page, NumRows: 3}, 2, 4 * page, 6 * page, 2 * page},
		"a byte more than a page": {ssd.Layout{RowBytes: page + 1, NumRows: 2}, 1, page + 1, 3 * page, 2 * page},
		"two bytes more":          {ssd.Layout{RowBytes: page + 2, NumRows: 2}, 1, page + 2, 3 * page, 3 * page},
		"beyond 32 bits": {ssd.Layout{RowBytes: 4000, NumRows: 1 << 40}, 1<<40 - 1, 4000 * (1<<40 - 1),
			4000 << 40, 2 * page},
		"beyond 32 bits, one a page": {ssd.Layout{RowBytes: 4000, RowsPerPage: 1, NumRows: 1 << 40}, 1<<40 - 1,
			page * (1<<40 - 1), page << 40, page},
		"one byte": {ssd.Layout{RowBytes: 1, NumRows: 4097}, 4096, page, 2 * page, page},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.offset, c.layout.Offset(c.row))
			require.Equal(t, c.fileBytes, c.layout.FileBytes())
			require.Equal(t, c.span, c.layout.SpanBytes())
		})
	}
	require.Zero(t, ssd.Layout{RowBytes: 8}.FileBytes(), "no rows")
}

// No row touches more than SpanBytes, and except where alignment forbids it some row does. In the mean they touch
// MeanPages.
func TestSpanIsWhatTheWorstRowTouches(t *testing.T) {
	for rowBytes := 1; rowBytes < 3*ssd.PageBytes; rowBytes += 61 + rowBytes%8 {
		l := ssd.Layout{RowBytes: rowBytes, NumRows: ssd.PageBytes + 1}
		worst, all := int64(0), int64(0)
		for row := range l.NumRows {
			worst, all = max(worst, pagesOf(l, row).Len()), all+pagesOf(l, row).Len()
		}
		require.InDelta(t, l.MeanPages(), float64(all)/float64(l.NumRows*ssd.PageBytes), 1e-3, "rows of %d", rowBytes)
		require.LessOrEqual(t, worst, l.SpanBytes(), "rows of %d", rowBytes)
		if rowBytes%2 == 1 { // coprime to the page: every alignment occurs
			require.Equal(t, worst, l.SpanBytes(), "rows of %d", rowBytes)
		}
	}
}

type span struct{ begin, end int64 }

func (s span) Len() int64 { return s.end - s.begin }

func pagesOf(l ssd.Layout, row int64) span {
	const page = ssd.PageBytes
	begin := l.Offset(row)
	return span{begin / page * page, (begin + int64(l.RowBytes) + page - 1) / page * page}
}

func TestPlanByHand(t *testing.T) {
	const page = ssd.PageBytes
	layout := ssd.Layout{RowBytes: 1024, RowsPerPage: 4, NumRows: 1000}
	for name, c := range map[string]struct {
		layout ssd.Layout
		rows   []int64
		hole   int
		slot   int
		ranges []ssd.Range
		first  []int32
		pos    []int32
	}{
		"nothing": {layout, nil, 4, 1 << 16, nil, []int32{0}, nil},
		"one":     {layout, []int64{5}, 4, 1 << 16, []ssd.Range{{page, page}}, []int32{0, 1}, []int32{0}},
		"duplicates, same page": {layout, []int64{5, 4, 5, 5}, 4, 1 << 16, []ssd.Range{{page, page}}, []int32{0, 4},
			[]int32{1, 0, 2, 3}},
		"hole bridged": {layout, []int64{0, 20}, 4, 1 << 16, []ssd.Range{{0, 6 * page}}, []int32{0, 2},
			[]int32{0, 1}},
		"hole too wide": {layout, []int64{24, 0}, 4, 1 << 16, []ssd.Range{{0, page}, {6 * page, page}},
			[]int32{0, 1, 2}, []int32{1, 0}},
		"no holes": {layout, []int64{0, 4, 12}, 0, 1 << 16, []ssd.Range{{0, 2 * page}, {3 * page, page}},
			[]int32{0, 2, 3}, []int32{0, 1, 2}},
		"slot full": {layout, []int64{0, 4, 8}, 4, 2 * page, []ssd.Range{{0, 2 * page}, {2 * page, page}},
			[]int32{0, 2, 3}, []int32{0, 1, 2}},
		"straddler begins on the last page of a full slot": {
			ssd.Layout{RowBytes: 3000, NumRows: 100}, []int64{0, 1, 2, 3}, 4, 2 * page,
			[]ssd.Range{{0, 2 * page}, {page, 2 * page}}, []int32{0, 2, 4}, []int32{0, 1, 2, 3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var m ssd.Merger
			p := m.Plan(c.layout, c.rows, c.hole, c.slot)
			require.Equal(t, c.ranges, slices.Clone(p.Ranges))
			require.Equal(t, c.first, p.First)
			require.Equal(t, c.pos, slices.Clone(p.Pos))
		})
	}
}

func TestPlanAgainstOracle(t *testing.T) {
	t.Parallel()
	const seed = 20
	r := rand.New(rand.NewPCG(seed, 0))
	layouts := []ssd.Layout{
		{RowBytes: 512, RowsPerPage: 8, NumRows: 1 << 33},
		{RowBytes: 400, RowsPerPage: 10, NumRows: 1 << 20},
		{RowBytes: 3000, NumRows: 1 << 45},
		{RowBytes: 4, NumRows: 5000},
		{RowBytes: 10_000, NumRows: 300},
		{RowBytes: 8192, NumRows: 3000},
	}
	var m ssd.Merger // one for all: what is left over from a plan must not show in the next
	for round := range 400 {
		l := layouts[round%len(layouts)]
		span := 1 + r.Int64N(min(l.NumRows, 1<<(4+r.IntN(40))))
		base := r.Int64N(l.NumRows - span + 1)
		rows := make([]int64, r.IntN(600))
		for i := range rows {
			rows[i] = base + r.Int64N(span)
		}
		given := slices.Clone(rows)
		hole := r.IntN(6)
		slot := int(l.SpanBytes()) + r.IntN(20)*ssd.PageBytes
		t.Run(fmt.Sprintf("round %d of seed %d", round, seed), func(t *testing.T) {
			p := m.Plan(l, rows, hole, slot)
			require.Equal(t, given, rows, "the list is not changed")
			checkPlan(t, l, rows, hole, slot, p)
		})
	}
}

func checkPlan(t testing.TB, l ssd.Layout, rows []int64, hole, slot int, p *ssd.ReadPlan) {
	t.Helper()
	require.Len(t, p.First, len(p.Ranges)+1)
	require.Len(t, p.Pos, len(rows))
	require.Zero(t, p.First[0])
	require.EqualValues(t, len(rows), p.First[len(p.Ranges)])

	seen := make([]bool, len(rows))
	for i, got := range p.Ranges {
		require.Zero(t, got.Off%ssd.PageBytes)
		require.Zero(t, got.Len%ssd.PageBytes)
		require.LessOrEqual(t, int(got.Len), slot)
		require.LessOrEqual(t, got.Off+int64(got.Len), l.FileBytes())
		require.Less(t, p.First[i], p.First[i+1], "a range without rows")
		inRange := map[int64]bool{} // pages that its rows touch
		for _, pos := range p.Pos[p.First[i]:p.First[i+1]] {
			s := pagesOf(l, rows[pos])
			if seen[pos] || s.begin < got.Off || s.end > got.Off+int64(got.Len) {
				t.Fatalf("row %d listed twice (%v) or at %v outside of its range %v", rows[pos], seen[pos], s, got)
			}
			seen[pos] = true
			for page := s.begin; page < s.end; page += ssd.PageBytes {
				inRange[page] = true
			}
		}
		require.True(t, inRange[got.Off] && inRange[got.Off+int64(got.Len)-ssd.PageBytes],
			"range begins or ends with a page nobody wants")
		run := 0
		for page := got.Off; page < got.Off+int64(got.Len); page += ssd.PageBytes {
			if run++; inRange[page] {
				run = 0
			}
			if run > hole {
				t.Fatalf("hole of more than %d pages at %d in %v", hole, page, got)
			}
		}
		if i == 0 {
			continue
		}
		before := p.Ranges[i-1]
		gap := (got.Off - before.Off - int64(before.Len)) / ssd.PageBytes
		if gap < 0 {
			require.Zero(t, l.RowsPerPage, "only straddling rows make ranges overlap")
			require.Positive(t, got.Off-before.Off)
		}
		if gap <= int64(hole) {
			firstRow := pagesOf(l, rows[p.Pos[p.First[i]]])
			require.Greater(t, firstRow.end-before.Off, int64(slot), "ranges that could have been one")
		}
	}
	require.NotContains(t, seen, false, "row left out")
}

func TestPlanChecksItsInvariants(t *testing.T) {
	l := ssd.Layout{RowBytes: 3000, NumRows: 10}
	var m ssd.Merger
	for name, call := range map[string]func(){
		"row too large":          func() { m.Plan(l, []int64{3, 10, 4}, 4, 1<<16) },
		"row negative":           func() { m.Plan(l, []int64{3, -1, 4}, 4, 1<<16) },
		"negative rows in order": func() { m.Plan(l, []int64{-2, 1}, 4, 1<<16) },
		"slot too small":         func() { m.Plan(l, []int64{3}, 4, ssd.PageBytes) },
		"slot not whole pages":   func() { m.Plan(l, []int64{3}, 4, 1<<16+1) },
	} {
		require.Panics(t, call, name)
	}
}

func FuzzPlan(f *testing.F) {
	f.Add(uint16(512), uint8(8), []byte{1, 200, 3, 3, 90}, uint8(4), uint8(3))
	f.Add(uint16(3000), uint8(0), []byte{0, 1, 2, 3, 255, 255}, uint8(0), uint8(0))
	f.Fuzz(func(t *testing.T, rowBytes uint16, perPage uint8, raw []byte, hole, spare uint8) {
		l := ssd.Layout{RowBytes: int(rowBytes) + 1, RowsPerPage: int(perPage), NumRows: 256 * 64}
		if l.RowBytes*l.RowsPerPage > ssd.PageBytes {
			l.RowsPerPage = 0
		}
		rows := make([]int64, len(raw))
		for i, b := range raw {
			rows[i] = int64(b) * int64(i%64+1)
		}
		var m ssd.Merger
		slot := int(l.SpanBytes()) + int(spare)*ssd.PageBytes
		checkPlan(t, l, rows, int(hole), slot, m.Plan(l, rows, int(hole), slot))
	})
}

// TestDenseRows: any part of a file that begins with a row gives its rows without padding.
func TestDenseRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, l := range []ssd.Layout{{RowBytes: 4}, {RowBytes: 8, RowsPerPage: 512}, {RowBytes: 5, RowsPerPage: 819},
		{RowBytes: 400, RowsPerPage: 10}, {RowBytes: 4096, RowsPerPage: 1}} {
		l.NumRows = 5000
		file, rows := make([]byte, l.FileBytes()), make([]byte, l.NumRows*int64(l.RowBytes))
		for i := range rows {
			rows[i] = byte(1 + rng.IntN(255))
		}
		for row := range l.NumRows {
			copy(file[l.Offset(row):], rows[row*int64(l.RowBytes):][:l.RowBytes])
		}
		for range 200 {
			first := rng.Int64N(l.NumRows)
			n := 1 + rng.Int64N(l.NumRows-first)
			from, to := l.Offset(first), l.Offset(first+n-1)+int64(l.RowBytes)
			want := rows[first*int64(l.RowBytes):][:n*int64(l.RowBytes)]
			require.Equal(t, want, l.Dense(from, bytes.Clone(file[from:to])))
			if from%ssd.PageBytes == 0 {
				require.Equal(t, first, l.RowAt(from))
			}
		}
		require.Equal(t, rows, l.Dense(0, file)[:len(rows)])
	}
}
