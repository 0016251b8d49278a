package plan

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
)

// recordedPlans is the number of sequences of plans in testdata/recorded.json, by their hashes.
const recordedPlans = 300

// recordedWays is the number of transfers of that planner, the first ones: no scan read rows of the batches ahead.
const recordedWays = 8

// TestPlansAreThoseRecorded holds plans to those of an earlier planner, which looked up the row of each access in every
// pass. Its plans were recorded, under each transfer that can be forced: whatever changes them must say why. (The rows
// that are cached when a plan begins entered the bucket of a batch by their last use. They enter by how long they have
// been idle since the planner looks up no row: the one that was recorded had this order. Rows that are set aside are
// compared by rising place: their order means nothing.)
func TestPlansAreThoseRecorded(t *testing.T) {
	text, err := os.ReadFile("testdata/recorded.json")
	require.NoError(t, err)
	var want []uint64
	require.NoError(t, json.Unmarshal(text, &want))
	require.Len(t, want, recordedPlans)
	for seed := range uint64(recordedPlans) {
		require.Equal(t, want[seed], hashOfPlans(t, seed), "plans of seed %d", seed)
	}
}

// recordedChoice is the choice of some plans in a row, and its predicted cost.
type recordedChoice struct {
	Hash    uint64  // of the plans, and of what every option reads and writes
	Seconds float64 // of all options, added up
}

// TestChoicesAreThoseRecorded is the same where the transfer is chosen: what is chosen, with what is counted for it, is
// what was recorded, and seconds are but for rounding.
func TestChoicesAreThoseRecorded(t *testing.T) {
	text, err := os.ReadFile("testdata/choices.json")
	require.NoError(t, err)
	var want []recordedChoice
	require.NoError(t, json.Unmarshal(text, &want))
	require.Len(t, want, recordedPlans/3)
	chosen := map[string]int{}
	for seed := range want {
		got := choicesOf(t, uint64(seed), chosen)
		require.Equal(t, want[seed].Hash, got.Hash, "choices of seed %d", seed)
		require.InEpsilon(t, want[seed].Seconds, got.Seconds, 1e-9, "seed %d", seed)
	}
	require.Greater(t, len(chosen), 4, "%v", chosen)
}

func choicesOf(t *testing.T, seed uint64, chosen map[string]int) (found recordedChoice) {
	hash := fnv.New64a()
	eachRecorded(t, seed, auto, func(s *wholePlan) {
		counted := []any{s.Steps, s.Prologue, s.Packs, s.Choice.Chosen, s.Choice.ColdRows, s.Choice.FloorBytes}
		for _, o := range s.Choice.Options {
			counted = append(counted, o.Name, o.Requests, o.BytesRead, o.BytesWritten, o.PackRows, o.Fits)
			found.Seconds += o.Seconds
		}
		text, err := json.Marshal(counted)
		require.NoError(t, err)
		_, _ = hash.Write(text)
		chosen[s.Choice.Chosen]++
	})
	found.Hash = hash.Sum64()
	return found
}

// hashOfPlans stands for everything that some plans in a row say.
func hashOfPlans(t *testing.T, seed uint64) uint64 {
	hash := fnv.New64a()
	transfer := Transfers()[1+seed%recordedWays] // given, since what each costs is another matter
	eachRecorded(t, seed, transfer, func(s *wholePlan) {
		text, err := json.Marshal([]any{s.Steps, s.Prologue, s.Packs})
		require.NoError(t, err)
		_, _ = hash.Write(bytes.ReplaceAll(text, []byte("null"), []byte("[]")))
	})
	return hash.Sum64()
}

// eachRecorded calls visit for each of some plans in a row, with the seed of the recording.
func eachRecorded(t *testing.T, seed uint64, transfer string, visit func(s *wholePlan)) {
	rng := rand.New(rand.NewPCG(seed, 77)) // constant: it is recorded
	numRows := 1 + rng.IntN(400)
	trace := makeTrace(rng, 4+rng.IntN(60), 1+rng.IntN(90), numRows, float64(1+rng.IntN(4)))
	c := testConfig(int64(numRows), int64(rng.IntN(numRows+20)), transfer)
	c.CarryOver = rng.IntN(5) > 0
	c.Depth = rng.IntN(4)
	c.PackMemory, c.PackFile = int64(rng.IntN(100))*620, int64(rng.IntN(300))*620
	p, err := New(mem.NewBudget(0), c)
	require.NoError(t, err)
	defer p.Close()
	p.transfer.methods = withoutAhead(p.transfer.methods)
	size := 1 + rng.IntN(20)
	for first := 0; first < len(trace); first += size {
		end := min(first+size, len(trace))
		ahead := min(end+rng.IntN(2)*size, len(trace))
		s, err := planned(context.Background(), p, int64(first), trace[first:end], trace[end:ahead])
		require.NoError(t, err)
		for _, step := range s.Steps {
			sortByPlace(step.Forward)
		}
		sortByPlace(s.Prologue.Forward)
		visit(s)
		s.Release()
	}
}

func sortByPlace(rows []Forward) {
	slices.SortFunc(rows, func(a, b Forward) int { return cmp.Compare(a.From, b.From) })
}

// withoutAhead returns the methods whose scans read no rows of the batches ahead.
func withoutAhead(methods []method) []method {
	return slices.DeleteFunc(slices.Clone(methods), func(m method) bool { return m.ahead })
}
