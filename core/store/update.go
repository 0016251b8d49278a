package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"freshgo/core/manifest"
	"freshgo/core/mem"
)

// Changes lists the tensors and splits that Update writes and leaves out, by type. A tensor or a split that the store
// has is replaced.
type Changes struct {
	Nodes       []NodeChange
	Edges       []EdgeChange
	Attachments []NamedSource // see Store.Attachments
	Detach      []string      // attachments that are left out
}

// NodeChange lists the changes of a node type.
type NodeChange struct {
	Name    string // empty in a homogeneous store
	Tensors []NamedSource
	Splits  map[string]Source
	Drop    []string // tensors
	Undo    []string // splits
}

// EdgeChange lists the changes of an edge type. Rows of tensors are in the user's order.
type EdgeChange struct {
	Source, Relation, Target string
	Tensors                  []NamedSource
	Drop                     []string
}

// Update writes a store at path that is src with some tensors and splits replaced, added or left out. What stays is
// shared with the file system's help, by a reflink or a hard link, and copied where it has neither: files of a store
// are never written again once it is published, so neither store depends on the other. A computed tensor goes with what
// it was computed from. The store appears as one of Convert does, complete or not at all.
func Update(ctx context.Context, src *Store, path string, changes Changes, opts ConvertOptions) error {
	return update(ctx, src, path, changes, opts, mem.NewBudget(opts.Memory))
}

// update is Update with the budget given.
func update(
	ctx context.Context, src *Store, path string, changes Changes, opts ConvertOptions, budget *mem.Budget,
) error {
	s, err := newSuccessor(src, opts, budget)
	if err != nil {
		return err
	}
	u := &updater{s}
	if err := u.check(changes); err != nil {
		return err
	}
	if err := u.choosePlan("update", u.bytes); err != nil {
		return err
	}
	return u.run(ctx, path, opts.Overwrite, u.added(), func(ctx context.Context) error { return u.write(ctx, changes) })
}

// updater is one run of Update.
type updater struct{ *successor }

// check finds the types that change and removes from the manifest what goes.
func (u *updater) check(changes Changes) error {
	gone := map[string]bool{} // node tensors "n0.x" and edge tensors "e0.w" that are no longer what they were
	for _, c := range changes.Nodes {
		i := u.src.nodeTypeNumber(c.Name)
		if i < 0 {
			_, err := u.src.NodeType(c.Name)
			return err
		}
		part, err := NodeInput{c.Name, u.src.nodeTypes[i].Count, c.Tensors, c.Splits}.check(u.fs)
		if err != nil {
			return err
		}
		part.file, u.graph.nodes[i] = u.src.nodeTypes[i].file, part
		node := u.m.NodeTypes[i]
		if node.Tensors, err = without(node.Tensors, part.tensors, c.Drop, "tensor", part.label); err != nil {
			return err
		}
		if node.Splits, err = without(node.Splits, part.splits, c.Undo, "split", part.label); err != nil {
			return err
		}
		for _, name := range changed(part.tensors, c.Drop) {
			gone["n"+c.Name+"."+name] = true
		}
	}
	for _, c := range changes.Edges {
		e, err := u.src.EdgeType(c.Source, c.Relation, c.Target)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(u.src.edgeTypes, func(t EdgeType) bool { return t.Indptr == e.Indptr })
		part := edgePart{label: edgeLabel(c.Source, c.Relation, c.Target), file: u.src.edgeTypes[i].file}
		if part.tensors, err = checkTensors(u.fs, c.Tensors, part.label); err != nil {
			return err
		}
		if e.Unnumbered && len(part.tensors) > 0 {
			return needsNumbers(part.label + part.tensors[0].Name)
		}
		for _, t := range part.tensors {
			if t.rows() != e.NumEdges {
				return invalid("%s has %d rows, expected %d, the number of edges", part.label+t.Name, t.rows(), e.NumEdges)
			}
		}
		for _, name := range changed(part.tensors, c.Drop) {
			if e.Weights != nil && e.Weights.Of == name {
				return invalid("%s is stored in sampling order too, as weight_attr: convert the graph again to change it",
					part.label+name)
			}
			gone["e"+e.String()+"."+name] = true
		}
		u.graph.edges[i] = part
		if u.m.EdgeTypes[i].Tensors, err = without(u.m.EdgeTypes[i].Tensors, part.tensors, c.Drop,
			"tensor", part.label); err != nil {
			return err
		}
	}
	var err error
	if u.graph.attachments, err = checkTensors(u.fs, changes.Attachments, attachmentLabel); err != nil {
		return err
	}
	u.m.Attachments, err = without(u.m.Attachments, u.graph.attachments, changes.Detach, "attachment", "")
	if err != nil {
		return err
	}
	for _, node := range u.m.NodeTypes {
		node.Tensors = slices.DeleteFunc(node.Tensors, func(t *manifest.Tensor) bool { return stales(t, node, gone) })
	}
	return nil
}

// stales reports whether a tensor was computed from a tensor that is gone.
func stales(t *manifest.Tensor, node *manifest.NodeType, gone map[string]bool) bool {
	a := t.GetAggregate()
	if a == nil {
		return false
	}
	if gone["n"+node.GetName()+"."+a.GetTensor()] && a.GetOwnColumns() > 0 {
		return true
	}
	return slices.ContainsFunc(a.GetParts(), func(p *manifest.AggregatePart) bool {
		edges := edgeTypeName(p.GetSource(), p.GetRelation(), p.GetTarget())
		return gone["n"+p.GetSource()+"."+a.GetTensor()] || gone["e"+edges+"."+p.GetWeightsOf()]
	})
}

// changed returns the names of what is replaced, added or left out.
func changed(added []NamedSource, dropped []string) []string {
	names := slices.Clone(dropped)
	for _, t := range added {
		names = append(names, t.Name)
	}
	return names
}

// without leaves out of what a type has what is replaced or dropped. Names that are dropped must be there.
func without[T interface{ GetName() string }](
	have []T, added []NamedSource, dropped []string, kind, label string,
) ([]T, error) {
	called := func(name string) string {
		if label == "" {
			return fmt.Sprintf("%s %q", kind, name)
		}
		return fmt.Sprintf("%s %q of %s", kind, name, strings.TrimSuffix(label, "."))
	}
	known := make([]string, len(have))
	for i, t := range have {
		known[i] = t.GetName()
	}
	for _, name := range dropped {
		if !slices.Contains(known, name) {
			return nil, invalid("there is no %s to drop, only %q", called(name), known)
		}
		if slices.ContainsFunc(added, func(t NamedSource) bool { return t.Name == name }) {
			return nil, invalid("%s is both given and dropped", called(name))
		}
	}
	names := changed(added, dropped)
	return slices.DeleteFunc(slices.Clone(have), func(t T) bool { return slices.Contains(names, t.GetName()) }), nil
}

// bytes returns the memory of the largest step.
func (u *updater) bytes(chunk int) int64 {
	most := int64(0)
	for i := range u.graph.nodes {
		part, node := &u.graph.nodes[i], &u.src.nodeTypes[i]
		most = max(most, part.bytes(chunk))
		if node.Order == nil {
			continue
		}
		for _, t := range part.tensors {
			array := t.future(node.Count)
			least := int64(1 << 20)
			for p, ok := planPermute(array, least); !ok || p.bytes(array) > least; p, ok = planPermute(array, least) {
				least *= 2
			}
			most = max(most, 4*node.Count+max(least, node.Order.LoadBytes()))
		}
	}
	for i := range u.graph.edges {
		most = max(most, tensorsBytes(u.graph.edges[i].tensors, chunk))
	}
	return max(most, tensorsBytes(u.graph.attachments, chunk))
}

// added returns the arrays of the tensors that are new.
func (u *updater) added() (all []*Array) {
	for i := range u.graph.nodes {
		for _, t := range u.graph.nodes[i].tensors {
			all = append(all, t.future(t.rows()))
		}
	}
	for i := range u.graph.edges {
		for _, t := range u.graph.edges[i].tensors {
			all = append(all, t.future(t.rows()))
		}
	}
	for _, t := range u.graph.attachments {
		all = append(all, t.future(t.rows()))
	}
	return all
}

// future returns the array that a tensor of the user's will be.
func (t NamedSource) future(rows int64) *Array {
	dtype, shape := t.stored()
	rowBytes, _ := rowBytesOf(dtype, shape) // checked with the source
	a := &Array{DType: dtype, RowShape: shape, Rows: rows, Layout: LayoutFor(rowBytes, rows)}
	a.Bytes, _ = fileBytes(a.Layout) // likewise
	return a
}

// write writes what is new and shares what stays.
func (u *updater) write(ctx context.Context, changes Changes) error {
	if err := renew(u.m, "update", changes.String()); err != nil {
		return err
	}
	if err := u.shareAll(ctx, nil); err != nil {
		return err
	}
	for i, node := range u.m.NodeTypes {
		if err := u.writeNodes(ctx, i, node); err != nil {
			return err
		}
	}
	for i, edge := range u.m.EdgeTypes {
		part := &u.graph.edges[i]
		for _, t := range part.tensors {
			written, err := u.writeTensor(ctx, u.fileFor(part.file, t.Name), part.label, t, anyValue)
			if err != nil {
				return err
			}
			edge.Tensors = append(edge.Tensors, written)
		}
	}
	for _, t := range u.graph.attachments {
		written, err := u.writeTensor(ctx, u.fileFor(attachedPrefix, t.Name), attachmentLabel, t, anyValue)
		if err != nil {
			return err
		}
		u.m.Attachments = append(u.m.Attachments, written)
	}
	u.arrange()
	return nil
}

// arrange lists what each type has as a conversion would: what was replaced at its place, splits by name.
func (u *updater) arrange() {
	place := func(before []Tensor) func(a, b *manifest.Tensor) int {
		at := func(t *manifest.Tensor) int {
			i := slices.IndexFunc(before, func(b Tensor) bool { return b.Name == t.GetName() })
			if i < 0 {
				return len(before)
			}
			return i
		}
		return func(a, b *manifest.Tensor) int { return at(a) - at(b) }
	}
	slices.SortStableFunc(u.m.Attachments, place(u.src.attachments))
	for i, node := range u.m.NodeTypes {
		slices.SortStableFunc(node.Tensors, place(u.src.nodeTypes[i].Tensors))
		slices.SortFunc(node.Splits, func(a, b *manifest.Split) int { return strings.Compare(a.GetName(), b.GetName()) })
	}
	for i, edge := range u.m.EdgeTypes {
		slices.SortStableFunc(edge.Tensors, place(u.src.edgeTypes[i].Tensors))
	}
}

// writeNodes writes what is new of a node type, its rows in the order in which the type has them.
func (u *updater) writeNodes(ctx context.Context, typ int, node *manifest.NodeType) error {
	part := &u.graph.nodes[typ]
	for _, t := range part.splits {
		written, err := u.writeSplit(ctx, part, u.fileFor(part.file, "split_"+t.Name), t)
		if err != nil {
			return err
		}
		node.Splits = append(node.Splits, written)
	}
	var moves *mem.Block
	if len(part.tensors) > 0 {
		var err error
		if moves, err = u.src.nodeTypes[typ].RowOf(ctx, u.budget, mem.Convert); err != nil {
			return err
		}
	}
	if moves != nil {
		defer moves.Free()
	}
	for _, t := range part.tensors {
		written, err := u.writeTensor(ctx, u.fileFor(part.file, t.Name), part.label, t, anyValue)
		if err == nil && moves != nil {
			err = u.reorder(ctx, part.file, written, mem.Slice[uint32](moves))
		}
		if err != nil {
			return err
		}
		node.Tensors = append(node.Tensors, written)
	}
	return nil
}

// reorder rewrites a tensor that was written in the order of ids.
func (u *updater) reorder(ctx context.Context, prefix string, t *manifest.Tensor, moves []uint32) error {
	c := newChecker(&directory{fs: u.fs, path: u.site.dir, draft: true})
	array := c.array(t.Data, "what was added", t.GetData().GetRows())
	if c.err != nil {
		return c.err
	}
	rest := u.budget.Free()
	if u.budget.Limit() <= 0 {
		rest = 0
	}
	plan, ok := planPermute(array, rest)
	if !ok {
		return &mem.BudgetError{Purpose: mem.Convert, Need: 2 * rest, Free: rest, Limit: u.budget.Limit()}
	}
	m := &meter{report: u.progress, stage: "ordering " + t.GetName(), total: plan.moved(array)}
	p := &permuter{fs: u.fs, dir: u.site.dir, rowOf: moves, budget: u.budget, meter: m}
	written, err := p.permute(ctx, array, u.fileFor(prefix, t.GetName()), plan)
	if err != nil {
		return err
	}
	t.Data = written
	return errors.Join(u.fs.Remove(array.Path), u.fs.Remove(array.CRCPath))
}
