package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"freshgo/bench/record"
	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// benchChanges measures an update and an append against what they are measured by, interleaved: a conversion, and a
// copy of the topology.
func benchChanges(work string) error {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(5, 6))
	n, e := *nodes, *edges
	added := e / 100
	ends := make([]int64, 2*e)
	more := make([]int64, 2*added)
	for i := range ends {
		ends[i] = rng.Int64N(n)
	}
	for i := range more {
		more[i] = rng.Int64N(n)
	}
	topology := n*8 + 8*e
	width := max((*features-topology)/(4*n), 1) // the rest of the bytes is features
	few := max((topology+4*n*width)/100/(4*n), 1)
	floats := func(name string, width int64) store.NamedSource {
		data := make([]uint64, (n*width*4+7)/8)
		fill(data)
		return store.NamedSource{Name: name, Source: store.Dense(manifest.DType_FLOAT32, []int64{n, width}, mem.Bytes(data))}
	}
	in := store.Input{
		NumNodes: n, EdgeIndex: store.Dense(manifest.DType_INT64, []int64{2, e}, mem.Bytes(ends)),
		NodeTensors: []store.NamedSource{floats("x", width), floats("small", few)},
	}
	growth := store.Growth{Edges: []store.EdgeInput{{
		EdgeIndex: store.Dense(manifest.DType_INT64, []int64{2, added}, mem.Bytes(more)),
	}}}
	changes := store.Changes{Nodes: []store.NodeChange{{Tensors: []store.NamedSource{floats("small", few)}}}}
	path, other := filepath.Join(work, "s"), filepath.Join(work, "t")
	opts := store.ConvertOptions{Memory: *memory, Overwrite: true}
	change := func(do func(*store.Store) error) error {
		s, err := store.Open(ssd.OS, path)
		if err != nil {
			return err
		}
		defer s.Close()
		return do(s)
	}
	steps := []struct {
		name string
		run  func() error
	}{
		{"conversion", func() error { return store.Convert(ctx, ssd.OS, in, path, opts) }},
		{"update", func() error {
			return change(func(s *store.Store) error { return store.Update(ctx, s, other, changes, opts) })
		}},
		{"copy", func() error { return copyTopology(path, filepath.Join(work, "copy")) }},
		{"append", func() error {
			return change(func(s *store.Store) error { return store.Append(ctx, s, other, growth, opts) })
		}},
	}
	seconds, busy, written := map[string][]float64{}, map[string][]float64{}, map[string]float64{}
	for range *rounds {
		for _, step := range steps {
			before, err := bytesWritten()
			if err != nil {
				return err
			}
			used, err := processorSeconds()
			if err != nil {
				return err
			}
			start := time.Now()
			if err := step.run(); err != nil {
				return err
			}
			seconds[step.name] = append(seconds[step.name], time.Since(start).Seconds())
			after, err := processorSeconds()
			if err != nil {
				return err
			}
			busy[step.name] = append(busy[step.name], after-used)
			now, err := bytesWritten()
			if err != nil {
				return err
			}
			written[step.name] = now - before
		}
	}
	for _, step := range steps {
		fmt.Printf("%-10s %8.3f s, %8.3f s of processor, %8.1f MB written\n", step.name, record.Median(seconds[step.name]),
			record.Median(busy[step.name]), written[step.name]/1e6)
	}
	ratio := func(what, one, other string) {
		fmt.Printf("%s: %.3f of the time, %.3f of the bytes\n", what,
			record.Median(seconds[one])/record.Median(seconds[other]), written[one]/written[other])
	}
	ratio("update of a hundredth of the bytes against a conversion", "update", "conversion")
	ratio("append of a hundredth of the edges against a copy of the topology", "append", "copy")
	return verify(other, nil)
}

// bytesWritten returns the bytes that this process has sent to disks so far.
func bytesWritten() (float64, error) {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0, err
	}
	n := 0.0
	_, err = fmt.Sscanf(string(text[strings.Index(string(text), "write_bytes:"):]), "write_bytes: %f", &n)
	return n, err
}

// copyTopology copies the files of the adjacency to a directory, each durably.
func copyTopology(from, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"indptr", "indices", "edge_ids"} {
		for _, suffix := range []string{".bin", ".crc"} {
			if err := copyFile(filepath.Join(from, name+suffix), filepath.Join(to, name+suffix)); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() // nothing was written
	out, err := ssd.NewWriter(ssd.OS, to, mem.NewBudget(0), 1<<20)
	if err != nil {
		return err
	}
	defer out.Abort()
	if _, err := io.CopyBuffer(out, struct{ io.Reader }{in}, make([]byte, 1<<20)); err != nil {
		return err
	}
	return out.Close()
}
