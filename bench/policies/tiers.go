package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"freshgo/core/cache"
	"freshgo/core/mem"
	"freshgo/core/plan"
)

const reordered = "match, reordered"

// onDevice are the policies of the device in the order of the table.
var onDevice = []string{"expected", "presc", "oracle", "belady, 64", "belady, an epoch", "match", reordered}

const memoryPercent = 10

// tiers prints what crosses the bus to a device that holds some rows, and what the disk reads where a planned cache in
// memory serves the rest.
func (b *bench) tiers() error {
	rows, all := b.graph.NumNodes(), b.epochs[1].accesses()
	fmt.Printf("\nA device above memory, in the second epoch; a batch has %d %% of all rows. Rows that cross the bus, "+
		"and rows read from the disk where memory holds %d %%, of rows needed. What fills static rows is not counted. "+
		"The bound is one cache of both sizes that knows the epoch.\n\n| on the device |",
		all/len(b.epochs[1])*100/int(rows), memoryPercent)
	for _, p := range percents {
		fmt.Printf(" %d %%: bus | disk |", p)
	}
	fmt.Print("\n|---|" + strings.Repeat("---|---|", len(percents)) + "\n")
	fraction := func(t trace) float64 { return float64(t[len(b.epochs[0]):].accesses()) / float64(all) }
	memory := rows * memoryPercent / 100
	for _, name := range onDevice {
		fmt.Printf("| %s |", name)
		for _, p := range percents {
			bus, err := b.aboveMemory(name, rows*p/100)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			disk, err := missed(bus, b.simulation("belady, 64", memory))
			if err != nil {
				return fmt.Errorf("below %s: %w", name, err)
			}
			fmt.Printf(" %.3f | %.3f |", fraction(bus), fraction(disk))
		}
		fmt.Println()
	}
	fmt.Print("| bound |")
	stream := slices.Concat(b.epochs[0], b.epochs[1])
	for _, p := range percents {
		disk, err := missed(stream, b.simulation("belady, an epoch", rows*p/100+memory))
		if err != nil {
			return err
		}
		fmt.Printf(" | %.3f |", fraction(disk))
	}
	fmt.Println()
	return nil
}

// aboveMemory returns the rows of each batch of both epochs that cross the bus to a device with this capacity.
func (b *bench) aboveMemory(name string, capacity int64) (trace, error) {
	if name != reordered {
		return missed(slices.Concat(b.epochs[0], b.epochs[1]), b.simulation(name, capacity))
	}
	var stream trace
	s := b.simulation("match", capacity)
	for _, t := range b.epochs {
		order, err := plan.Reorder(context.Background(), mem.NewBudget(0), t, s)
		if err != nil {
			return nil, err
		}
		for _, i := range order {
			stream = append(stream, t[i])
		}
	}
	return missed(stream, s)
}

// missed returns the rows of each batch that a cache does not hold.
func missed(stream trace, s plan.Simulation) (trace, error) {
	out := make(trace, len(stream))
	each := func(batch int, step *cache.Step) {
		for i, slot := range step.Slots {
			if slot == cache.Miss {
				out[batch] = append(out[batch], stream[batch][i])
			}
		}
	}
	if s.Hotness == nil && s.Policy == "belady" {
		_, err := planned(stream, s, each)
		return out, err
	}
	var policy cache.Policy
	var err error
	if s.Hotness != nil {
		policy, err = cache.NewStatic(mem.NewBudget(0), s.NumRows, s.Hotness.Top(s.Capacity))
	} else {
		policy, err = cache.New(s.Policy, mem.NewBudget(0), s.NumRows, s.Capacity)
	}
	if err != nil {
		return nil, err
	}
	defer policy.Close()
	replay(stream, policy, each)
	return out, nil
}
