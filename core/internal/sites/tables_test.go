package sites_test

import (
	"cmp"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/embed"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// tableWidth is the bytes of a row of a trained table.
const tableWidth = 20

// tableWork makes or opens a table, changes it in every way, and leaves it in the state before the one saved last.
func tableWork() work {
	return work{
		prepare: func(t *testing.T, dir string) { // what a creation that was killed left
			table, err := embed.Create(ssd.OS, filepath.Join(dir, "table"), embed.Options{Rows: 1, RowBytes: 4})
			require.NoError(t, err)
			require.NoError(t, table.Close())
		},
		run: trainTable,
		digest: func(dir string) (uint64, error) {
			table, err := embed.Open(ssd.OS, filepath.Join(dir, "table"))
			if err != nil {
				return 0, err
			}
			data, sum := make([]byte, nodes*tableWidth), fnv.New64a()
			err = table.Read(allRows(), data)
			_, _ = sum.Write(data)
			return sum.Sum64(), errors.Join(err, table.Close())
		},
	}
}

func allRows() (ids []int64) {
	for id := range int64(nodes) {
		ids = append(ids, id)
	}
	return ids
}

func trainTable(fs ssd.FS, dir string) error {
	path := filepath.Join(dir, "table")
	table, err := embed.Open(fs, path)
	if errors.Is(err, store.ErrNotFound) {
		table, err = embed.Create(fs, path, embed.Options{Rows: nodes, RowBytes: tableWidth})
	}
	if err != nil {
		return err
	}
	if err := errors.Join(changeTable(table), table.Close()); err != nil {
		return err
	}
	if table, err = embed.Open(fs, path); err != nil { // undoes what was not saved
		return err
	}
	previous := table.Describe().Previous
	return errors.Join(table.Restore(previous), table.Close())
}

// changeTable saves two states, and changes rows after the second.
func changeTable(table *embed.Table) error {
	rows := make([]byte, nodes*tableWidth)
	for i := range rows {
		rows[i] = byte(i % 251)
	}
	if err := table.Write(0, nodes, rows); err != nil {
		return err
	}
	for round := range uint32(2) {
		if _, err := table.Save(nil); err != nil {
			return err
		}
		if err := returnRows(table, round); err != nil {
			return err
		}
	}
	got := make([]byte, len(rows))
	return table.Read(allRows(), got)
}

// returnRows returns every row in falling order, most of them by runs in a file.
func returnRows(table *embed.Table, round uint32) error {
	back, err := embed.NewReturned(table, mem.NewBudget(0), embed.RoomIn(4<<10))
	if err != nil {
		return err
	}
	defer back.Close()
	record := make([]byte, tableWidth+embed.TrailerBytes)
	for row := uint32(nodes); row > 0 && err == nil; row-- {
		binary.LittleEndian.PutUint32(record, row+round)
		err = back.Add(row-1, record)
	}
	return cmp.Or(err, back.Settle(false))
}
