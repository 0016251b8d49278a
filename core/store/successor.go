package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"freshgo/core/manifest"
	"freshgo/core/mem"
)

// successor is a run that writes a store from another, and shares the files that do not change. The graph has the new
// nodes and edges of each type of the source.
type successor struct {
	sourceWriter
	src   *Store
	m     *manifest.Manifest // as it will be
	names map[string]bool    // of files that stay or were made
	chunk int
}

// newSuccessor begins a run, in which nothing is new yet.
func newSuccessor(src *Store, opts ConvertOptions, budget *mem.Budget) (*successor, error) {
	if src.closed.Load() {
		return nil, fmt.Errorf("store: %s: %w", src.path, ErrClosed)
	}
	if err := src.checkCarried(); err != nil {
		return nil, err
	}
	s := &successor{src: src, m: src.Manifest(), names: map[string]bool{}}
	s.fs, s.budget, s.progress = src.fs, budget, opts.Progress
	if s.progress == nil {
		s.progress = func(string, int64, int64) {}
	}
	for i := range src.nodeTypes {
		count := src.nodeTypes[i].Count
		s.graph.nodes = append(s.graph.nodes, nodePart{count: count, before: count})
	}
	s.graph.edges = make([]edgePart, len(src.edgeTypes))
	return s, nil
}

// choosePlan chooses sizes that keep every step within the budget. need is the memory of the largest.
func (s *successor) choosePlan(what string, need func(chunk int) int64) error {
	limit, bytes := s.budget.Limit(), int64(0)
	for _, s.chunk = range tensorChunks {
		s.tensorChunk = s.chunk
		if bytes = max(need(s.chunk), s.carryBytes(s.chunk)); limit <= 0 || bytes <= limit {
			return nil
		}
	}
	return needsMemory("this "+what, bytes, limit)
}

// carryBytes returns the memory of copying what cannot be shared.
func (s *successor) carryBytes(chunk int) int64 {
	most := int64(0)
	for _, a := range s.src.arrays() {
		most = max(most, pagesOf(a).rowStreamBytes(int64(chunk))+arrayWriterBytes(chunk))
	}
	return most
}

// run writes the store at path. added are the arrays that are written, which need space.
func (s *successor) run(
	ctx context.Context, path string, overwrite bool, added []*Array, write func(ctx context.Context) error,
) error {
	var err error
	if s.site, err = prepareSite(s.fs, path, overwrite); err != nil {
		return err
	}
	if err = CheckSpace(s.fs, s.site.dir, storedBytes(added...)); err == nil {
		err = write(ctx)
	}
	if err == nil {
		err = newStore(s.fs, s.site.dir, s.m).check()
	}
	return s.site.conclude(ctx, s.m, err, overwrite)
}

// fileFor returns a file that no array has.
func (s *successor) fileFor(prefix, name string) string {
	for i := 0; ; i++ {
		file := fmt.Sprintf("%snew%d_%s", prefix, i, fileName(name))
		if !s.names[file+dataSuffix] && !s.names[file+sumsSuffix] {
			s.names[file+dataSuffix], s.names[file+sumsSuffix] = true, true
			return file
		}
	}
}

// shareAll puts the files that the manifest still names into the new store, but for those of arrays that are written
// anew.
func (s *successor) shareAll(ctx context.Context, anew map[string]bool) error {
	files := map[string]*Array{}
	for _, a := range s.src.arrays() {
		files[a.File] = a
	}
	kept := slices.DeleteFunc(arraysIn(s.m), func(a *manifest.Array) bool { return anew[a.GetFile()] })
	m := &meter{report: s.progress, stage: "sharing"}
	for _, a := range kept {
		s.names[a.GetFile()], s.names[a.GetCrcFile()] = true, true
		m.total += files[a.GetFile()].Bytes
	}
	for _, a := range kept {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.share(ctx, files[a.GetFile()], a); err != nil {
			return err
		}
		m.add(files[a.GetFile()].Bytes)
	}
	return nil
}

// arraysIn returns all arrays of a manifest.
func arraysIn(m *manifest.Manifest) (all []*manifest.Array) {
	for _, t := range m.Attachments {
		all = append(all, t.GetData())
	}
	for _, node := range m.NodeTypes {
		all = append(all, node.GetOrder())
		for _, t := range node.Tensors {
			all = append(all, t.GetData())
		}
		for _, s := range node.Splits {
			all = append(all, s.GetIds())
		}
	}
	for _, e := range m.EdgeTypes {
		all = append(all, e.GetIndptr(), e.GetIndices(), e.GetEdgeIds(), e.GetWeights(), e.GetWeightSums())
		for _, t := range e.Tensors {
			all = append(all, t.GetData())
		}
	}
	return slices.DeleteFunc(all, func(a *manifest.Array) bool { return a == nil })
}

// cannotShare are the answers of file systems that can neither clone nor link.
var cannotShare = []error{syscall.EXDEV, syscall.EPERM, syscall.EOPNOTSUPP, syscall.EMLINK, syscall.ENOSYS}

// share makes an array a file of the new store, and copies it where it cannot be shared.
func (s *successor) share(ctx context.Context, from *Array, in *manifest.Array) error {
	for _, path := range []string{from.Path, from.CRCPath} {
		err := s.fs.Share(path, filepath.Join(s.site.dir, filepath.Base(path)))
		if slices.ContainsFunc(cannotShare, func(refused error) bool { return errors.Is(err, refused) }) {
			r := &relayouter{src: s.src, dir: s.site.dir, budget: s.budget, plan: relayoutPlan{chunk: s.chunk}}
			r.meter = &meter{report: func(string, int64, int64) {}}
			_ = s.fs.Remove(filepath.Join(s.site.dir, from.File)) // the first of the two may be there
			return r.carry(ctx, carried{from, strings.TrimSuffix(from.File, dataSuffix), in})
		}
		if err != nil {
			return access(err)
		}
	}
	return nil
}
