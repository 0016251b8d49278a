package sizing

import (
	"slices"
	"strings"

	"freshgo/core/ssd"
)

// movement predicts the bytes that an epoch moves of the cacheable rows. It holds the quantities that determine them,
// except for windows and the rows in the cache.
type movement struct {
	row, scan float64     // bytes of the rows of a node in the cache, and of all rows
	single    float64     // bytes of the pages that a row lies on, in the mean
	rows      frequencies // that may be cached
	batches   float64     // of an epoch
	file      float64     // useful bytes of the scratch file for the packs of a window, and
	scratch   float64     // for packs and records of a window, which has
	records   float64     // bytes of records for a batch
	tables    []*Tensor   // the tensors of these rows, and
	wanted    []float64   // the rows that a batch needs of each,
	spread    []float64   // and the share of its pages that these lie on
	transfer  string      // how cold rows are read: see Request
}

func (z *division) movement(s *Split) (m movement) {
	for _, i := range z.graph.cached(s) {
		t := &z.graph.Tensors[i]
		m.row += float64(t.Width)
		m.scan += float64(t.bytes())
		m.tables, m.wanted = append(m.tables, t), append(m.wanted, expected(z.costs.NodesOfType[t.Type]))
		m.spread = append(m.spread, z.costs.Observed.spread(i))
	}
	var types []frequencies
	for _, t := range s.cachedTypes(&z.graph) {
		types = append(types, z.ofType[t])
	}
	var rows, pages float64
	for i, t := range m.tables {
		rows, pages = rows+m.wanted[i], pages+m.wanted[i]*t.pages()
	}
	m.single = ssd.PageBytes
	if rows > 0 {
		m.single *= pages / rows
	}
	m.batches, m.rows, m.transfer = float64(max(1, z.ask.EpochBatches)), byRate(types...), z.ask.Transfer
	if !slices.ContainsFunc(m.tables, func(t *Tensor) bool { return 2*t.Width <= ssd.PageBytes }) { // none share pages
		m.transfer = strings.TrimPrefix(strings.Replace(m.transfer, "page-once", "random", 1), "random+")
	}
	switch {
	case strings.HasPrefix(m.transfer, "scan"): // its packs stay in memory, which has none where plans are stored
		m.scratch = unlimited
		if !s.Stored {
			m.file = float64(s.Packs) / 2
		}
	case s.Stored:
		m.file, m.scratch = float64(z.graph.packsOfUse(s))/2, float64(z.ask.mostScratch())/2
		m.records = float64(z.costs.recordBytes()) / 2
	case s.Packs >= filePacks:
		of := Split{Scratch: z.ask.scratch(&z.graph, s)}
		m.file, m.scratch = float64(of.PackFile())/2, unlimited
	}
	return m
}

// pages returns the mean number of pages that a row lies on.
func (t *Tensor) pages() float64 {
	l := ssd.Layout{RowBytes: t.Width}
	if t.Span == ssd.PageBytes {
		l.RowsPerPage = 1
	}
	return l.MeanPages()
}

// moved predicts the bytes of an epoch, and their cost, in which bytes that are read on demand count byPage times.
type moved struct{ bytes, cost float64 }

// byPage is the factor by which bytes that are read on demand cost more than bytes of scans and packs: a request for a
// page takes as long as several pages in sequence, seven at 12 us a request, 1.5 us a page and 2 GB/s. Arbitrary.
const byPage = 4

// trainedEpochs is the number of epochs that share the cost of filling a cache. Arbitrary: trainings have tens.
const trainedEpochs = 10

// scanned predicts an epoch's share of the bytes by which a fixed cache fills, before any batch.
func (m movement) scanned(cached int64) float64 { return float64(cached) * m.row / trainedEpochs }

// taken predicts an epoch's share of the bytes by which a planned cache fills, with rows that batches read by the page.
func (m movement) taken(cached int64) float64 {
	return min(float64(cached), m.rows.distinct(m.batches)) * max(m.row, m.single) / trainedEpochs
}

// planned predicts the movement of an epoch of planned batches, by the batches of a window and the rows in the cache.
// Plans that choose move rows by packs, or on demand if packs would move notably more bytes.
func (m movement) planned(window, cached int64) moved {
	missed := m.missed(window, cached)
	packed, onDemand := m.packed(window, missed), m.onDemand(missed)
	switch m.transfer {
	case "random":
		return moved{onDemand, byPage * onDemand}
	case "forward":
		return m.forwarded(window, missed)
	case "", "auto":
		if packed > hardlyMore*onDemand {
			return moved{onDemand, byPage * onDemand}
		}
	}
	return moved{packed, packed}
}

// forwarded predicts the movement where rows that leave the cache go to packs, and batches read the others themselves:
// those that no batch of their window or of the one before had.
func (m movement) forwarded(window int64, missed float64) moved {
	n := m.window(window)
	aside := max(0, missed-m.rows.unseen(lookedBack*n))
	rows := n * aside * m.rows.drawn()
	aside *= min(1, max(0, min(m.file, m.scratch-n*m.records))/max(1, rows*m.row))
	packs, onDemand := m.batches*aside*m.rows.drawn()*2*m.row, m.onDemand(missed-aside)
	return moved{packs + onDemand, packs + byPage*onDemand}
}

// packed predicts the bytes of packs by the share of rows that the cache does not have: a scan for each window, at most
// of the pages of its cold rows, and one write and one read of each cold row. One window fills packs while the packs of
// another are read; rows without room in the scratch file are read by the page. Where all have room, a scan may fill
// the packs of two windows.
func (m movement) packed(window int64, missed float64) float64 {
	n := m.window(window)
	missed *= m.rows.drawn()
	packed := min(1, max(0, min(m.file, m.scratch-n*m.records))/max(1, n*missed*m.row))
	each := packed*2*m.row + (1-packed)*max(2*m.row, m.single)
	if packed == 1 && m.readsAhead() {
		n *= 2
	}
	scan := min(m.scan, n*missed*m.single, m.rows.distinct(n)*max(m.row, m.single))
	return m.batches/n*scan + m.batches*missed*each
}

// readsAhead reports whether a scan may read the rows of two windows.
func (m movement) readsAhead() bool {
	return m.transfer == "" || m.transfer == "auto" || strings.HasSuffix(m.transfer, "+ahead")
}

// onDemand predicts the bytes where each batch reads its own rows, by the share of rows that the cache does not have.
func (m movement) onDemand(missed float64) (total float64) {
	for i, t := range m.tables {
		total += m.batches * readBytes(missed*m.wanted[i], t, m.spread[i])
	}
	return total
}

// missed returns the share of rows that a planned cache does not have.
func (m movement) missed(window, cached int64) float64 {
	return 1 - m.rows.planned(float64(cached), lookedBack*m.window(window))
}

// lookedBack is the number of windows that a plan sees, ahead and back, from a batch in the middle of its window: half
// of that, and another.
const lookedBack = 1.5

func (m movement) window(n int64) float64 { return min(float64(max(1, n)), m.batches) }
