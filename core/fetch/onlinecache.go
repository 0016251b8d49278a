package fetch

import (
	"freshgo/core/cache"
	"freshgo/core/draw"
)

// Online is the cache of a policy that decides from the batches so far. Batches decide one after the other, and
// then change the slots one after the other; between the two they read side by side.
type Online struct {
	sampling *draw.Sampling
	features *Features
	kind     string
	policy   cache.Policy // nil: it was dropped, and the cache is empty
}

func OpenOnline(m *draw.Sampling, f *Features) (*Online, error) {
	f.Movers = m.Split.Workers // batches take turns at the cache
	c := &Online{sampling: m, features: f, kind: m.Split.Cache}
	if err := c.restart(); err != nil {
		return nil, err
	}
	m.OnClose(c.drop)
	if err := f.OpenResident(m); err != nil {
		return nil, err
	}
	return c, f.OpenSlots(m, m.Split.CacheRows)
}

// restart begins with an empty cache.
func (c *Online) restart() (err error) {
	m := c.sampling
	c.policy, err = cache.New(c.kind, m.Budget, m.Parts.NumNodes, m.Split.CacheRows)
	return err
}

// drop forgets what the policy has decided.
func (c *Online) drop() {
	if c.policy != nil {
		c.policy.Close()
		c.policy = nil
	}
}

// Begin begins an epoch, with an empty cache where the policy was dropped.
func (c *Online) Begin() error {
	if c.policy != nil {
		return nil
	}
	return c.restart()
}

// Empty forgets everything: batches decided and were not made.
func (c *Online) Empty() {
	c.drop()
	c.features.Resident.empty()
}

func (c *Online) Fill(f *Filler, i int64, tensors [][]byte) error {
	if err := f.Turns.Policy.Enter(i); err != nil {
		return err
	}
	c.policy.Step(f.Drawn.BatchRows.Rows, &f.Step.Step)
	f.Turns.Policy.Leave()
	if err := f.readMissing(f.Step.Slots, tensors); err != nil {
		return err
	}
	if err := f.Turns.Cache.Enter(i); err != nil {
		return err
	}
	defer f.Turns.Cache.Leave()
	return f.Timed(func() {
		f.CopyCached(tensors)
		f.EnterRows(tensors)
	})
}
