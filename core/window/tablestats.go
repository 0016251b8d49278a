package window

// TableStats counts what tables that training changes took since the loader was opened.
type TableStats struct {
	Rows     int64 `json:"rows"`      // in batches
	RowsLate int64 `json:"rows_late"` // of those, put in at the hand-over: an earlier batch had them until then
	// BytesRead is the bytes of rows for batches, of pages before they change or go to the undo journal, and of rows
	// that were spilled on their way back.
	BytesRead int64 `json:"bytes_read"`
	// BytesWritten is the bytes of pages, of the undo journal, and of rows that were spilled on their way back.
	BytesWritten  int64 `json:"bytes_written"`
	BytesReturned int64 `json:"bytes_returned"` // of rows that went back into the files

	LateShare          float64 `json:"late_share"`          // RowsLate of Rows
	WriteAmplification float64 `json:"write_amplification"` // BytesWritten for each of BytesReturned
}

// Tables returns the figures of the tables, or nil where training changes none. Any goroutine may call it.
func (c *Cache) Tables() *TableStats {
	if len(c.trained.tables) == 0 {
		return nil
	}
	s := &TableStats{Rows: c.counters.TableRows.Load(), RowsLate: c.counters.TableRowsLate.Load()}
	for i := range c.trained.tables {
		t := &c.trained.tables[i]
		moved := t.Trained.Moved().Minus(t.before)
		_, received := t.Disk.Handle().Moved()
		s.BytesRead += moved.Read + received
		s.BytesWritten += moved.Written
		s.BytesReturned += moved.Rows * int64(t.Trained.Layout().RowBytes)
	}
	if s.Rows > 0 {
		s.LateShare = float64(s.RowsLate) / float64(s.Rows)
	}
	if s.BytesReturned > 0 {
		s.WriteAmplification = float64(s.BytesWritten) / float64(s.BytesReturned)
	}
	return s
}
