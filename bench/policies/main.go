// Command policies compares cache policies on traces of sampled batches: how many
// rows each reads in an epoch from an empty cache and in the one after it, and
// what deciding costs. A second table is of a device above the memory: how many
// rows cross the bus, and how many are read from the disk, in the second epoch.
//
//	go run ./bench/policies [-data DIR] [-graphs web-cnr-2000,...]
//
// The graphs of -data come after two generated ones. By default an epoch is 400
// batches of 16 seeds, chosen at random and the same in each epoch; batches this
// small leave enough of them in an epoch of graphs this small.
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"freshgo/core/cache"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "policies:", err)
		os.Exit(1)
	}
}

func run() error {
	data := flag.String("data", "", "directory of graphs, DIR/NAME/edge_index.npy and meta.json")
	names := flag.String("graphs", "web-cnr-2000,ogbn-arxiv-nofeat,coauthor-physics", "graphs of -data")
	fanouts := flag.String("fanouts", "10,10,10", "fanouts, nearest the seeds first")
	batch := flag.Int("batch", 16, "seeds of a batch")
	batches := flag.Int("batches", 400, "batches of an epoch")
	flag.Parse()

	sampling := draws{Sampling: cache.Sampling{BatchSize: int64(*batch)}}
	for _, text := range strings.Split(*fanouts, ",") {
		k, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("-fanouts: %w", err)
		}
		sampling.Fanouts = append(sampling.Fanouts, k)
	}
	makers := []func() (*graph, error){
		func() (*graph, error) { return rmat(18, 3_900_000), nil },
		func() (*graph, error) { return communities(300_000, 7_400_000), nil },
	}
	if *data != "" {
		for _, name := range strings.Split(*names, ",") {
			makers = append(makers, func() (*graph, error) { return load(*data, name) })
		}
	}
	for _, make := range makers {
		g, err := make()
		if err != nil {
			return err
		}
		if err := compare(g, sampling, *batch**batches); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	return nil
}

// draws holds the parameters of the sampler.
type draws struct {
	cache.Sampling
	Fanouts []int64 // nearest the seeds first
}

var percents = []int64{5, 10, 20}

// compare prints the table of one graph.
func compare(g *graph, s draws, numSeeds int) error {
	s.Seeds = chooseSeeds(g, numSeeds)
	b := &bench{graph: g, sampling: s}
	start := processorTime()
	for i, t := range []*trace{&b.presc, &b.epochs[0], &b.epochs[1]} {
		var err error
		if *t, err = epoch(g, s, uint64(i)); err != nil {
			return err
		}
	}
	sampled := processorTime() - start
	if err := b.prepare(); err != nil {
		return err
	}
	accesses := [2]int{b.epochs[0].accesses(), b.epochs[1].accesses()}
	all := accesses[0] + accesses[1]
	perMillion := func(d time.Duration, accesses int) float64 { return d.Seconds() * 1e9 / float64(accesses) }
	fmt.Printf("\n## %s: %d nodes, %d edges; %d batches of %d seeds, fanouts %v, %d rows each; "+
		"sampling %.0f ms per million accesses\n\n",
		g.name, g.NumNodes(), len(g.sources), len(b.epochs[0]), s.BatchSize, s.Fanouts, accesses[0]/len(b.epochs[0]),
		perMillion(sampled, all+b.presc.accesses()))
	fmt.Print("Rows read of rows needed, in the epoch that begins with an empty cache " +
		"(what fills a static cache included) and in the next one.\n\n")
	fmt.Print("| policy |")
	for _, p := range percents {
		fmt.Printf(" %d %%: first | next |", p)
	}
	fmt.Print(" ms per million accesses at 10 % | making the metric, ms |\n|---|" +
		strings.Repeat("---|---|", len(percents)) + "---|---|\n")
	for _, name := range contestants {
		fmt.Printf("| %s |", name)
		var cost float64
		for _, p := range percents {
			out, err := b.run(name, g.NumNodes()*p/100)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			fmt.Printf(" %.3f | %.3f |", float64(out.reads[0])/float64(accesses[0]), float64(out.reads[1])/float64(accesses[1]))
			if p == 10 {
				cost = perMillion(out.spent, all)
			}
		}
		making := ""
		if took, ok := b.making[name]; ok {
			making = fmt.Sprintf("%.1f", took.Seconds()*1e3)
		}
		fmt.Printf(" %.1f | %s |\n", cost, making)
	}
	return b.tiers()
}
