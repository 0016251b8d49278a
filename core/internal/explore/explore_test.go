package explore

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSeedsAreConstantUnlessTheEnvironmentSays(t *testing.T) {
	t.Setenv(Variable, "")
	require.EqualValues(t, 7, Seed(t, 7))
	require.Equal(t, rand.New(rand.NewPCG(7, 2)).Uint64(), Rand(t, 7, 2).Uint64())

	t.Setenv(Variable, "12")
	once := Seed(t, 7)
	require.NotEqualValues(t, 7, once)
	require.NotEqual(t, once, Seed(t, 8))
	require.Equal(t, once, Seed(t, 7), "a seed can be repeated")
	t.Setenv(Variable, "13")
	require.NotEqual(t, once, Seed(t, 7))
}

func TestWrongSeedsEndTheTest(t *testing.T) {
	t.Setenv(Variable, "many")
	spy := &spy{TB: t}
	require.Panics(t, func() { Seed(spy, 7) })
	require.Contains(t, spy.said, `FRESHGO_TEST_SEED is "many"`)
}

// spy is a test that notes why it was ended.
type spy struct {
	testing.TB
	said string
}

func (s *spy) Fatalf(format string, args ...any) {
	s.said = fmt.Sprintf(format, args...)
	panic(s.said)
}
