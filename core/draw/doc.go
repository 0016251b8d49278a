// Package draw draws batches: it takes a source apart, a store or a graph in memory, opens what batches are drawn from
// as the memory has been divided, and draws a batch for a key. Nothing here knows of caches, plans and epochs.
//
//   - Source: source.go and graph.go take a source apart into Parts, its tensors and its Schema. schema.go and
//     schemaoptions.go know node types and relations, and what the options ask of them.
//   - Options: options.go has what a loader is asked for; Sampling.Check compares it with the source.
//   - Sampling: sampling.go has what is open. topology.go opens neighbour lists; neighbors.go caches the lists of the
//     most important nodes of all relations, which listchoice.go ranks together; weights.go opens what draws are
//     weighted by, and times.go what they are narrowed by.
//   - Requests: seeds.go has the order of an epoch's seeds (with input_weight they are drawn with replacement), which
//     ranks share (share.go), and the requests of batches for nodes; links.go has those for links (package links).
//   - A batch is one flat subgraph over one numbering of all nodes. batchrows.go finds the lists of each type and
//     relation in it, and the rows on disk that it needs, each once: a node is numbered once for each tree
//     (nodeindex.go, trees.go), and a row that the consumer holds is passed over (held.go).
//   - Numbers by which package sizing divides the memory: sizing.go knows the sizes of the graph, measure.go samples a
//     few batches, and estimate.go bounds those that are too large for that.
//   - Hotness: hotness.go has a table of the ways to score rows for a cache; rank.go scores by degree and by sampling
//     epochs, expected.go by expected visits.
package draw
