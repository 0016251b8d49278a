package window

import (
	"encoding/binary"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/embed"
	"freshgo/core/fetch"
	"freshgo/core/internal/bitset"
	"freshgo/core/internal/explore"
	"freshgo/core/mem"
	"freshgo/core/ssd"
)

// TestRowsOfAStepGoBack puts rows whose older records are in memory, in runs, in the file, or nowhere, and compares the
// table with a map. Rows whose records are in the file move no page.
func TestRowsOfAStepGoBack(t *testing.T) {
	t.Parallel()
	const rows, rowBytes, perRun = 400, 40, 100
	table, err := embed.Create(ssd.OS, filepath.Join(t.TempDir(), "table"), embed.Options{Rows: rows, RowBytes: rowBytes})
	require.NoError(t, err)
	defer func() { require.NoError(t, table.Close()) }()
	const width = rowBytes + embed.TrailerBytes
	room := embed.Room{Records: perRun * (width + 12), Put: 1 << 14, Merge: 1 << 14} // 12 bytes of the index
	back, err := embed.NewReturned(table, mem.NewBudget(0), room)
	require.NoError(t, err)
	defer back.Close()
	model := map[int64]uint32{}
	rng := explore.Rand(t, 54, 0)
	version := uint32(0)
	put := func(wanted func(row int64) bool) {
		p := putRows{trainedTable: &trainedTable{Table: &fetch.Table{Tensor: draw.Tensor{Width: width}}, back: back}}
		for row := range int64(rows) {
			if wanted(row) {
				version++
				model[row] = version
				record := make([]byte, width)
				binary.LittleEndian.PutUint32(record, version)
				p.rows, p.records = append(p.rows, row), append(p.records, record...)
			}
		}
		p.written = bitset.New(int64(len(p.rows)))
		require.NoError(t, p.toTable())
	}
	inRuns := 0
	for range 200 {
		share := rng.IntN(4)
		put(func(int64) bool { return rng.IntN(4) < share })
		if back.Spills() {
			inRuns++
		}
		switch rng.IntN(4) {
		case 0:
			require.NoError(t, back.Flush())
		case 1:
			back.Take(uint32(rng.IntN(rows))) // which the next batch has
		}
	}
	require.Greater(t, inRuns, 20)
	put(func(int64) bool { return true })
	require.NoError(t, back.Flush())
	before := table.Moved()
	put(func(int64) bool { return true })
	moved := table.Moved().Minus(before)
	require.Equal(t, embed.Moved{Written: (rows - perRun) * width}, moved, "three runs, and the rest in memory")
	require.NoError(t, back.Settle(false))
	record := make([]byte, rowBytes)
	for row := range int64(rows) {
		require.NoError(t, table.Read([]int64{row}, record))
		require.Equal(t, model[row], binary.LittleEndian.Uint32(record), "row %d", row)
	}
}
