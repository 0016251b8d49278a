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

func TestPartsOfCases(t *testing.T) {
	t.Setenv(Variable, "")
	cases := []int{0, 1, 2, 3, 4, 5, 6}
	short(t, false)
	require.Equal(t, cases, Part(t, "", cases))
	require.Equal(t, 7, Rounds(7))
	t.Run("figures", func(t *testing.T) {
		Figures(t)
		require.False(t, testing.Short())
	})

	short(t, true)
	require.Equal(t, 3, Rounds(7))
	require.Empty(t, Part(t, "", []int{}))
	require.Equal(t, []int{9}, Part(t, "", []int{9}))
	seen := map[int]bool{}
	for name := range 30 {
		chosen := Part(t, fmt.Sprint(name), cases)
		require.Contains(t, []int{2, 3}, len(chosen))
		require.Equal(t, chosen, Part(t, fmt.Sprint(name), cases))
		for _, k := range chosen {
			seen[k] = true
		}
	}
	require.Len(t, seen, len(cases), "other names choose other cases")
	t.Run("figures", func(t *testing.T) {
		Figures(t)
		t.Error("was not left out")
	})
}
