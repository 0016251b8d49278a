package plan

import "freshgo/core/ssd"

// Load is what the loop that takes the batches does beside their reading, as measured while it runs. The zero value is
// a loop that does nothing but wait, on a processor that has nothing else to do.
type Load struct {
	// LoopSeconds is what the loop takes for a batch when it does not wait for one: reading that takes no longer delays
	// nothing.
	LoopSeconds float64
	// Share is what the loop loses by a second of the processor that reading takes: the inverse of the number of
	// processors.
	Share float64
	// Pace is how many seconds longer than the device alone it takes to read what needs a second of the processor: where
	// others keep that busy, reading waits for it.
	Pace float64
}

// SetLoad tells what the plans that follow are weighed by.
func (p *Planner) SetLoad(l Load) { p.transfer.load = l }

// SetDevice tells what the device of the plans that follow does, as far as it was known when the planner was made.
func (p *Planner) SetDevice(d ssd.Device) {
	if p.transfer.priced {
		p.transfer.config.Device = d
	}
}

// busy is how long it takes to read what needs so many seconds of the device and of the processor.
func (l Load) busy(device, processor float64) float64 { return device + l.Pace*processor }

// cost is what reading for so many batches costs a loop: the time in which it waits, what it loses of the processor,
// and a part of the time of the device that nobody waits for, since a loop may become faster.
func (l Load) cost(device, processor float64, batches int) float64 {
	busy := l.busy(device, processor)
	hidden := min(busy, l.LoopSeconds*float64(batches))
	return busy - hidden + hidden/hides + l.Share*processor
}

// packRowProcessor is what a row takes of the processor that goes through a pack, measured for rows of 512 bytes beside
// a loop: 0.11e-6 s to put it in, 0.08e-6 to take it out.
const packRowProcessor = 0.2e-6
