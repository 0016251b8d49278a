package loader

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/draw"
	"freshgo/core/links"
	"freshgo/core/mem"
	"freshgo/core/sample"
)

func TestWrongLinks(t *testing.T) {
	d := newDataset(100, 2200)
	for name, tt := range map[string]struct {
		change func(o *draw.Options)
		err    error
		text   string
	}{
		"out of range": {func(o *draw.Options) { o.Links.Targets[7] = 100 }, sample.ErrSeed,
			"edge_label_index[1, 7] is 100, expected an id in [0, 100)"},
		"negative": {func(o *draw.Options) { o.Links.Sources[0] = -1 }, sample.ErrSeed, "edge_label_index[0, 0] is -1"},
		"none": {func(o *draw.Options) { o.Links.Sources, o.Links.Targets = []int64{}, []int64{} }, draw.ErrOption,
			"no link"},
		"lengths":   {func(o *draw.Options) { o.Links.Targets = o.Links.Targets[1:] }, draw.ErrOption, "sources and"},
		"seeds":     {func(o *draw.Options) { o.Seeds = []int64{1} }, draw.ErrOption, "seeds and links"},
		"amount":    {func(o *draw.Options) { o.Links.Negatives = -1 }, draw.ErrOption, "negatives"},
		"no number": {func(o *draw.Options) { o.Links.Negatives = math.NaN() }, draw.ErrOption, "negatives"},
		"half a triplet": {func(o *draw.Options) { o.Links.Negatives, o.Links.Triplets = 1.5, true }, draw.ErrOption,
			"whole number"},
		"weights": {func(o *draw.Options) { o.Links.Negatives, o.Links.TargetWeights = 1, []float64{1} }, draw.ErrOption,
			"dst_weight must have an entry for each of 100 nodes, got 1"},
		"bad weight": {func(o *draw.Options) {
			o.Links.Negatives, o.Links.SourceWeights = 1, append(make([]float64, 99), -1)
		},
			draw.ErrOption, "src_weight"},
		"no weight": {func(o *draw.Options) { o.Links.Negatives, o.Links.SourceWeights = 1, make([]float64, 100) },
			draw.ErrOption,
			"src_weight"},
		"strict":    {func(o *draw.Options) { o.Links.Strict = true }, draw.ErrOption, "strict negatives need negatives"},
		"exclusion": {func(o *draw.Options) { o.Links.Exclude = 3 }, draw.ErrOption, "exclusion"},
		"labor": {func(o *draw.Options) {
			o.Links.Exclude, o.Sampler = links.ExcludeLinks,
				&sample.Labor{BatchDependency: 1}
		}, draw.ErrOption, "LABOR"},
		"history": {func(o *draw.Options) { o.History = &draw.HistoryOptions{} }, draw.ErrOption, "history"},
		"impossible": {func(o *draw.Options) {
			o.Links.Negatives, o.Links.Strict, o.Links.Triplets = 1, true, true
			for v := range d.nodes {
				o.Links.Sources, o.Links.Targets = append(o.Links.Sources, 4), append(o.Links.Targets, v)
			}
		}, sample.ErrNegative, "node 4 is linked with every node"},
	} {
		t.Run(name, func(t *testing.T) {
			o := d.forLinks(links.Options{})
			o.Links.Sources, o.Links.Targets = slices.Clone(d.sources), slices.Clone(d.targets)
			tt.change(&o)
			_, err := Open(context.Background(), d.graph(t), o, mem.NewAllocator())
			require.ErrorIs(t, err, tt.err)
			require.ErrorContains(t, err, tt.text)
		})
	}
}

func TestWrongLinksOfRelations(t *testing.T) {
	f := severalTypes()
	for name, tt := range map[string]struct {
		change func(o *draw.Options)
		err    error
		text   string
	}{
		"no such relation": {func(o *draw.Options) { o.Links.Relation = 7 }, draw.ErrOption,
			"links are of edge type 7, expected 0 to 6"},
		"negative": {func(o *draw.Options) { o.Links.Reverse = -1 }, draw.ErrOption, "links are of edge type -1"},
		"no way back": {func(o *draw.Options) { o.Links.Exclude, o.Links.Reverse = links.ExcludeBoth, 3 }, draw.ErrOption,
			`the reverse of links of (user, r0, item) must lead from type "item" to "user", (item, r3, tag) does not`},
		"source": {func(o *draw.Options) { o.Links.Sources[7] = 900 }, sample.ErrSeed,
			`edge_label_index[0, 7] is 900, expected an id in [0, 900) of type "user"`},
		"target": {func(o *draw.Options) { o.Links.Targets[7] = 2500 }, sample.ErrSeed,
			`edge_label_index[1, 7] is 2500, expected an id in [0, 2500) of type "item"`},
		"weights": {func(o *draw.Options) { o.Links.Negatives, o.Links.TargetWeights = 1, make([]float64, 900) },
			draw.ErrOption, `dst_weight must have an entry for each of 2500 nodes of type "item", got 900`},
		"none": {func(o *draw.Options) { o.Links.Relation, o.Links.Sources, o.Links.Targets = 5, nil, nil }, draw.ErrOption,
			"(none, r5, item) has none"},
		"seeds": {func(o *draw.Options) { o.Seeds = []int64{1} }, draw.ErrOption, "seeds and links"},
		"labor": {func(o *draw.Options) {
			o.Links.Exclude, o.Sampler = links.ExcludeLinks,
				&sample.Labor{BatchDependency: 1}
		}, draw.ErrOption, "LABOR"},
	} {
		t.Run(name, func(t *testing.T) {
			o := f.forLinks(links.Options{}, 0, 1)
			tt.change(&o)
			_, err := Open(context.Background(), f.graph(t), o, mem.NewAllocator())
			require.ErrorIs(t, err, tt.err)
			require.ErrorContains(t, err, tt.text)
		})
	}
	o := newDataset(100, 2200).forLinks(links.Options{})
	o.Links.Relation = 1
	_, err := Open(context.Background(), newDataset(100, 2200).graph(t), o, mem.NewAllocator())
	require.ErrorContains(t, err, "links are of edge type 1, expected 0 to 0")
}
