package sizing

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
)

// recorded is a division of a loader's memory: what package loader asked and the answer. Those of
// testdata/recorded.jsonl, one a line, zeros left out, were recorded from the loaders that the tests of package loader
// open, when that package divided the memory itself; since then the address table of a cache spans all node
// types, buffers that are kept are bounded by the memory of batches, divisions are chosen by what an epoch moves,
// what ranking takes for a while is given back, plans have no tables for types behind the last one with rows, four
// bytes and then three less for each slot, and words for the rows that they know where these are few.
type recorded struct {
	Request Request
	Graph   Graph
	Costs   Costs
	Split   *Split
	Error   string // in place of Split
}

func recordings(t *testing.T) (all []recorded) {
	t.Helper()
	lines, err := os.ReadFile("testdata/recorded.jsonl")
	require.NoError(t, err)
	for line := range bytes.Lines(lines) {
		var r recorded
		require.NoError(t, json.Unmarshal(line, &r))
		all = append(all, r)
	}
	require.NotEmpty(t, all)
	return all
}

// name names a recording.
func (r *recorded) name() string {
	words := []string{r.Request.Cache}
	for _, word := range []struct {
		holds bool
		name  string
	}{
		{r.Graph.OnDisk, "on disk"}, {len(r.Graph.Types) > 1, "heterogeneous"}, {r.Request.History.Buffer > 0, "history"},
		{r.Request.Memory > 0, "limited"}, {r.Error != "", "refused"},
	} {
		if word.holds {
			words = append(words, word.name)
		}
	}
	return strings.Join(words, ", ")
}

// TestRecordedDivisions holds every division as it was.
func TestRecordedDivisions(t *testing.T) {
	for _, r := range recordings(t) {
		t.Run(r.name(), func(t *testing.T) {
			got, err := Divide(r.Request, r.Graph, r.Costs)
			if r.Error != "" {
				require.EqualError(t, err, r.Error)
				require.ErrorIs(t, err, mem.ErrBudget)
				return
			}
			require.NoError(t, err)
			// Which are nobody else's, and no part of the division.
			got.reserved, got.EpochBytes, got.predicted, got.beyond, got.slack = 0, 0, moved{}, 0, 0
			require.Equal(t, r.Split, got)
		})
	}
}
