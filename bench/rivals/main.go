// Command rivals is a loader as other systems are, at their best, for bench/loader/planned.py to compare with.
//
//	go run ./bench/rivals -store graph.freshgo -seeds seeds.bin -check check.bin -policy sieve -capacity 400000
//	go run ./bench/rivals -store graph.freshgo -limits
//
// The policies are "lru" and "sieve", as in GraphBolt, and "ginex": Belady over a superbatch that is an epoch, the
// cache emptied before each. Every missed row is a request of one page, in the order of the batch and with no regard to
// others on the same page. Batches are sampled with this repository's sampler on all processors, and read, several at a
// time, with its engine, so that the queue stays full across them; hits are copied with its gather. What a real rival
// would pay besides is left out: the policy has decided before the clock starts, and batches go nowhere once their rows
// have been checked.
//
// It prints a line of JSON for every epoch, or for the limits of the device.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

type config struct {
	store, seeds, check string
	fanouts             []int64
	batch, epochs       int
	policy              string
	capacity            int64
	depth, flight       int
}

func main() {
	log.SetFlags(0)
	var c config
	flag.StringVar(&c.store, "store", "", "the store; its tensor x is read")
	flag.StringVar(&c.seeds, "seeds", "", "int64 for every seed")
	flag.Func("fanouts", "neighbours per hop, separated by commas", func(s string) (err error) {
		return json.Unmarshal([]byte("["+s+"]"), &c.fanouts)
	})
	flag.IntVar(&c.batch, "batch", 1024, "seeds of a batch")
	flag.IntVar(&c.epochs, "epochs", 3, "epochs")
	flag.StringVar(&c.check, "check", "", "float32 for every row: what it begins with")
	flag.StringVar(&c.policy, "policy", "sieve", "lru, sieve or ginex")
	flag.Int64Var(&c.capacity, "capacity", 0, "rows that the cache holds")
	flag.IntVar(&c.depth, "depth", ssd.DefaultDepth, "requests in flight")
	flag.IntVar(&c.flight, "flight", 4, "batches in flight")
	limits := flag.Bool("limits", false, "measure what the device gives instead")
	flag.Parse()
	run := load
	if *limits {
		run = measure
	}
	if err := run(c); err != nil {
		log.Fatal(err)
	}
}

// table is the features on disk.
type table struct {
	engine *ssd.Engine
	handle *ssd.Handle
	layout ssd.Layout
	// ordered: rows are in the user's order.
	ordered bool
}

func open(c config, slot int) (t *table, err error) {
	st, err := store.Open(ssd.OS, c.store)
	if err != nil {
		return nil, err
	}
	for _, nodes := range st.NodeTypes() {
		for _, tensor := range nodes.Tensors {
			if tensor.Name != "x" {
				continue
			}
			t := &table{layout: tensor.Layout, ordered: nodes.Order == nil}
			if t.engine, err = ssd.NewEngine(ssd.Options{Depth: c.depth, SlotBytes: slot, FS: ssd.OS, Budget: mem.NewBudget(0)},
				c.store); err != nil {
				return nil, err
			}
			t.handle, err = t.engine.Open(tensor.Path)
			return t, err
		}
	}
	return nil, fmt.Errorf("%s has no tensor x", c.store)
}

// limit is the rate of the device through the engine.
type limit struct {
	Engine     string  `json:"engine"`
	RandomIOPS float64 `json:"random_iops"` // 4 KiB, distinct pages, the queue always full
	SingleIOPS float64 `json:"single_iops"` // the same one after the other, which is how a memory map reads
	Sequential float64 `json:"sequential"`  // bytes a second, requests of 256 KiB in the order of the file
	Written    float64 `json:"written"`     // bytes a second to a scratch file, in its order
}

const (
	randomReads = 60_000
	singleReads = 2_000
	callers     = 4       // lists of requests that wait, so that the queue never runs dry
	list        = 2048    // requests of one
	scanBytes   = 1 << 30 // read in sequence at most
	scanRequest = 256 << 10
)

func measure(c config) error {
	t, err := open(c, scanRequest)
	if err != nil {
		return err
	}
	defer t.engine.Close()
	size := t.layout.FileBytes()
	pages := int(size / ssd.PageBytes)
	var random, scan []ssd.Range
	for _, page := range rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)).Perm(pages)[:min(randomReads+singleReads,
		pages)] {
		random = append(random, ssd.Range{Off: int64(page) * ssd.PageBytes, Len: ssd.PageBytes})
	}
	for off := int64(0); off+scanRequest <= min(size, scanBytes); off += scanRequest {
		scan = append(scan, ssd.Range{Off: off, Len: scanRequest})
	}
	l := limit{Engine: t.engine.Name()}
	single := random[:min(singleReads, len(random)/2)]
	random = random[len(single):]
	start := time.Now()
	for i := range single {
		if err := t.engine.Read(context.Background(), t.handle, single[i:i+1], drop); err != nil {
			return err
		}
	}
	l.SingleIOPS = float64(len(single)) / time.Since(start).Seconds()
	seconds, err := t.readAll(random)
	if err != nil {
		return err
	}
	l.RandomIOPS = float64(len(random)) / seconds
	if seconds, err = t.readAll(scan); err != nil {
		return err
	}
	l.Sequential = float64(len(scan)) * scanRequest / seconds
	if seconds, err = t.writeAll(filepath.Dir(c.store), len(scan)); err != nil {
		return err
	}
	l.Written = float64(len(scan)*t.engine.TempChunk()) / seconds
	return json.NewEncoder(os.Stdout).Encode(l)
}

func drop(int, []byte) error { return nil }

// readAll reads and drops, and returns the seconds that took.
func (t *table) readAll(ranges []ssd.Range) (float64, error) {
	lists := make(chan []ssd.Range, len(ranges)/list+1)
	for first := 0; first < len(ranges); first += list {
		lists <- ranges[first:min(first+list, len(ranges))]
	}
	close(lists)
	var wg sync.WaitGroup
	errs := make([]error, callers)
	start := time.Now()
	for caller := range callers {
		wg.Go(func() {
			for some := range lists {
				if errs[caller] == nil {
					errs[caller] = t.engine.Read(context.Background(), t.handle, some, drop)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start).Seconds(), errors.Join(errs...)
}

// writeAll writes chunks to a scratch file in a directory, and returns the seconds that it took.
func (t *table) writeAll(dir string, chunks int) (float64, error) {
	size := t.engine.TempChunk()
	temp, err := t.engine.CreateTemp(dir, mem.NewBudget(0))
	if err != nil {
		return 0, err
	}
	defer temp.Close()
	if err := temp.Grow(int64(chunks) * int64(size)); err != nil {
		return 0, err
	}
	block, err := mem.NewBudget(0).Alloc(mem.Staging, int64(size))
	if err != nil {
		return 0, err
	}
	defer block.Free()
	for i := range block.Bytes() { // zeros might cost a disk less
		block.Bytes()[i] = byte(rand.Uint32())
	}
	var next atomic.Int64
	errs := make([]error, t.engine.TempWriters())
	var wg sync.WaitGroup
	start := time.Now()
	for writer := range errs {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(chunks) && errs[writer] == nil; i = next.Add(1) - 1 {
				errs[writer] = temp.Write(block.Bytes(), i*int64(size))
			}
		})
	}
	wg.Wait()
	return time.Since(start).Seconds(), errors.Join(errs...)
}
