package plan

import "context"

// wholePlan is a plan with everything that it says in memory.
type wholePlan struct {
	First    int64
	Steps    []Step
	Prologue wholePrologue
	Packs    []PackSize
	Choice   Choice
	plan     *Superplan
}

type wholePrologue struct {
	Fill      []Fill
	Pack      []Extra
	Forward   []Forward
	HolePages int
}

// planned plans batches in memory, and loads the plan.
func planned(ctx context.Context, p *Planner, first int64, current, ahead []Batch) (*wholePlan, error) {
	s, err := p.Plan(ctx, first, InMemory(current), InMemory(ahead))
	if err != nil {
		return nil, err
	}
	return whole(s)
}

func whole(s *Superplan) (*wholePlan, error) {
	ctx := context.Background()
	w := &wholePlan{First: s.First, Steps: make([]Step, s.Len()), Packs: s.Packs, Choice: s.Choice, plan: s}
	for i := range w.Steps {
		if err := s.Step(ctx, i, &w.Steps[i]); err != nil {
			return nil, err
		}
	}
	w.Prologue.HolePages = s.Prologue.HolePages
	err := s.Forwards(ctx, func(f []Forward) { w.Prologue.Forward = append(w.Prologue.Forward, f...) })
	if err != nil {
		return nil, err
	}
	return w, s.ReadAhead(ctx, 7, func(fills []Fill, packs []Extra) error {
		w.Prologue.Fill = append(w.Prologue.Fill, fills...)
		w.Prologue.Pack = append(w.Prologue.Pack, packs...)
		return nil
	})
}

func (w *wholePlan) Release() { w.plan.Release() }

// eachDest calls visit for every row that is put into a pack.
func (w *wholePlan) eachDest(visit func(Dest)) {
	for _, f := range w.Prologue.Forward {
		visit(f.Dest)
	}
	for _, e := range w.Prologue.Pack {
		visit(e.Dest)
	}
	for i := range w.Steps {
		for _, f := range w.Steps[i].Forward {
			visit(f.Dest)
		}
		for _, e := range w.Steps[i].Extra {
			visit(e.Dest)
		}
	}
}
