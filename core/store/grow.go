package store

import (
	"context"
	"slices"
	"strings"

	"freshgo/core/manifest"
	"freshgo/core/mem"
	"freshgo/core/narrow"
)

// The arrays of a store with further rows: how Append writes them.

// write writes what grows and shares what stays.
func (g *grower) write(ctx context.Context) error {
	if err := renew(g.m, "append", g.String()); err != nil {
		return err
	}
	if err := g.shareAll(ctx, g.anew); err != nil {
		return err
	}
	for i, node := range g.m.NodeTypes {
		if err := g.growNodes(ctx, i, node); err != nil {
			return err
		}
	}
	for i, edge := range g.m.EdgeTypes {
		if err := g.plans[i].write(ctx, edge); err != nil {
			return err
		}
	}
	for _, s := range g.graph.attachments {
		at := slices.IndexFunc(g.m.Attachments, func(t *manifest.Tensor) bool { return t.GetName() == s.Name })
		old := attachmentNamed(g.src, s.Name)
		if err := g.growTensor(ctx, attachmentLabel, old, g.m.Attachments[at], s, anyValue); err != nil {
			return err
		}
	}
	return nil
}

// growNodes writes what grows of a node type.
func (g *grower) growNodes(ctx context.Context, typ int, node *manifest.NodeType) error {
	part, stored := &g.graph.nodes[typ], &g.src.nodeTypes[typ]
	node.Count = part.count
	if err := g.growSplits(ctx, part, stored, node); err != nil {
		return err
	}
	if g.newNodes(typ) == 0 {
		return nil
	}
	for _, t := range part.tensors {
		i := slices.IndexFunc(node.Tensors, func(have *manifest.Tensor) bool { return have.GetName() == t.Name })
		old := slices.IndexFunc(stored.Tensors, func(have Tensor) bool { return have.Name == t.Name })
		if err := g.growTensor(ctx, part.label, &stored.Tensors[old], node.Tensors[i], t, anyValue); err != nil {
			return err
		}
	}
	if stored.Order == nil {
		return nil
	}
	var err error
	node.Order, err = g.growOrder(ctx, part, stored.Order)
	return err
}

// growSplits appends to splits, and adds those that are new.
func (g *grower) growSplits(ctx context.Context, part *nodePart, stored *NodeType, node *manifest.NodeType) error {
	for _, t := range part.splits {
		old := slices.IndexFunc(stored.Splits, func(have Tensor) bool { return have.Name == t.Name })
		if old < 0 {
			written, err := g.writeSplit(ctx, part, g.fileFor(part.file, "split_"+t.Name), t)
			if err != nil {
				return err
			}
			node.Splits = append(node.Splits, written)
			continue
		}
		w, err := g.continued(ctx, &stored.Splits[old].Array)
		if err != nil {
			return err
		}
		written, err := g.endSplit(ctx, w, part, t, stored.Splits[old].Rows)
		w.abort()
		if err != nil {
			return err
		}
		node.Splits[old] = written
	}
	slices.SortFunc(node.Splits, func(a, b *manifest.Split) int { return strings.Compare(a.GetName(), b.GetName()) })
	return nil
}

// growOrder lists new nodes behind the rows of those that are there.
func (g *grower) growOrder(ctx context.Context, part *nodePart, old *Array) (*manifest.Array, error) {
	w, err := g.continued(ctx, old)
	if err != nil {
		return nil, err
	}
	defer w.abort()
	ids := make([]uint32, 0, splitRows)
	for id := part.before; id < part.count; id++ {
		if ids = append(ids, uint32(id)); len(ids) == cap(ids) || id == part.count-1 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := w.write(mem.Bytes(ids)); err != nil {
				return nil, err
			}
			ids = ids[:0]
		}
	}
	return w.finish(part.count)
}

// fileOf names the file of an array of the source that is written anew: as it was, unless that is taken.
func (g *grower) fileOf(a *Array) string {
	file := strings.TrimSuffix(a.File, dataSuffix)
	if g.names[file+dataSuffix] || g.names[file+sumsSuffix] {
		return g.fileFor("", file)
	}
	g.names[file+dataSuffix], g.names[file+sumsSuffix] = true, true
	return file
}

// continued begins an array of the new store with the rows of one of the source, checked.
func (g *grower) continued(ctx context.Context, a *Array) (*arrayWriter, error) {
	file := g.fileOf(a)
	w, err := newArrayWriter(g.fs, g.site.dir, file, a.DType, a.RowShape, g.chunk, g.budget)
	if err != nil {
		return nil, err
	}
	w.useLayout(a.Layout)
	m := &meter{report: g.progress, stage: "copying " + file, total: a.Rows}
	err = a.streamRows(ctx, int64(g.chunk), g.budget, func(_ int64, rows []byte) error {
		defer m.add(int64(len(rows) / a.Layout.RowBytes))
		return w.writeRows(rows)
	})
	if err != nil {
		w.abort()
		return nil, err
	}
	return w, nil
}

// growTensor writes a tensor with further rows, in the form in which it is stored.
func (g *grower) growTensor(
	ctx context.Context, label string, old *Tensor, in *manifest.Tensor, t NamedSource, visit visitRows,
) error {
	w, err := g.continued(ctx, &old.Array)
	if err != nil {
		return err
	}
	defer w.abort()
	var n *narrowing
	if t.Narrow != narrow.None {
		if n, err = newNarrowing(ctx, &g.sourceWriter, label+t.Name, t); err != nil {
			return err
		}
		defer n.close()
		t = n.source
		n.MaxError, n.SumSquareError, n.SumSquare = old.Narrow.MaxError, old.Narrow.SumSquareError, old.Narrow.SumSquare
	}
	if err := g.writeSource(ctx, w, label, t, n, visit); err != nil {
		return err
	}
	if n != nil {
		n.describe(in)
	}
	in.Data, err = w.finish(old.Rows + t.rows())
	return err
}
