package loader

// lookup holds the places of the rows of a batch, by position.
type lookup struct {
	hitRows, hitSlots []int32 // tensor rows that are cached, and their slots
	cold              []int32 // positions that are not
	delivered         []bool  // by column of the cache and position: found in a pack
	hitsOfType        []int32 // the hitRows of one type, within its tensors
	wanted            []int64 // rows to read
	from              []int32 // what each of wanted is: a position, or ^index of an extra row
}

// lookupBytes is the scratch of a preparer, per row looked up: the fields of
// lookup, batchRows and step, and the read plan's sort keys, ranges and positions.
func lookupBytes(rows int64) int64 { return rows * (4 + 4 + 4 + 1 + 8 + 4 + 4 + 4 + 8 + 2*16 + 12) }

// resolve finds out where the rows of a batch are, once for all tables.
func (p *preparer) resolve(b *Batch) error {
	l, k := p.loader, &p.lookup
	found := int64(len(p.batch.Nodes)) // but for those that are cold
	if p.cut.On() {
		found = int64(len(p.cut.Batch.Loaded()))
	}
	l.counters.rows.Add(found)
	if l.options.Held != nil {
		found -= p.batchRows.held
		l.counters.held.Add(p.batchRows.held)
	}
	if len(l.onDisk) == 0 {
		l.counters.hits.Add(found)
		return nil
	}
	switch {
	case p.super != nil: // planned
	case l.policy == nil, p.onDemand && l.online:
		p.step.Slots = nil
	case l.online:
		if err := p.epoch.decided.enter(b.Index); err != nil {
			return err
		}
		l.policy.Step(p.batchRows.rows, &p.step.Step)
		p.epoch.decided.leave()
	default:
		l.policy.Step(p.batchRows.rows, &p.step.Step)
	}
	err := p.loader.compute(p.epoch.ctx, func() { k.sort(p.step.Slots, &p.batchRows) })
	l.counters.hits.Add(found - int64(len(k.cold)))
	if p.super == nil {
		l.counters.misses.Add(int64(len(k.cold)))
	}
	return err
}

func (k *lookup) sort(slots []int32, r *batchRows) {
	k.hitRows, k.hitSlots, k.cold = k.hitRows[:0], k.hitSlots[:0], k.cold[:0]
	for i := range r.rows {
		if r.tensorRow(int32(i)) < 0 {
			continue // pruned
		}
		if i < len(slots) && slots[i] >= 0 {
			k.hitRows = append(k.hitRows, r.tensorRow(int32(i)))
			k.hitSlots = append(k.hitSlots, slots[i])
		} else {
			k.cold = append(k.cold, int32(i))
		}
	}
}

// base returns the first tensor row of a table, counted over all types.
func (p *preparer) base(t *table) int32 { return int32(p.typeOffsets.rows[t.typ]) }
