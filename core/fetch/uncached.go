package fetch

// AllInMemory is the cache of a loader that reads no rows from disk.
type AllInMemory struct{}

func (AllInMemory) Fill(f *Filler, _ int64, tensors [][]byte) error {
	f.Counters.Hits.Add(f.Drawn.CountRows())
	return f.ReadTables(tensors, nil)
}

// Uncached is the cache of a loader that reads every row for the batch that needs it.
type Uncached struct{}

func (Uncached) Fill(f *Filler, _ int64, tensors [][]byte) error {
	if err := f.readMissing(nil, tensors); err != nil {
		return err
	}
	return f.Timed(func() { f.CopyCached(tensors) })
}
