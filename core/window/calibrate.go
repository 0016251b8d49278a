package window

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"freshgo/core/fetch"
	"freshgo/core/ssd"
)

// misjudged is the factor by which reading or writing is slower or faster than it was calibrated when the calibration
// is not kept: it was taken while others used the disk, or had not for long. Busy processors alone make it two.
// Arbitrary beyond.
const misjudged = 4

// calibrate finds out what reading costs on the store's device, or remembers it.
func (c *Cache) calibrate(ctx context.Context) (device ssd.Device, err error) {
	if t := c.draw.Options.Transfer; t == "random" || t == "forward" {
		return device, nil // there is nothing to compare
	}
	largest := slices.MaxFunc(c.features.OnDisk, func(a, b *fetch.Table) int { return cmp.Compare(a.Bytes(), b.Bytes()) })
	handle, fs, path := largest.Disk.Handle(), c.draw.Parts.FS, c.draw.Options.Calibration
	uuid := c.draw.Parts.Store.UUID()
	key, err := c.draw.Engine.DeviceKey(hex.EncodeToString(uuid[:]), handle)
	if err != nil {
		return device, err
	}
	if path != "" {
		c.draw.OnClose(func() {
			if c.device == nil {
				return
			}
			if prior, learned := c.device.Prior(); c.device.Wrong(misjudged) {
				ssd.ForgetDevice(fs, path, key) // the next loader measures again
			} else if learned {
				ssd.SaveDevice(fs, path, key, prior)
			}
		})
		var found bool
		if device, found = ssd.LoadDevice(fs, path, key); found {
			return device, nil
		}
	}
	dir := c.draw.Options.Scratch
	if c.draw.Split.Scratch == 0 {
		dir = ""
	}
	before := c.draw.Engine.Stats()
	device, err = ssd.Calibrate(ctx, c.draw.Engine, handle, ssd.Calibration{
		WriteDir: dir, Budget: c.draw.Budget, Limit: calibrationTime(largest.Bytes()),
	})
	after := c.draw.Engine.Stats()
	c.calibrated = ssd.Stats{
		Requests: after.Requests - before.Requests, Bytes: after.Bytes - before.Bytes,
		Retries: after.Retries - before.Retries,
	}
	if err != nil {
		return device, fmt.Errorf("loader: calibrating the device: %w", err)
	}
	if path != "" {
		ssd.SaveDevice(fs, path, key, device) // where it cannot be kept, it is measured again
	}
	return device, nil
}

// calibrationTime returns the time to measure a device: as long as some twenty readings of a small table, up to
// DefaultCalibration.
func calibrationTime(nBytes int64) time.Duration {
	const each = time.Second / (50 << 20) // a slow disk's time for a byte, times twenty
	return max(150*time.Millisecond, min(time.Duration(nBytes)*each, ssd.DefaultCalibration))
}
