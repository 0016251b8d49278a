package loader

import (
	"freshgo/core/batch"
	"freshgo/core/cache"
)

// onlineCache is the cache of a policy that decides from the batches so far. Batches decide one after the other, and
// then change the slots one after the other; between the two they read side by side.
type onlineCache struct {
	passive
	loader *Loader
	kind   string
	policy cache.Policy // nil: it was dropped, and the cache is empty
}

func openOnline(l *Loader) (rowCache, error) {
	l.rows.movers = l.draw.Split.Workers // batches take turns at the cache
	c := &onlineCache{loader: l, kind: l.draw.Split.Cache}
	if err := c.restart(); err != nil {
		return nil, err
	}
	l.draw.OnClose(c.drop)
	if err := l.rows.openResident(&l.draw); err != nil {
		return nil, err
	}
	return c, l.rows.openSlots(&l.draw, l.draw.Split.CacheRows)
}

// restart begins with an empty cache.
func (c *onlineCache) restart() (err error) {
	l := c.loader
	c.policy, err = cache.New(c.kind, l.draw.Budget, l.draw.Parts.NumNodes, l.draw.Split.CacheRows)
	return err
}

// drop forgets what the policy has decided.
func (c *onlineCache) drop() {
	if c.policy != nil {
		c.policy.Close()
		c.policy = nil
	}
}

func (c *onlineCache) readOnly() rowCache { return uncached{} }

func (c *onlineCache) begin(e *epoch) (drawer, error) {
	if c.policy == nil {
		if err := c.restart(); err != nil {
			return nil, err
		}
	}
	d, err := drawNow(e)
	return &onlineDrawer{d, c}, err
}

func (c *onlineCache) fill(p *preparer, b *batch.Batch, tensors [][]byte) error {
	if err := p.epoch.decided.enter(b.Index); err != nil {
		return err
	}
	c.policy.Step(p.drawn.BatchRows.Rows, &p.step.Step)
	p.epoch.decided.leave()
	if err := p.readMissing(p.step.Slots, tensors); err != nil {
		return err
	}
	if err := p.epoch.turn.enter(b.Index); err != nil {
		return err
	}
	defer p.epoch.turn.leave()
	return p.timed(func() {
		p.copyCached(tensors)
		p.enterRows(tensors)
	})
}

// onlineDrawer is the drawer of an epoch whose batches change an onlineCache.
type onlineDrawer struct {
	drawer
	cache *onlineCache
}

// end empties the cache where batches of the epoch decided and were not made.
func (d *onlineDrawer) end(whole bool) {
	d.drawer.end(whole)
	if whole {
		return
	}
	d.cache.drop()
	d.cache.loader.rows.resident.empty()
}
