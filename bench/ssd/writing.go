package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"freshgo/core/mem"
	"freshgo/core/ssd"
)

const (
	writeBytes = 1 << 30
	writeChunk = 4 << 20
)

// compareWriting writes a file with a bare loop of direct writes, which does nothing but wait for the disk, and with a
// Writer fed by copies.
func compareWriting(c config) error {
	path := c.path + ".writing"
	defer os.Remove(path)
	block, err := mem.NewBudget(0).Alloc(mem.Staging, writeChunk)
	if err != nil {
		return err
	}
	defer block.Free()
	chunk := block.Bytes()
	for i := range chunk {
		chunk[i] = byte(i * 31 >> 5)
	}
	var loop, writer []sample
	for range c.rounds {
		for _, way := range []struct {
			runs  *[]sample
			write func(path string, chunk []byte) error
		}{{&loop, writeByLoop}, {&writer, writeByWriter}} {
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			before, start := cpuSeconds(), time.Now()
			if err := way.write(path, chunk); err != nil {
				return err
			}
			*way.runs = append(*way.runs, sample{time.Since(start).Seconds(), cpuSeconds() - before})
		}
	}
	rate := func(s sample) float64 { return writeBytes / 1e6 / s.seconds }
	fmt.Printf("writing %d MiB: loop of direct writes %.0f MB/s, Writer %.0f MB/s, ratio %.2f\n",
		writeBytes>>20, median(loop, rate), median(writer, rate), medianRatio(writer, loop, rate))
	return nil
}

func writeByLoop(path string, chunk []byte) error {
	f, err := ssd.OS.Open(path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_DIRECT, 0o644)
	if err != nil {
		return err
	}
	for off := int64(0); off < writeBytes; off += int64(len(chunk)) {
		if err := ssd.WriteFull(f, chunk, off); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(f.Sync(), f.Close())
}

func writeByWriter(path string, chunk []byte) error {
	w, err := ssd.NewWriter(ssd.OS, path, mem.NewBudget(0), writeChunk)
	if err != nil {
		return err
	}
	defer w.Abort()
	for w.Offset() < writeBytes {
		if _, err := w.Write(chunk); err != nil {
			return err
		}
	}
	return w.Close()
}
