package loader

import (
	"cmp"
	"context"

	"freshgo/core/cache"
	"freshgo/core/draw"
	"freshgo/core/fetch"
	"freshgo/core/window"
)

// rowCache is the cache of a loader: it has the sources of rows, and chooses how an epoch is drawn. openCache chooses
// the one rowCache of a loader; nothing checks afterwards which it is.
type rowCache interface {
	// begin returns the drawer of the batches of an epoch.
	begin(e *epoch) (drawer, error)
	// source returns what brings the rows of a preparer's batches, which may be the preparer's batch of a window.
	source(w *window.Batch) fetch.Source
	// readOnly returns the source of batches on demand, which wait for no other batch and change nothing.
	readOnly() fetch.Source
	// settle writes the current rows of tables that training changes into their files. No epoch runs.
	settle() error
	// abandon ends what runs ahead of the epochs, without waiting for it; stop waits and frees it.
	abandon()
	stop()
	// addStats and addPlan add the figures of this kind of cache. Any goroutine may call them.
	addStats(*Stats)
	addPlan(*Plan)
}

// openCache makes the cache that the split has room for.
func openCache(ctx context.Context, l *Loader) (err error) {
	if len(l.rows.OnDisk) == 0 {
		l.cache = passive{fetch.AllInMemory{}}
		return nil
	}
	switch cache.KindOf(l.draw.Split.Cache) {
	case cache.Absent:
		l.cache = passive{fetch.Uncached{}}
	case cache.Planned:
		var c *window.Cache
		c, err = window.Open(ctx, window.Config{
			Sampling: &l.draw, Features: &l.rows, Counters: &l.counters, History: l.history.pruner,
			Schedule: l.turnsFrom, Fail: l.fail,
		})
		l.cache = plannedRows{l, c}
	case cache.Online:
		var c *fetch.Online
		c, err = fetch.OpenOnline(&l.draw, &l.rows)
		l.cache = onlineRows{passive{c}, l, c}
	default:
		var c fetch.Source
		c, err = fetch.OpenFixed(ctx, &l.draw, &l.rows, &l.counters)
		l.cache = passive{c}
	}
	return err
}

// passive is a cache that does nothing ahead of the batches, and that no batch changes.
type passive struct{ rows fetch.Source }

func (c passive) begin(e *epoch) (drawer, error)    { return drawNow(e) }
func (c passive) source(*window.Batch) fetch.Source { return c.rows }
func (c passive) readOnly() fetch.Source            { return c.rows }

func (passive) settle() error   { return nil }
func (passive) abandon()        {}
func (passive) stop()           {}
func (passive) addStats(*Stats) {}
func (passive) addPlan(*Plan)   {}

// onlineRows is a cache that changes with each batch.
type onlineRows struct {
	passive
	loader *Loader
	cache  *fetch.Online
}

func (onlineRows) readOnly() fetch.Source { return fetch.Uncached{} }

func (c onlineRows) begin(e *epoch) (drawer, error) {
	if err := c.cache.Begin(); err != nil {
		return nil, err
	}
	d, err := drawNow(e)
	return &onlineDrawer{d, c.cache}, err
}

func (c onlineRows) addPlan(p *Plan) { addOrder(p, &c.loader.draw) }

// addOrder adds how batches change places.
func addOrder(p *Plan, m *draw.Sampling) {
	p.Reorder, p.ReorderRows = m.Split.Reorder, draw.OrderedCache(m).Capacity
}

// onlineDrawer is the drawer of an epoch whose batches change an online cache.
type onlineDrawer struct {
	drawer
	cache *fetch.Online
}

// end empties the cache where batches of the epoch decided and were not made.
func (d *onlineDrawer) end(whole bool) {
	d.drawer.end(whole)
	if !whole {
		d.cache.Empty()
	}
}

// plannedRows is a cache whose changes are planned ahead.
type plannedRows struct {
	loader *Loader
	cache  *window.Cache
}

func (c plannedRows) begin(e *epoch) (drawer, error) {
	if e.first == e.count {
		return drawNow(e) // no batch is left
	}
	d := &windowDrawer{epoch: e, window: c.cache.Begin(e.index, e.first, e.shareSchedule)}
	d.take = d.takeWhole
	if e.pruner.Prunes() {
		d.take = d.takePruned
		c.cache.Prune()
	}
	return d, nil
}

func (c plannedRows) source(w *window.Batch) fetch.Source { return w }
func (c plannedRows) readOnly() fetch.Source              { return fetch.Uncached{} }
func (c plannedRows) abandon()                            { c.cache.Abandon() }
func (c plannedRows) settle() error                       { return c.cache.Settle() }
func (c plannedRows) stop()                               { _ = c.cache.Settle() } // the tables say what they lost

func (c plannedRows) addStats(s *Stats) {
	of := c.cache.Stats()
	s.Superbatch, s.PredictionError = c.loader.draw.Split.Superbatch, of.PredictionError
	s.ScratchWritten, s.ScratchRead = of.Scratch.Written, of.Scratch.Read
	s.ScratchWhy = cmp.Or(of.Scratch.Why, of.Scratch.Short)
	if t := c.cache.Tables(); t != nil {
		s.TableRows, s.TableRowsLate = t.Rows, t.RowsLate
		s.TableRead, s.TableWritten, s.TableReturned = t.BytesRead, t.BytesWritten, t.BytesReturned
	}
	own := of.Calibration
	s.BytesRead, s.Requests, s.Retries = s.BytesRead-own.Bytes, s.Requests-own.Requests, s.Retries-own.Retries
}

func (c plannedRows) addPlan(p *Plan) {
	s, of := &c.loader.draw.Split, c.cache.Report()
	addOrder(p, &c.loader.draw)
	p.Superbatch, p.ScratchLimit = s.Superbatch, s.Scratch
	p.MoreMemory = c.loader.offers()
	p.Device, p.Windows, p.MedianError = &of.Device, of.Windows, c.cache.Stats().PredictionError
	p.History, p.Timeline, p.Tables = of.History, of.Timeline, c.cache.Tables()
}
