package lint

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommentsAreNoRiddles(t *testing.T) {
	files := 0
	walkRepository(t, func(path, text string) {
		files++
		for _, finding := range riddles(path, text) {
			t.Error(finding)
		}
	}, ".go", ".py", ".c", ".h", ".cc", ".cpp", ".cu")
	require.Greater(t, files, 700)
}

func TestRiddles(t *testing.T) {
	for _, bad := range []string{
		"// newListing is that of nodes of these types.", "\t// firsts are what was seen.", "# parts are those that fit",
		"/* The rows are where they were. */", `    """rows is how many there are."""`,
	} {
		require.Len(t, riddles("x", bad), 1, bad)
	}
	for _, good := range []string{
		"// newListing returns the rows of these types.", "x = 1  # it is what it is", "// It is the sum of those.",
		"fmt.Println(\"that is what\")",
	} {
		require.Empty(t, riddles("x", good), good)
	}
}
