package plan

import "freshgo/core/ssd"

// Load describes the loop that takes the batches, as measured while it runs. The zero value is a loop that only waits,
// on an idle processor.
type Load struct {
	// LoopSeconds is the time of the loop for a batch, without waiting for it: reading that takes no longer delays
	// nothing.
	LoopSeconds float64
	// Share is the time that the loop loses by a second of processor time of reading: the inverse of the number of
	// processors.
	Share float64
	// Pace is the delay of reading, beyond the time of the device, by a second of its processor time: where other work
	// keeps the processor busy, reading waits for it.
	Pace float64
}

// SetLoad sets the loop that the following plans are weighed by.
func (p *Planner) SetLoad(l Load) { p.transfer.load = l }

// SetPackFile sets the bytes that packs may take in the scratch file, for the following plans. Packs of earlier plans
// that still exist count.
func (p *Planner) SetPackFile(bytes int64) {
	config, load := p.transfer.config, p.transfer.load
	config.PackFile = bytes
	p.transfer = newTransfer(config)
	p.transfer.load = load
}

// SetDevice sets the device of the following plans. It does nothing if the planner was made without a known device.
func (p *Planner) SetDevice(d ssd.Device) {
	if p.transfer.priced {
		p.transfer.config.Device = d
	}
}

// busy returns the time of reading that needs the given seconds of the device and of the processor.
func (l Load) busy(device, processor float64) float64 { return device + l.Pace*processor }

// cost returns the time that a loop loses by reading for a number of batches: the time that it waits, its loss of
// processor time, and a part of the device time that nobody waits for, since a loop may become faster.
func (l Load) cost(device, processor float64, batches int) float64 {
	busy := l.busy(device, processor)
	hidden := min(busy, l.LoopSeconds*float64(batches))
	return busy - hidden + hidden/hides + l.Share*processor
}

// packRowProcessor is the processor time of a row that goes through a pack, in seconds, measured for rows of 512 bytes
// beside a loop: 0.11e-6 to add it, 0.08e-6 to read it.
const packRowProcessor = 0.2e-6
