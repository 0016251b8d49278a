package lint

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPagesNameFilesThatExist(t *testing.T) {
	named := 0
	walkRepository(t, func(path, text string) {
		if strings.HasPrefix(path, "CHANGELOG") {
			return // it speaks of the past
		}
		for _, pattern := range namedPaths(text, []string{"bench", "capi", "core", "csrc", "docs", "examples", "python"}) {
			named++
			found, err := filepath.Glob(filepath.Join("../../..", pattern))
			require.NoError(t, err)
			if len(found) == 0 {
				t.Errorf("%s names %s, which does not exist", path, pattern)
			}
		}
	}, ".md")
	require.Greater(t, named, 50)
}

func TestNamedPaths(t *testing.T) {
	directories := []string{"core", "python"}
	for text, want := range map[string][]string{
		"in `core/a.go`, `b.go` and `docs/c`": {"core/a.go"},
		"`core/{a,b}/{c,d}.go`":               {"core/a/c.go", "core/a/d.go", "core/b/c.go", "core/b/d.go"},
		"`_data/x.py`":                        {"python/freshgo/_data/x.py"},
		"`python/freshgo/*.py` `core/ x`":     {"python/freshgo/*.py"},
	} {
		require.Equal(t, want, namedPaths(text, directories), text)
	}
}
