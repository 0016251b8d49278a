package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// notOurs are directories below the repository's root that builds leave there.
var notOurs = map[string]bool{"build": true, "dist": true, "out": true}

// walkRepository visits every file of the repository that is text of one of the extensions, by its path from the root.
func walkRepository(t *testing.T, visit func(path, text string), extensions ...string) {
	const root = "../../.."
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		require.NoError(t, err)
		if entry.IsDir() {
			if name != "." && (notOurs[name] || strings.HasPrefix(entry.Name(), ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		for _, extension := range extensions {
			if filepath.Ext(path) == extension {
				text, err := os.ReadFile(path)
				require.NoError(t, err)
				visit(filepath.ToSlash(name), string(text))
			}
		}
		return nil
	})
	require.NoError(t, err)
}

func TestProseIsWrapped(t *testing.T) {
	pages := 0
	walkRepository(t, func(path, text string) {
		pages++
		for _, finding := range longProse(path, text) {
			t.Error(finding)
		}
	}, ".md")
	require.Greater(t, pages, 10)
}

func TestCodeIsWrapped(t *testing.T) {
	files := 0
	walkRepository(t, func(path, text string) {
		files++
		if strings.HasPrefix(text, "// Code generated") {
			return
		}
		for _, finding := range longCode(path, text) {
			t.Error(finding)
		}
	}, ".go", ".c", ".h", ".cc", ".cpp", ".cu")
	require.Greater(t, files, 300)
}

func TestLongProse(t *testing.T) {
	long := strings.Repeat("word ", 20) + "word" // 104
	wide := strings.Repeat("word ", 24) + "word" // 124
	tests := map[string]struct {
		text string
		want int
	}{
		"fits":                      {long[:100], 0},
		"a paragraph":               {long, 1},
		"a list":                    {"- " + long, 1},
		"an item's second line":     {"- word\n  " + long, 1},
		"after an indented line":    {"word\n\n    code\n" + long, 1},
		"a table":                   {"| " + long + " |", 0},
		"a link":                    {"- <https://" + strings.Repeat("x", 100) + ">", 0},
		"an indented block":         {"word\n\n    " + long + "\n    " + wide, 0},
		"a continued paragraph":     {"word\n    " + long, 1},
		"code":                      {"```python\n" + long + "\n```", 0},
		"wide code":                 {"```python\n" + wide + "\n```", 1},
		"after code":                {"```\ncode\n```\n" + long, 1},
		"characters and not bytes":  {strings.Repeat("é ", 50), 0},
		"a table's row within code": {"```\n| " + wide + "\n```", 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.Len(t, longProse("page.md", tt.text), tt.want)
		})
	}
}

func TestLongCode(t *testing.T) {
	require.Empty(t, longCode("x.go", strings.Repeat("\t", 60)+strings.Repeat("é", 60)))
	require.Equal(t, []string{"x.go:2: 121 characters, at most 120"}, longCode("x.go", "\n"+strings.Repeat("x", 121)))
}
