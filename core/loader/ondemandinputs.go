package loader

import (
	"context"
	"fmt"
	"slices"

	"freshgo/core/draw"
	"freshgo/core/fetch"
	"freshgo/core/sample"
	"freshgo/core/store"
)

// OnDemand names the seeds of one batch on demand: inputs of the loader, or nodes, or links.
type OnDemand struct {
	// Inputs are places in the loader's list of seeds, or of links.
	Inputs []int64 `option:"inputs"`
	// Seeds are nodes, by global numbers. Those of a type follow one another, and the loader has seeds of the type.
	Seeds []int64 `option:"seeds"`
	// Sources and Targets are the ends of links, by ids within their types.
	Sources []int64 `option:"sources,num_links"`
	Targets []int64 `option:"targets,num_links"`
	// Times are the times of Seeds, or of the links that are given by their ends. nil: the times of the nodes.
	Times []int64 `option:"times"`
}

// take sets the preparer's inputs to the seeds of ask, all in one batch.
func (p *onDemandWorker) take(ctx context.Context, ask *OnDemand) (err error) {
	l := p.preparer.loader
	p.preparer.drawn.SetInputs(l.draw.Inputs())
	r := &p.preparer.drawn.Request
	r.Inputs, r.Times = r.Inputs[:0], r.Times[:0]
	linked := l.draw.Options.Links != nil
	switch {
	case ask.Inputs != nil && (ask.Seeds != nil || ask.Sources != nil || ask.Times != nil):
		return fmt.Errorf("%w: a request names inputs of the loader or inputs of its own, got both", draw.ErrOption)
	case ask.Inputs != nil:
		return p.takeInputs(ask.Inputs)
	case linked && (ask.Seeds != nil || ask.Sources == nil):
		return fmt.Errorf("%w: the loader makes batches for links, got a request for nodes", draw.ErrOption)
	case !linked && (ask.Sources != nil || ask.Seeds == nil):
		return fmt.Errorf("%w: the loader makes batches for nodes, got a request for links", draw.ErrOption)
	case linked:
		err = p.takeLinks(ask)
	default:
		err = p.takeNodes(ctx, ask)
	}
	if err != nil {
		return err
	}
	for i := range p.preparer.drawn.Inputs.Count() {
		r.Inputs = append(r.Inputs, i)
	}
	r.Times = append(r.Times, p.preparer.drawn.Inputs.Times...)
	return nil
}

func (p *onDemandWorker) takeInputs(inputs []int64) error {
	r, count := &p.preparer.drawn.Request, p.preparer.drawn.Inputs.Count()
	if len(inputs) == 0 {
		return fmt.Errorf("%w: index is empty, expected at least one position", draw.ErrOption)
	}
	for i, input := range inputs {
		if uint64(input) >= uint64(count) {
			return fmt.Errorf("%w: index[%d] is %d, expected a position in [0, %d)", draw.ErrOption, i, input, count)
		}
		if len(p.preparer.drawn.Inputs.Times) > 0 {
			r.Times = append(r.Times, p.preparer.drawn.Inputs.Times[input])
		}
	}
	r.Inputs = append(r.Inputs, inputs...)
	return nil
}

func (p *onDemandWorker) takeNodes(ctx context.Context, ask *OnDemand) (err error) {
	l, s := p.preparer.loader, p.preparer.loader.draw.Parts.Schema
	for i, v := range ask.Seeds {
		if uint64(v) >= uint64(l.draw.Parts.NumNodes) {
			return fmt.Errorf("%w: ids[%d] is %d, expected a node in [0, %d)", sample.ErrSeed, i, v, l.draw.Parts.NumNodes)
		}
	}
	if len(ask.Seeds) == 0 {
		return fmt.Errorf("%w: ids is empty, expected at least one node", draw.ErrOption)
	}
	runs, err := s.SeedRuns("ids", ask.Seeds)
	if err != nil {
		return err
	}
	for _, r := range runs {
		if !slices.ContainsFunc(s.Runs, func(own draw.SeedRun) bool { return own.Type == r.Type }) {
			return fmt.Errorf("%w: ids are of node type %q, expected a node type of the loader's input nodes",
				draw.ErrOption, s.TypeNames[r.Type])
		}
	}
	p.preparer.drawn.SetInputs(draw.Inputs{Requester: draw.NewInputNodes(ask.Seeds, 0), Runs: runs})
	p.preparer.drawn.Inputs.Times, err = p.timesAsked(ctx, ask)
	return err
}

// timesAsked returns the times of the requested nodes.
func (p *onDemandWorker) timesAsked(ctx context.Context, ask *OnDemand) ([]int64, error) {
	l, s := p.preparer.loader, p.preparer.loader.draw.Parts.Schema
	switch {
	case l.draw.Options.TimeAttr == "" && ask.Times != nil:
		return nil, fmt.Errorf("%w: time needs a loader with time_attr, and this one has none", draw.ErrOption)
	case l.draw.Options.TimeAttr == "":
		return nil, nil
	case ask.Times != nil && len(ask.Times) != len(ask.Seeds):
		return nil, fmt.Errorf("%w: time has %d times, expected one for each of %d nodes", draw.ErrOption, len(ask.Times),
			len(ask.Seeds))
	case ask.Times != nil:
		return ask.Times, nil
	}
	out := make([]int64, len(ask.Seeds))
	for _, r := range p.preparer.drawn.Inputs.Runs {
		t := p.timesOf(r.Type)
		if t == nil {
			return nil, s.NoSeedTimes(r.Type, l.draw.Options.TimeAttr)
		}
		if err := p.readTimes(ctx, t, ask.Seeds[r.From:r.To], out[r.From:r.To]); err != nil {
			return nil, fmt.Errorf("reading %s: %w", s.Describe(&t.Tensor), err)
		}
	}
	return out, nil
}

// timesOf returns the table with the times of a node type; nil where it has none.
func (p *onDemandWorker) timesOf(typ int) *fetch.Table {
	l := p.preparer.loader
	for i := range l.rows.Tables {
		if t := &l.rows.Tables[i]; !t.ByEdge && t.Type == typ && t.Name == l.draw.Options.TimeAttr {
			return t
		}
	}
	return nil
}

// readTimes reads the times of nodes of a table's type.
func (p *onDemandWorker) readTimes(ctx context.Context, t *fetch.Table, nodes, out []int64) error {
	rows := make([]int64, len(nodes))
	for i, v := range nodes {
		rows[i] = int64(p.cachedTypes.RowOf(v)) - t.First
	}
	if t.Disk != nil {
		return t.Disk.Read(ctx, &p.preparer.filler.Scratch.Merger, rows, func(i int32, row []byte) error {
			store.DecodeIntegers(t.Stored, row, out[i:i+1])
			return nil
		})
	}
	for i, row := range rows {
		store.DecodeIntegers(t.Stored, t.Memory[int(row)*t.Width:][:t.Width], out[i:i+1])
	}
	return nil
}

func (p *onDemandWorker) takeLinks(ask *OnDemand) error {
	l, n := p.preparer.loader, len(ask.Sources)
	own := l.draw.Seeds.Linked()
	o := *own.Options
	o.Sources, o.Targets = ask.Sources, ask.Targets
	of, err := l.draw.Parts.LinkedRelation(&o)
	if err != nil {
		return err
	}
	if err := o.Check(&of); err != nil {
		return fmt.Errorf("%w: %w", draw.ErrOption, err)
	}
	if err := o.CheckEnds(&of); err != nil {
		return err
	}
	timed := l.draw.Options.TimeAttr != ""
	if timed && len(ask.Times) != n || !timed && ask.Times != nil {
		expected := "none without time_attr"
		if timed {
			expected = fmt.Sprintf("one for each of %d links", n)
		}
		return fmt.Errorf("%w: edge_label_time has %d times, expected %s", draw.ErrOption, len(ask.Times), expected)
	}
	links := own.With(ask.Sources, ask.Targets) // the tables of negatives are the loader's
	p.preparer.drawn.SetInputs(draw.Inputs{Requester: draw.LinkRequester{Links: links}, Times: ask.Times})
	return nil
}
