package loader

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/batch"
	"freshgo/core/draw"
	"freshgo/core/internal/explore"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// weighted adds an edge tensor "weight" of a type: small numbers, some of them 0.
func (d *dataset) weighted(dtype manifest.DType) *dataset {
	var rows []byte
	for e := range d.sources {
		rows = appendNumber(rows, dtype, (e*7919)%6)
	}
	d.extra = append(d.extra, draw.GraphTensor{Name: "weight", DType: dtype, Rows: rows})
	return d
}

// appendNumber appends an integer from 0 to 5 as a number of this type.
func appendNumber(rows []byte, dtype manifest.DType, v int) []byte {
	le := binary.LittleEndian
	switch dtype {
	case manifest.DType_FLOAT16:
		return le.AppendUint16(rows, []uint16{0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500}[v])
	case manifest.DType_BFLOAT16:
		return le.AppendUint16(rows, uint16(math.Float32bits(float32(v))>>16))
	case manifest.DType_FLOAT32:
		return le.AppendUint32(rows, math.Float32bits(float32(v)))
	case manifest.DType_FLOAT64:
		return le.AppendUint64(rows, math.Float64bits(float64(v)))
	}
	return append(rows, append([]byte{byte(v)}, make([]byte, dtype.Size()-1)...)...)
}

func samplerOptions() map[string]func(o *draw.Options) {
	return map[string]func(o *draw.Options){
		"weighted":         func(o *draw.Options) { o.WeightAttr = "weight" },
		"weighted replace": func(o *draw.Options) { o.WeightAttr, o.Replace = "weight", true },
		"weighted all":     func(o *draw.Options) { o.WeightAttr, o.Fanouts = "weight", []int64{-1, 2} },
		"labor":            func(o *draw.Options) { o.Sampler = &sample.Labor{BatchDependency: 1} },
		"labor dependent":  func(o *draw.Options) { o.Sampler = &sample.Labor{LayerDependency: true, BatchDependency: 5} },
		"labor weighted": func(o *draw.Options) {
			o.WeightAttr, o.Sampler = "weight", &sample.Labor{BatchDependency: 1}
		},
		"walks": func(o *draw.Options) {
			o.Walks = []sample.Walk{{Walks: 4, Length: 3, Restart: .5}, {Walks: 2, Length: 2}}
		},
	}
}

// The metamorphic test of the samplers: a batch does not depend on the place of the graph and the weights, on threads,
// on caches and plans, nor on the place of a planned batch's trace.
func TestSamplersAgreeEverywhere(t *testing.T) {
	for order, d := range map[string]*dataset{
		"":        someDataset().weighted(manifest.DType_FLOAT32),
		" sorted": newDataset(1500, 20000).bySorted().weighted(manifest.DType_INT16),
	} {
		s := d.store(t, ssd.OS)
		options := samplerOptions()
		maps.Copy(options, subgraphOptions())
		for name, change := range options {
			base := plain()
			change(&base)
			agreeEverywhere(t, d.form(""), s, name+order, base)
		}
	}
}

// agreeEverywhere compares the batches of a store with those of the graph in memory.
func agreeEverywhere(t *testing.T, f *form, s *store.Store, name string, base draw.Options) {
	t.Helper()
	whole := int64(0)
	for _, e := range f.edges {
		whole += 4 * e.EdgeIndex.Shape[1]
	}
	few, some, memory := rowsFor(50), rowsFor(200), int64(14<<20)
	if len(f.names) > 1 {
		few, some, memory = 60<<10, 120<<10, 24<<20
	}
	reference := open(t, f.graph(t), base)
	var want [][]*seen
	for epoch := range int64(explore.Rounds(2)) {
		want = append(want, epochOf(t, reference, epoch))
	}
	places := map[string]func(o *draw.Options){
		"memory, one thread":    func(o *draw.Options) { o.Workers, o.Prefetch = 1, 0 },
		"memory, eight threads": func(o *draw.Options) { o.Workers, o.Prefetch = 8, 0 },
		"neighbours in memory":  func(o *draw.Options) { o.NeighborCache = whole },
		"topology in memory":    func(o *draw.Options) { o.NeighborCache = 2 * whole },
		"all on disk":           func(o *draw.Options) { o.NeighborCache, o.FeatureCache, o.Checksums = 0, 0, true },
		"lists cached":          func(o *draw.Options) { o.NeighborCache, o.Cache = whole, "degree" },
		"planned":               func(o *draw.Options) { o.Cache, o.FeatureCache, o.Superbatch = "belady", some, 10 },
		"planned, few traces": func(o *draw.Options) {
			o.Cache, o.FeatureCache, o.Superbatch, o.TraceMemory = "belady", some, 2, 600<<10
		},
		"planned, all on disk": func(o *draw.Options) { o.Cache, o.FeatureCache, o.NeighborCache = "belady", few, 0 },
		"planned, scratch": func(o *draw.Options) {
			o.Cache, o.FeatureCache, o.Superbatch = "belady", some, 5
			o.Scratch, o.ScratchBytes = t.TempDir(), draw.Auto
		},
		"lru":            func(o *draw.Options) { o.Cache, o.FeatureCache = "lru", few },
		"budget":         func(o *draw.Options) { o.Memory, o.Cache, o.Prefetch = 32<<20, "auto", 2 },
		"smaller budget": func(o *draw.Options) { o.Memory, o.Cache, o.Prefetch = memory, "auto", 1; o.Workers = 1 },
	}
	// Few of several types, as batches take longer.
	maps.DeleteFunc(places, func(place string, _ func(o *draw.Options)) bool {
		if len(f.names) == 1 {
			return place == "lru"
		}
		return !slices.Contains([]string{"lru", "memory, eight threads", "all on disk", "planned, all on disk"}, place)
	})
	for _, place := range explore.Part(t, name, slices.Sorted(maps.Keys(places))) {
		t.Run(name+"/"+place, func(t *testing.T) {
			o := base
			places[place](&o)
			l := open(t, draw.OpenStore(s), o)
			for epoch := range want {
				requireSame(t, want[epoch], epochOf(t, l, int64(epoch)))
			}
			if o.Memory > 0 {
				require.LessOrEqual(t, l.Stats().MemoryPeak, o.Memory)
			}
		})
	}
}

// What a batch brings goes together.
func TestTensorsOfSamplers(t *testing.T) {
	d := newDataset(500, 6000).weighted(manifest.DType_FLOAT64)
	seeds := []int64{7, 3, 3, 499, 0, 120, 7, 55, 90}
	for name, change := range samplerOptions() {
		t.Run(name, func(t *testing.T) {
			o := plain()
			o.Seeds, o.BatchSize, o.Shuffle, o.Transpose = seeds, 4, false, true
			change(&o)
			for _, b := range epochOf(t, open(t, d.graph(t), o), 0) {
				_, hasEdges := b.arrays["e_id"]
				_, hasWeights := b.arrays[draw.EdgeWeightName]
				require.Equal(t, o.Walks == nil, hasEdges)
				require.Equal(t, o.Walks != nil || o.Sampler != nil, hasWeights)
				require.Contains(t, b.arrays, batch.TransposedNames[0])
				if hasWeights {
					require.Equal(t, b.shapes["edge_index"][1:], b.shapes[draw.EdgeWeightName])
				}
				if !hasEdges {
					require.NotContains(t, b.arrays, "edge_attr")
					require.NotContains(t, b.arrays, "weight")
					continue
				}
				d.form("").requireRight(t, o, b)
				if o.WeightAttr != "" {
					for i := range b.shapes["weight"][0] {
						require.Positive(t, math.Float64frombits(binary.LittleEndian.Uint64(b.arrays["weight"][8*i:])))
					}
				}
			}
		})
	}
}

// Weights of any type of number draw the same edges.
func TestWeightsOfEveryType(t *testing.T) {
	var want []int64
	for _, dtype := range []manifest.DType{
		manifest.DType_FLOAT64, manifest.DType_FLOAT32, manifest.DType_FLOAT16, manifest.DType_BFLOAT16, manifest.DType_INT8,
		manifest.DType_INT16,
		manifest.DType_INT32, manifest.DType_INT64, manifest.DType_UINT8, manifest.DType_UINT16, manifest.DType_UINT32,
		manifest.DType_UINT64,
	} {
		d := newDataset(300, 3000).weighted(dtype)
		for place, neighbors := range map[string]int64{"memory": draw.Auto, "disk": 0} {
			o := plain()
			o.WeightAttr, o.NeighborCache, o.BatchSize = "weight", neighbors, 300
			got := epochOf(t, open(t, draw.OpenStore(d.store(t, ssd.OS)), o), 0)[0].int64s("e_id")
			if want == nil {
				want = got
			}
			require.Equal(t, want, got, "%s %s", dtype.Label(), place)
		}
	}
}

func TestBadWeights(t *testing.T) {
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1), math.Inf(-1), 1e300} {
		d := newDataset(200, 2000)
		weights := make([]float64, 2000)
		for e := range weights {
			weights[e] = rand.New(rand.NewPCG(1, uint64(e))).Float64()
		}
		weights[1234] = bad
		d.extra = []draw.GraphTensor{{Name: "weight", DType: manifest.DType_FLOAT64, Rows: mem.Bytes(weights)}}
		want := fmt.Sprintf(
			"loader: invalid option: weight_attr \"weight\" is %v for edge 1234, "+
				"expected a finite number of at least 0 and at most 1e+290",
			bad,
		)
		s := draw.OpenStore(d.store(t, ssd.OS))
		for name, src := range map[string]draw.Source{"graph": d.graph(t), "store": s, "disk": s, "budget": s} {
			o := plain()
			o.WeightAttr = "weight"
			switch name {
			case "disk":
				o.NeighborCache = 0
			case "budget":
				o.Memory = 32 << 20
			}
			_, err := Open(context.Background(), src, o, mem.NewAllocator())
			require.ErrorIs(t, err, draw.ErrOption)
			require.ErrorContains(t, err, want, name)
		}
	}
}

func TestWrongSamplerOptions(t *testing.T) {
	d := newDataset(100, 500).weighted(manifest.DType_FLOAT32)
	d.extra = append(d.extra, draw.GraphTensor{Name: "flag", DType: manifest.DType_BOOL, Rows: make([]byte, 500)})
	taken := newDataset(100, 500).weighted(manifest.DType_FLOAT32)
	taken.extra[0].Name = "edge_weight"
	for name, c := range map[string]struct {
		d       *dataset
		change  func(o *draw.Options)
		want    error
		message string
	}{
		"missing": {d, func(o *draw.Options) { o.WeightAttr = "x" }, draw.ErrOption,
			`weight_attr "x" is no edge tensor, the edge tensors are ["edge_attr" "weight" "flag"]`},
		"two columns": {d, func(o *draw.Options) { o.WeightAttr = "edge_attr" }, draw.ErrOption,
			`weight_attr "edge_attr" holds int32 [2] for each edge, expected one number`},
		"bool": {d, func(o *draw.Options) { o.WeightAttr = "flag" }, draw.ErrOption,
			`weight_attr "flag" holds bool for each edge, expected one number`},
		"name taken": {taken, func(o *draw.Options) {
			o.Sampler = &sample.Labor{BatchDependency: 1}
		}, draw.ErrOption, `has a tensor "edge_weight"`},
		"expected": {d, func(o *draw.Options) {
			o.Cache, o.Walks = "expected", []sample.Walk{{Walks: 1, Length: 1}, {Walks: 1, Length: 1}}
		}, draw.ErrOption, `use "presc"`},
		"length 0":   {d, func(o *draw.Options) { o.Walks = []sample.Walk{{Walks: 1}, {Walks: 1}} }, sample.ErrConfig, "0"},
		"dependency": {d, func(o *draw.Options) { o.Sampler = &sample.Labor{} }, sample.ErrConfig, "dependency"},
	} {
		t.Run(name, func(t *testing.T) {
			o := plain()
			c.change(&o)
			_, err := Open(context.Background(), c.d.graph(t), o, mem.NewAllocator())
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.message)
		})
	}
	// As a name it is like any other.
	for _, change := range []func(o *draw.Options){
		func(*draw.Options) {},
		func(o *draw.Options) { o.Sampler, o.NoEdgeWeight = &sample.Labor{BatchDependency: 1}, true },
		func(o *draw.Options) {
			o.WeightAttr, o.Walks = "", []sample.Walk{{Walks: 1, Length: 1}, {Walks: 1, Length: 1}}
		},
	} {
		o := plain()
		o.WeightAttr = "edge_weight"
		change(&o)
		for _, b := range epochOf(t, open(t, taken.graph(t), o), 0) {
			require.Len(t, b.arrays["edge_weight"], int(4*b.shapes["edge_index"][1]))
		}
	}
}

// TestWeightsOfRelations: of a relation with weights no edge of weight zero is drawn; those without draw as ever.
func TestWeightsOfRelations(t *testing.T) {
	d := severalTypes()
	for i := range d.edges {
		if len(d.edges[i].Tensors) > 0 {
			w := d.edges[i].Tensors[1]
			weights := mem.View[float32](w.Rows)
			for k := range weights {
				weights[k] = float32(k % 2)
			}
		}
	}
	s := d.store(t, ssd.OS)
	for name, source := range map[string]draw.Source{"memory": d.graph(t), "store": draw.OpenStore(s)} {
		for _, neighbors := range []int64{draw.Auto, 0} {
			o := d.options()
			o.WeightAttr, o.NeighborCache = "w", neighbors
			drawn := 0
			for _, b := range epochOf(t, open(t, source, o), 0) {
				for i := range d.edges {
					if len(d.edges[i].Tensors) == 0 {
						continue
					}
					for _, e := range b.int64s(fmt.Sprintf("e%d/e_id", i)) {
						require.EqualValues(t, 1, e%2, name)
						drawn++
					}
				}
			}
			require.Greater(t, drawn, 100)
		}
	}
}
