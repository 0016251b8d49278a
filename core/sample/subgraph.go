package sample

// Subgraph is one batch. The nodes of all types have one numbering, the global one, in which the nodes of a type follow
// those of the type before it, so caches, plans and histories need not know types. Every list of nodes has the nodes of
// the first type, then the nodes of the second, and so on; every list of edges is in the order of the relations; only
// the counts by hop are by type. With one node type and one relation this is a batch of a homogeneous graph.
//
// Its slices are views of the Worker that made it, valid until that Worker's next Sample or Close. Local ids count
// within a node type. Every list is in the order of the hops.
type Subgraph struct {
	// Nodes holds, for each type, global numbers: the seeds as given, then every other node in order of discovery. A
	// repeated seed keeps all of its positions, with a copy of the same draws at each; as a source it has its first one.
	Nodes []int64
	// Ptr delimits, for each relation from 0 on, the in-edges of the expanded nodes of its target type, the locals 0 to
	// n-1 that were reached before the last hop: local t has edges Ptr[t] to Ptr[t+1]. In subgraph types other than
	// Directional these are all nodes.
	Ptr []int64
	// Row is the local id of the source of each edge, below 2^31.
	Row []uint32
	// Pos is the position of each edge in the index array of its relation, from which the caller gets the user's edge id;
	// -1 for an edge that reverses an edge of another relation. It is nil for walks.
	Pos []int64
	// Weight is the weight that the sampler gives each edge; nil for uniform and weighted draws, and for subgraph types
	// other than Directional. See Labor and Walk.
	Weight []float32
	// Room is the number of edges that a Demand for this batch counts, which exceeds the number of edges if targets turned
	// out to have fewer neighbours than the room allowed. Rooms has the number for each relation.
	Room  int64
	Rooms []int64
	// Tree is, in a disjoint batch, the tree of each node, else nil. Trees are numbered by their seeds: first the seeds of
	// the first type, then of the second, and so on. Nodes may then hold a node several times, once for each tree.
	Tree []uint32
	// NodesPerHop counts, for each type, the seeds and the nodes first reached in each hop: hops+1 counts of the first
	// type, then of the second. EdgesPerHop counts the edges drawn in each hop, for each relation.
	NodesPerHop, EdgesPerHop []int64
}

// CopyFrom copies a batch from a Worker's memory into g's own, so that the Worker may draw another.
func (g *Subgraph) CopyFrom(from *Subgraph) {
	g.Nodes, g.Ptr = append(g.Nodes[:0], from.Nodes...), append(g.Ptr[:0], from.Ptr...)
	g.Row, g.Pos = append(g.Row[:0], from.Row...), append(g.Pos[:0], from.Pos...)
	g.Weight, g.Tree = append(g.Weight[:0], from.Weight...), append(g.Tree[:0], from.Tree...)
	g.NodesPerHop, g.EdgesPerHop = from.NodesPerHop, from.EdgesPerHop
}

// flat holds the memory for batches of several types or relations, and a request's parts by type.
type flat struct {
	seeds  [][]int64 // by type
	times  []int64   // of all seeds, in the order of the types
	byType [][]int64 // by type

	nodes, ptr, pos buffer[int64]
	row, trees      buffer[uint32]
	weight          buffer[float32]
}

// splitSeeds splits the seeds by type, in order. The times of r become the times of the trees.
func (w *Worker) splitSeeds(r *Request) ([][]int64, error) {
	f, types := &w.flat, len(w.nodes)
	if f.seeds == nil {
		f.seeds, f.byType = make([][]int64, types), make([][]int64, types)
	}
	if types == 1 {
		f.seeds[0] = r.Seeds
		return f.seeds, nil
	}
	for t := range types {
		f.seeds[t], f.byType[t] = f.seeds[t][:0], f.byType[t][:0]
	}
	first := w.sampler.first
	total := first[types]
	for i, v := range r.Seeds {
		if v < 0 || v >= total {
			return nil, badSeed(v, i, total)
		}
		t := TypeOf(first, v)
		f.seeds[t] = append(f.seeds[t], v-first[t])
		if r.Times != nil {
			f.byType[t] = append(f.byType[t], r.Times[i])
		}
	}
	f.times = f.times[:0]
	for _, times := range f.byType {
		f.times = append(f.times, times...)
	}
	r.Times = f.times
	return f.seeds, nil
}

// TypeOf returns the type of the node with this global number, which must exist. first has for each type the number of
// its first node, and then the number of all nodes.
func TypeOf(first []int64, v int64) int {
	lo, hi := 0, len(first)-1
	for lo < hi { // the first type that ends behind v
		if mid := (lo + hi) / 2; first[mid+1] <= v {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// flatten exposes the drawn batch: the memory of a single node type and relation, else a copy of the lists one after
// another.
func (w *Worker) flatten(out *Subgraph) error {
	g := Subgraph{Rooms: make([]int64, 0, len(w.edges))}
	for _, e := range w.edges {
		g.Room += e.room
		g.Rooms = append(g.Rooms, e.room)
	}
	if err := reserve(w.budget, w.flat.rooms(w.flatSize())...); err != nil {
		return err
	}
	w.flattenNodes(&g)
	w.flattenEdges(&g)
	*out = g
	return nil
}

func (w *Worker) flattenNodes(g *Subgraph) {
	if len(w.nodes) == 1 {
		n := w.nodes[0]
		if g.Nodes, g.NodesPerHop = n.before(), n.perHop; n.disjoint {
			g.Tree = n.forest.trees.data[:n.n]
		}
		return
	}
	g.Nodes, g.NodesPerHop = w.flat.nodes.data[:0], make([]int64, 0, len(w.nodes)*(w.sampler.hops+1))
	for t, n := range w.nodes {
		at := len(g.Nodes)
		g.Nodes = append(g.Nodes, n.before()...)
		for i := range g.Nodes[at:] {
			g.Nodes[at+i] += w.sampler.first[t]
		}
		g.NodesPerHop = append(g.NodesPerHop, n.perHop...)
	}
	if !w.sampler.disjoint {
		return
	}
	g.Tree = w.flat.trees.data[:0]
	for _, n := range w.nodes {
		g.Tree = append(g.Tree, n.forest.trees.data[:n.n]...)
	}
}

func (w *Worker) flattenEdges(g *Subgraph) {
	if len(w.edges) == 1 {
		e := w.edges[0]
		g.Ptr, g.Row, g.Pos, g.Weight, g.EdgesPerHop = e.edges.ptr, e.edges.row, e.edges.pos, e.edges.weight, e.perHop
		return
	}
	g.Ptr, g.Row = w.flat.ptr.data[:0], w.flat.row.data[:0]
	g.EdgesPerHop = make([]int64, 0, len(w.edges)*w.sampler.hops)
	if w.sampler.HasPositions() {
		g.Pos = w.flat.pos.data[:0]
	}
	if w.sampler.HasWeights() {
		g.Weight = w.flat.weight.data[:0]
	}
	for _, e := range w.edges {
		g.Ptr, g.Row = append(g.Ptr, e.edges.ptr...), append(g.Row, e.edges.row...)
		g.Pos, g.Weight = append(g.Pos, e.edges.pos...), append(g.Weight, e.edges.weight...)
		g.EdgesPerHop = append(g.EdgesPerHop, e.perHop...)
	}
}

// flatRoom holds the lengths of the buffers of flat batches.
type flatRoom struct{ nodes, trees, ptr, pos, row, weight int64 }

func (f *flat) rooms(n flatRoom) []room {
	return []room{
		{buffer: &f.nodes, n: n.nodes}, {buffer: &f.trees, n: n.trees}, {buffer: &f.ptr, n: n.ptr},
		{buffer: &f.pos, n: n.pos}, {buffer: &f.row, n: n.row}, {buffer: &f.weight, n: n.weight},
	}
}

// flatRoom returns the room for a batch with the given total numbers of nodes, elements of Ptr and edges.
func (s *Sampler) flatRoom(nodes, ptr, edges int64) (n flatRoom) {
	if s.numTypes() > 1 {
		n.nodes = nodes
		if s.disjoint {
			n.trees = nodes
		}
	}
	if len(s.relations) > 1 {
		n.ptr, n.row = ptr, edges
		if s.HasPositions() {
			n.pos = edges
		}
		if s.HasWeights() {
			n.weight = edges
		}
	}
	return n
}

// flatSize returns the size of the drawn batch.
func (w *Worker) flatSize() flatRoom {
	var nodes, ptr, edges int64
	for _, n := range w.nodes {
		nodes += int64(n.n)
	}
	for _, e := range w.edges {
		ptr, edges = ptr+int64(len(e.edges.ptr)), edges+int64(len(e.edges.row))
	}
	return w.sampler.flatRoom(nodes, ptr, edges)
}

// flatDemand returns the size of batches up to a demand.
func (s *Sampler) flatDemand(d Demand) flatRoom {
	var nodes, ptr, edges int64
	for _, n := range d.Nodes {
		nodes += n
	}
	for i, r := range s.relations {
		ptr, edges = ptr+d.Nodes[r.Target]+1, edges+d.Edges[i]
	}
	return s.flatRoom(nodes, ptr, edges)
}
