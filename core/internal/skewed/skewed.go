// Package skewed makes the graph that tests of loaders and of windows draw from.
package skewed

import (
	"math/rand/v2"
	"os"
	"testing"
)

const (
	Width     = 24  // columns of X: 96 bytes, 42 rows in a page
	WideWidth = 170 // bytes of a row of Wide
)

// Graph has skewed sources and uniform targets. The values of its rows tell which they are.
type Graph struct {
	Sources, Targets []int64
	X                []float32 // X[v*Width+j] = v + j/1000
	Wide             []byte    // Wide[v*WideWidth+j] = v + j
	EdgeAttr         []int32   // two columns; -e and 2e
}

// New returns the graph with the given numbers of nodes and edges, the same in each run.
func New(nodes, edges int) *Graph {
	rng := rand.New(rand.NewPCG(1, 2))
	g := &Graph{}
	for e := range edges {
		u := rng.Float64()
		g.Sources = append(g.Sources, int64(float64(nodes)*u*u*u))
		g.Targets = append(g.Targets, rng.Int64N(int64(nodes)))
		g.EdgeAttr = append(g.EdgeAttr, int32(-e), int32(2*e))
	}
	for v := range nodes {
		for j := range Width {
			g.X = append(g.X, X(int64(v), j))
		}
		for j := range WideWidth {
			g.Wide = append(g.Wide, byte(v+j))
		}
	}
	return g
}

// X returns the value of a node in a column of Graph.X.
func X(node int64, column int) float32 { return float32(node) + float32(column)/1000 }

// RunIn runs the tests of a package with a directory of the whole run, which dir then names.
func RunIn(m *testing.M, dir *string) int {
	var err error
	if *dir, err = os.MkdirTemp("", "freshgo-"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(*dir)
	return m.Run()
}
