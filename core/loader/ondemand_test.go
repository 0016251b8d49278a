package loader

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/internal/explore"
	"freshgo/core/links"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
)

func asked(t *testing.T, l *Loader, ask OnDemand) *seen {
	t.Helper()
	b, err := l.Sample(context.Background(), ask)
	require.NoError(t, err)
	defer b.Release()
	return look(b)
}

// firstOver is the first batch of a loader over what is asked for.
func firstOver(t *testing.T, src draw.Source, o draw.Options, change func(o *draw.Options)) *seen {
	t.Helper()
	o.Shuffle, o.DropLast, o.BatchSize = false, false, 1000
	change(&o)
	return epochOf(t, open(t, src, o), 0)[0]
}

// Under every cache and every kind of draw, a batch on demand equals the first batch of a loader over its seeds, and
// the epochs around it do not change.
func TestSampleIsTheFirstBatchOfALoader(t *testing.T) {
	d := newDataset(600, 6000).weighted(manifest.DType_FLOAT32).timed(manifest.DType_INT64)
	s := d.store(t, ssd.OS)
	ways := d.form("").treeOptions()
	ways["plain"] = func(*draw.Options) {}
	ways["labor"] = func(o *draw.Options) { o.Sampler = &sample.Labor{BatchDependency: 3} }
	ids := []int64{500, 3, 3, 17, 599, 20}
	for name, change := range ways {
		caches := []string{"belady"}
		if name == "plain" {
			caches = []string{"none", "belady", "lru", "degree"}
		}
		for _, cache := range caches {
			t.Run(name+" "+cache, func(t *testing.T) {
				base := plain()
				base.Seed, base.Cache, base.Memory = explore.Seed(t, 9), cache, 24<<20
				change(&base)
				want := epochOf(t, open(t, draw.OpenStore(s), base), 0)
				l := open(t, draw.OpenStore(s), base)
				ask := OnDemand{Seeds: ids}
				if base.SeedTimes != nil {
					ask.Times = []int64{5, 50, 60, 70, 200, -3}
				}
				var got []*seen
				require.NoError(t, l.Start(0, 0, Train))
				first := firstOver(t, draw.OpenStore(s), base, func(o *draw.Options) { o.Seeds, o.SeedTimes = ids, ask.Times })
				var asking sync.WaitGroup
				for range 3 {
					asking.Go(func() {
						for range 4 {
							b, err := l.Sample(context.Background(), ask)
							if err == nil && !slices.Equal(look(b).int64s("e_id"), first.int64s("e_id")) {
								t.Error("a batch differs that was asked for beside others")
							}
							if err != nil {
								t.Error(err)
								return
							}
							b.Release()
						}
					})
				}
				for b := range len(want) {
					one, err := l.Next(context.Background())
					require.NoError(t, err)
					got = append(got, look(one))
					one.Release()
					if b%9 == 0 {
						require.Equal(t, first, asked(t, l, ask))
					}
				}
				asking.Wait()
				requireSame(t, want, got)
			})
		}
	}
}

func TestSampleOfTheLoadersInputs(t *testing.T) {
	d := severalTypes()
	o := d.options()
	l := open(t, d.graph(t), o)
	places := []int64{5, 0, 5}
	var ids []int64
	for _, at := range places {
		ids = append(ids, l.draw.Options.Seeds[at])
	}
	own, other := asked(t, l, OnDemand{Inputs: places}), asked(t, l, OnDemand{Seeds: ids})
	for name := range other.arrays {
		if name != "n0/input_id" && name != "n1/input_id" && name != "n2/input_id" {
			require.Equal(t, other.arrays[name], own.arrays[name], name)
		}
	}
}

func TestSampleOfLinks(t *testing.T) {
	d := newDataset(900, 8000).timed(manifest.DType_INT64)
	s := d.store(t, ssd.OS)
	for name, change := range map[string]func(o *draw.Options){
		"pairs":    func(o *draw.Options) { o.Links = &links.Options{Negatives: 1.5} },
		"triplets": func(o *draw.Options) { o.Links = &links.Options{Negatives: 2, Triplets: true} },
		"strict": func(o *draw.Options) {
			o.Links = &links.Options{Negatives: 1, Strict: true, Exclude: links.ExcludeBoth}
		},
		"times": func(o *draw.Options) {
			o.Links, o.TimeAttr = &links.Options{Negatives: 1}, "time"
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := plain()
			change(&base)
			l := open(t, draw.OpenStore(s), base)
			places := []int64{70, 3, 7999}
			ask := OnDemand{}
			for _, at := range places {
				ask.Sources, ask.Targets = append(ask.Sources, d.sources[at]), append(ask.Targets, d.targets[at])
				if base.TimeAttr != "" {
					ask.Times = append(ask.Times, d.timeOf(at))
				}
			}
			got, inputs := asked(t, l, ask), asked(t, l, OnDemand{Inputs: places})
			require.Equal(t, places, inputs.int64s("input_id"))
			delete(got.arrays, "input_id")
			delete(inputs.arrays, "input_id")
			require.Equal(t, got.arrays, inputs.arrays)
			if base.Links.Strict {
				return // a loader over these links avoids fewer
			}
			want := firstOver(t, draw.OpenStore(s), base, func(o *draw.Options) {
				k := *o.Links
				k.Sources, k.Targets = ask.Sources, ask.Targets
				o.Links, o.SeedTimes = &k, ask.Times
			})
			delete(want.arrays, "input_id")
			require.Equal(t, want.arrays, got.arrays)
		})
	}
}

func TestWrongAsks(t *testing.T) {
	d := newDataset(100, 500)
	g := d.graph(t)
	o := plain()
	o.Seeds = []int64{4, 5}
	l := open(t, g, o)
	o.Seeds, o.Links = nil, &links.Options{}
	k := open(t, g, o)
	for _, c := range []struct {
		of   *Loader
		ask  OnDemand
		want error
	}{
		{l, OnDemand{}, draw.ErrOption},
		{l, OnDemand{Inputs: []int64{}}, draw.ErrOption},
		{l, OnDemand{Inputs: []int64{2}}, draw.ErrOption},
		{l, OnDemand{Inputs: []int64{-1}}, draw.ErrOption},
		{l, OnDemand{Inputs: []int64{0}, Seeds: []int64{0}}, draw.ErrOption},
		{l, OnDemand{Seeds: []int64{}}, draw.ErrOption},
		{l, OnDemand{Seeds: []int64{100}}, sample.ErrSeed},
		{l, OnDemand{Seeds: []int64{1}, Times: []int64{1}}, draw.ErrOption},
		{l, OnDemand{Sources: []int64{1}, Targets: []int64{1}}, draw.ErrOption},
		{k, OnDemand{Seeds: []int64{1}}, draw.ErrOption},
		{k, OnDemand{Sources: []int64{1}, Targets: []int64{1, 2}}, draw.ErrOption},
		{k, OnDemand{Sources: []int64{100}, Targets: []int64{1}}, sample.ErrSeed},
		{k, OnDemand{Sources: []int64{1}, Targets: []int64{1}, Times: []int64{1}}, draw.ErrOption},
	} {
		_, err := c.of.Sample(context.Background(), c.ask)
		require.ErrorIs(t, err, c.want, "%+v", c.ask)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := l.Sample(ended, OnDemand{Seeds: []int64{1}})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, l.Close())
	_, err = l.Sample(context.Background(), OnDemand{Seeds: []int64{1}})
	require.ErrorIs(t, err, ErrClosed)
}

// A loader that is closed ends what is asked of it and frees what that held.
func TestCloseEndsSamples(t *testing.T) {
	d := newDataset(3000, 60000)
	o := plain()
	o.Fanouts = []int64{-1, -1}
	alloc := mem.NewAllocator()
	l, err := Open(context.Background(), draw.OpenStore(d.store(t, ssd.OS)), o, alloc)
	require.NoError(t, err)
	var asking sync.WaitGroup
	begun := make(chan bool, 4)
	for range 4 {
		asking.Go(func() {
			for first := true; ; first = false {
				b, err := l.Sample(context.Background(), OnDemand{Inputs: []int64{1, 2, 3, 4, 5}})
				if first {
					begun <- true
				}
				if err != nil {
					if err != ErrClosed {
						t.Error(err)
					}
					return
				}
				b.Release()
			}
		})
	}
	<-begun
	require.NoError(t, l.Close())
	asking.Wait()
	buffers, _ := alloc.Live()
	require.Zero(t, buffers)
}
