// Package draw draws batches: it takes a source apart, a store or a graph in memory, opens the inputs of draws as the
// memory has been divided, and draws a batch for a key. It does not depend on caches, plans and epochs.
//
//   - Source: source.go and graph.go take a source apart into Parts, its tensors and its Schema. schema.go and
//     schemaoptions.go hold node types and relations, and their options.
//   - Options: options.go has the options of a loader; Sampling.Check compares them with the source.
//   - Sampling: sampling.go holds the opened inputs. topology.go opens neighbour lists; neighbors.go caches the lists
//     of the most important nodes of all relations, which listchoice.go ranks together; weights.go opens weights, and
//     times.go opens times.
//   - Threads: threads.go holds the threads that compute, which batches take, and lend while they are idle.
//   - Requests: seeds.go has the order of an epoch's seeds (with input_weight they are drawn with replacement), which
//     ranks share (share.go), and the requests of batches for nodes; links.go has the requests for links (package
//     links).
//   - A batch is one flat subgraph over one numbering of all nodes. batchrows.go finds the lists of each type and
//     relation in it, and the rows on disk that it needs, each once: a node is numbered once for each tree
//     (nodeindex.go, trees.go), and rows that the consumer holds are skipped (held.go).
//   - Numbers by which package sizing divides the memory: sizing.go has the sizes of the graph, measure.go samples a
//     few batches, and estimate.go bounds batches that are too large for that.
//   - Hotness: hotness.go has a table of the ways to score rows for a cache; rank.go scores by degree and by sampling
//     epochs, expected.go by expected visits.
package draw
