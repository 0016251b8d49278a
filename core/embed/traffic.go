package embed

import "sync/atomic"

// traffic counts what changing rows moves. Its numbers are independent sums, so each is atomic by itself.
type traffic struct{ read, written, rows atomic.Int64 }

// Moved counts the bytes and rows that changing a table has moved.
type Moved struct {
	Read    int64 // bytes: pages before they change or go to the undo journal, and records from runs
	Written int64 // bytes: pages, the undo journal, and records to runs
	Rows    int64 // written into the file
}

// Minus returns what was moved since another time.
func (m Moved) Minus(o Moved) Moved {
	return Moved{m.Read - o.Read, m.Written - o.Written, m.Rows - o.Rows}
}

// Moved returns what changing rows has moved since the table was opened. Reads of rows for batches are not in it. Any
// goroutine may call it.
func (t *Table) Moved() Moved {
	return Moved{t.traffic.read.Load(), t.traffic.written.Load(), t.traffic.rows.Load()}
}
