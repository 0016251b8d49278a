package draw

import (
	"errors"
	"fmt"
	"slices"

	"freshgo/core/cache"
	"freshgo/core/links"
	"freshgo/core/plan"
	"freshgo/core/sample"
	"freshgo/core/ssd"
)

// Errors of this package. Those of the parts (mem.ErrBudget, store.ErrCorrupt,
// *ssd.PathError, ...) pass through unchanged and wrapped with context.
var (
	ErrOption = errors.New("loader: invalid option")
)

// most bounds sampling threads and prefetched batches. Arbitrary: far more than make anything faster, and few enough
// for the memory of each.
const most = 1024

// Auto lets the loader choose a size or a count.
const Auto = -1

// CacheKinds are the values of Options.Cache.
var CacheKinds = slices.Concat([]string{"auto", "none", "belady"}, Metrics, []string{cache.Given}, cache.OnlineNames())

// Options selects the batches and the way to load them. The zero value of a field has its own meaning; Auto lets the
// loader choose. The tag of a field is the name of the option for callers, and in messages: package capi fills the
// field from the member of this name in the header.
type Options struct {
	Fanouts []int64 // neighbours per hop, nearest the seeds first; -1 takes all
	Replace bool    `option:"replace"` // draw with replacement

	Seeds     []int64 `option:"seeds"`      // global node ids in the user's order; nil: every node
	BatchSize int64   `option:"batch_size"` // seeds, or links, per batch
	Shuffle   bool    `option:"shuffle"`    // a new permutation of the seeds every epoch, keyed by Seed and epoch
	// SeedWeights has a number for each seed, or link: an epoch draws as many as there are, with replacement and in
	// proportion to these. nil: each comes once.
	SeedWeights []float64 `option:"input_weight"`
	DropLast    bool      `option:"drop_last"` // leave out a last batch that is not full
	Seed        uint64    `option:"seed"`      // all random numbers come from it

	Workers int `option:"num_workers"` // sampling threads; 0: the loader chooses; most if there are more
	// Prefetch is the number of batches that are prepared ahead of the consumer, up to most; 0: a batch is prepared
	// when it is requested; Auto: see sizing.FewAhead.
	Prefetch int `option:"prefetch"`

	Memory int64 `option:"memory"` // bytes for everything the loader allocates; 0: unlimited
	// Spare means that Memory excludes a graph in memory and its index. Batches are then measured only if their worst case
	// may exceed it.
	Spare         bool   `option:"spare"`
	FeatureCache  int64  `option:"feature_cache"`  // bytes of it for cached feature rows, or Auto
	NeighborCache int64  `option:"neighbor_cache"` // bytes of it for neighbour lists held in memory, or Auto
	Cache         string `option:"cache,auto"`     // which rows are cached: one of caches

	// Superbatch, CarryOver and Lookahead belong to cache "belady" (Ginex, section 3.1).
	Superbatch  int64 `option:"superbatch"`   // batches planned together, or Auto
	CarryOver   bool  `option:"carry_over"`   // a superbatch begins with the rows that the one before left
	Lookahead   bool  `option:"lookahead"`    // a plan knows the superbatch after its own
	PreSCEpochs int   `option:"presc_epochs"` // K of PreSC#K (FGNN, section 6.3)
	// Hotness is by node id, for cache "vector"; the caller's memory until the loader is closed.
	Hotness     []float32 `option:"hotness"`
	HotnessSeed uint64    `option:"hotness_seed"` // what cache "random" is drawn from

	// Reorder is the number of batches in a block that may change places (FastGL, section 4.1); 0: none, or Auto. Online
	// caches draw the batches of a block twice: for the order, and then each for itself.
	Reorder int64 `option:"reorder"`
	// ReorderRows is the capacity of the cache by which orders are compared, or Auto: the capacity of this loader's cache.
	ReorderRows int64 `option:"reorder_rows"`

	// Transfer is the way to read cold rows: "auto", "random", "page-once", "scan", "pack", "forward", or one of
	// "page-once", "scan" and "pack" with "+forward".
	Transfer     string `option:"transfer,auto"`
	TraceMemory  int64  `option:"trace_memory"`  // bytes of Memory for traces and plans, or Auto
	BufferMemory int64  `option:"buffer_memory"` // bytes of Memory for packs, or Auto
	Scratch      string `option:"scratch"`       // directory of the scratch file; "": there is none
	ScratchBytes int64  `option:"scratch_size"`  // what the file may take, or Auto; 0: there is none
	// Calibration: file that keeps the calibration of the device; "": calibrate at each opening
	Calibration string `option:"calibration"`

	IO        ssd.Kind `option:"io,auto"`   // the read engine; ssd.Auto probes
	Checksums bool     `option:"checksums"` // verify every page read against its checksum
	// Aggregate is the tensor of package propagate that batches bring, instead of the one that it was made from; "":
	// none.
	Aggregate string `option:"aggregate"`

	// WeightAttr: edge tensor that edges are drawn in proportion to; "": uniformly
	WeightAttr   string        `option:"weight_attr"`
	WeightAttrs  []string      // the same by relation, where tensors have several names
	Sampler      sample.Named  // a sampler that is chosen by name; nil: the one that other options imply
	NoEdgeWeight bool          `option:"no_edge_weight"` // batches bring no weights that the sampler gives edges
	Walks        []sample.Walk // random walks that find neighbours, by hop; Fanouts bounds the neighbours kept

	// FeatureDType is the delivered form of floats that are stored in fewer bytes (see store.Narrowed): "float32", or
	// "stored".
	FeatureDType string `option:"feature_dtype,float32"`
	Transpose    bool   `option:"transpose"` // batches bring their edges grouped by source too, see TransposedNames
	// Pad: batches have the sizes of Envelope, unless they exceed them; nil: it is learned when the loader is opened.
	Pad      bool     `option:"pad"`
	Envelope Envelope `option:"envelope"`
	// NoEdgeIDs: batches bring no e_id of edge types without tensors of edges, whose numbers are then not read.
	NoEdgeIDs bool `option:"no_edge_ids"`

	History *HistoryOptions // nil: none
	// Held says for each node id which of the consumer's rows it is, or -1. Of the consumer's rows a batch brings only
	// the place, see PlaceName. nil: the consumer has none. The caller's memory until the loader is closed.
	Held  []int32 `option:"held"`
	Holds int     `option:"holds"` // batches that the consumer holds at a time; 0: one
	// Packed: the tensors of a batch, except rows, are in one buffer, with integers in few bytes. See batch.Batch.Pack.
	Packed bool `option:"packed"`
	// RowsByID: batches bring no rows of node tensors that are whole in memory, if the allocator can lock them for a
	// device. The consumer reads these rows by n_id. See fetch.Given.
	RowsByID bool `option:"rows_by_id"`
	// SeedsOnly: batches of an epoch are their seeds and a key, by which the consumer draws them. See seedsonly.go.
	SeedsOnly bool `option:"seeds_only"`

	Subgraph sample.SubgraphType `option:"subgraph_type"` // which edges between its nodes a batch has
	// Disjoint: one tree per seed; always so with TimeAttr
	Disjoint bool `option:"disjoint"`
	// TimeAttr is the tensor of times: nothing later than its seed is drawn; "": there are no times.
	TimeAttr     string `option:"time_attr"`
	TemporalLast bool   `option:"temporal_last"` // draw the latest, not any
	// TimeWindow bounds the age of drawn edges, in units of time; 0: no bound.
	TimeWindow int64 `option:"time_window"`
	// SeedTimes are the times of the seeds, in the order of Seeds; nil: the times of the nodes, if they have any.
	SeedTimes []int64        `option:"input_time"`
	Links     *links.Options // batches are drawn for links; nil: for Seeds

	// RelationFanouts is Fanouts of each edge type of a heterogeneous graph; 0 takes none. nil: Fanouts for all.
	RelationFanouts [][]int64
	// Tables are the tables whose rows batches bring and training changes, see TrainedName. The caller closes them after
	// the loader.
	Tables []Trained
	// Metapaths are random walks over a heterogeneous graph that find neighbours in place of its edge types.
	// RelationFanouts is then by metapath, and a batch has the edges of each. nil: none.
	Metapaths []sample.Metapath

	Progress Progress // of opening the loader, and of what is done ahead of the batches
}

// Progress is called with a stage of the work, how much of it is done, and how much there is; 0: unknown. An empty
// stage ends the last one. Any goroutine may call it.
type Progress func(stage string, done, total int64)

// Report calls p, unless it is nil.
func (p Progress) Report(stage string, done, total int64) {
	if p != nil {
		p(stage, done, total)
	}
}

// walk reports whether neighbours are found by random walks.
func (o *Options) walk() bool { return o.Walks != nil || o.Metapaths != nil }

// Hops returns the number of hops of a batch.
func (o *Options) Hops() int {
	if len(o.RelationFanouts) > 0 {
		return len(o.RelationFanouts[0])
	}
	return len(o.Fanouts)
}

func (o Options) validate(numNodes int64) error {
	switch {
	case o.BatchSize < 1:
		return fmt.Errorf("%w: batch_size must be at least 1, got %d", ErrOption, o.BatchSize)
	case o.Workers < 0:
		return fmt.Errorf("%w: num_workers must be at least 0, got %d", ErrOption, o.Workers)
	case o.Prefetch < Auto:
		return fmt.Errorf("%w: prefetch must be at least 0, got %d", ErrOption, o.Prefetch)
	case o.Memory < 0:
		return fmt.Errorf("%w: memory must be at least 0 bytes, got %d", ErrOption, o.Memory)
	case o.FeatureCache < Auto:
		return fmt.Errorf("%w: feature_cache must be at least 0 bytes, got %d", ErrOption, o.FeatureCache)
	case o.NeighborCache < Auto:
		return fmt.Errorf("%w: neighbor_cache must be at least 0 bytes, got %d", ErrOption, o.NeighborCache)
	}
	if !slices.Contains(CacheKinds, o.Cache) {
		return fmt.Errorf("%w: cache must be one of %q, got %q", ErrOption, CacheKinds, o.Cache)
	}
	if known := []string{"float32", "stored"}; o.FeatureDType != "" && !slices.Contains(known, o.FeatureDType) {
		return fmt.Errorf("%w: feature_dtype must be one of %q, got %q", ErrOption, known, o.FeatureDType)
	}
	if o.Seeds != nil && len(o.Seeds) == 0 {
		return fmt.Errorf("%w: input_nodes is empty, expected at least one node", ErrOption)
	}
	for i, v := range o.Seeds {
		if uint64(v) >= uint64(numNodes) {
			return fmt.Errorf("%w: input_nodes[%d] is %d, expected an id in [0, %d)", sample.ErrSeed, i, v, numNodes)
		}
	}
	if err := o.validatePlan(); err != nil {
		return err
	}
	if o.Subgraph > sample.Induced {
		return fmt.Errorf("%w: subgraph_type must be 0 (directional), 1 (bidirectional) or 2 (induced), got %d",
			ErrOption, o.Subgraph)
	}
	if err := o.validateTrees(numNodes); err != nil {
		return err
	}
	if o.History != nil {
		if err := o.History.validate(&o); err != nil {
			return err
		}
	}
	if err := o.validateHeld(numNodes); err != nil {
		return err
	}
	if check := hotnessOf(o.Cache).check; check != nil {
		return check(&o, numNodes)
	}
	return nil
}

// validatePlan validates the options of plans.
func (o *Options) validatePlan() error {
	for _, size := range []struct {
		name  string
		value int64
	}{
		{"trace_memory", o.TraceMemory}, {"buffer_memory", o.BufferMemory},
		{"scratch_size", o.ScratchBytes}, {"reorder_rows", o.ReorderRows},
	} {
		if size.value < Auto {
			return fmt.Errorf("%w: %s must be at least 0, got %d", ErrOption, size.name, size.value)
		}
	}
	switch kind := cache.KindOf(o.Cache); {
	case o.Superbatch != Auto && o.Superbatch < 1:
		return fmt.Errorf("%w: superbatch must be at least 1 batch, got %d", ErrOption, o.Superbatch)
	case o.Reorder < Auto:
		return fmt.Errorf("%w: reorder must be at least 0 batches, got %d", ErrOption, o.Reorder)
	case o.Reorder != 0 && (kind == cache.Absent || kind == cache.Ranked):
		return fmt.Errorf("%w: reorder needs a cache that changes with the batches: \"belady\" or one of %q; the rows that "+
			"cache %q reads do not depend on their order", ErrOption, cache.OnlineNames(), o.Cache)
	case o.Reorder > 0 && kind != cache.Online && o.Superbatch != Auto && o.Reorder > o.Superbatch:
		return fmt.Errorf("%w: reorder must be at most superbatch = %d batches, got %d", ErrOption, o.Superbatch, o.Reorder)
	case !slices.Contains(plan.Transfers(), o.Transfer):
		return fmt.Errorf("%w: transfer must be one of %q, got %q", ErrOption, plan.Transfers(), o.Transfer)
	}
	return nil
}
