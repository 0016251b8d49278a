package explore

import (
	"flag"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// short sets -short for the rest of a test.
func short(t *testing.T, on bool) {
	t.Helper()
	before := testing.Short()
	require.NoError(t, flag.Set("test.short", fmt.Sprint(on)))
	t.Cleanup(func() { require.NoError(t, flag.Set("test.short", fmt.Sprint(before))) })
}

// ran returns the cases that run, of n.
func ran(t *testing.T, n int) (cases []string) {
	t.Helper()
	t.Run("ran", func(t *testing.T) {
		for k := range n {
			Run(t, fmt.Sprint(k), func(t *testing.T) { cases = append(cases, t.Name()) })
		}
	})
	return cases
}

func TestPartsOfCases(t *testing.T) {
	t.Setenv(Variable, "")
	t.Setenv(PartVariable, "")
	cases := []int{0, 1, 2, 3, 4, 5, 6}
	short(t, false)
	require.Equal(t, cases, Part(t, "", cases))
	require.Equal(t, 7, Rounds(7))
	require.Equal(t, 1, Stride())
	require.Len(t, ran(t, 30), 30)
	t.Run("figures", func(t *testing.T) {
		Figures(t)
		require.False(t, testing.Short())
	})

	t.Setenv(PartVariable, "3")
	require.Equal(t, 3, Rounds(7))
	require.Contains(t, []int{2, 3}, len(Part(t, "", cases)))
	require.Equal(t, 3, Stride())
	for _, bad := range []string{"0", "half", "3/", "3/x", "/3"} {
		t.Setenv(PartVariable, bad)
		require.Panics(t, func() { Rounds(7) })
	}
	t.Setenv(PartVariable, "")

	short(t, true)
	require.Equal(t, 1, Rounds(7))
	require.Equal(t, 2, Rounds(10))
	require.Empty(t, Part(t, "", []int{}))
	require.Equal(t, []int{9}, Part(t, "", []int{9}))
	seen := map[int]bool{}
	for name := range 30 {
		chosen := Part(t, fmt.Sprint(name), cases)
		require.Len(t, chosen, 1)
		require.Equal(t, chosen, Part(t, fmt.Sprint(name), cases))
		for _, k := range chosen {
			seen[k] = true
		}
	}
	require.Len(t, seen, len(cases), "other names choose other cases")
	require.Equal(t, 9, Stride())
	require.False(t, All())
	require.Len(t, ran(t, 1), 1, "the first case runs")
	some := ran(t, 300) // by its name
	require.InDelta(t, 300/9, len(some), 15)
	t.Run("figures", func(t *testing.T) {
		Figures(t)
		t.Error("was not left out")
	})
}

// TestShortPartsDiffer holds that no case but the first of a product runs in both a third and the ninth of -short, and
// that another number draws other cases.
func TestShortPartsDiffer(t *testing.T) {
	t.Setenv(Variable, "")
	cases := make([]int, 100)
	for i := range cases {
		cases[i] = i
	}
	parts := func() (part []int, calls int, some []string) {
		return Part(t, "part", cases), First(t, "calls"), ran(t, 300)[1:]
	}
	short(t, false)
	t.Setenv(PartVariable, "3")
	part, calls, some := parts()
	t.Setenv(PartVariable, "3/12")
	otherPart, _, otherSome := parts()
	require.NotEqual(t, some, otherSome)
	require.NotEmpty(t, otherPart)

	short(t, true)
	t.Setenv(PartVariable, "")
	shortPart, shortCalls, shortSome := parts()
	require.NotEmpty(t, shortPart)
	require.NotEmpty(t, shortSome)
	require.NotSubset(t, part, shortPart)
	for _, k := range shortPart {
		require.NotContains(t, part, k)
	}
	for _, name := range shortSome {
		require.NotContains(t, some, name)
	}
	require.NotEqual(t, calls%3, shortCalls%3)
}
