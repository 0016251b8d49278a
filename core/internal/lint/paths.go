package lint

import (
	"regexp"
	"strings"
)

var (
	quoted = regexp.MustCompile("`([^`\n ]+/[^`\n ]*)`")
	braces = regexp.MustCompile(`^([^{]*)\{(.*?)\}(.*)$`)
)

// namedPaths finds the files and directories of the repository that a page names in quotes, as patterns from the root:
// what begins with one of its directories, or with a private room of the Python package.
func namedPaths(text string, directories []string) (patterns []string) {
	for _, match := range quoted.FindAllStringSubmatch(text, -1) {
		name := match[1]
		if strings.HasPrefix(name, "_") {
			name = "python/freshgo/" + name
		}
		first, _, _ := strings.Cut(name, "/")
		for _, directory := range directories {
			if first == directory {
				patterns = append(patterns, alternatives(name)...)
			}
		}
	}
	return patterns
}

// alternatives returns the paths that braces abbreviate, as in a shell: "a/{b,c}.go" is "a/b.go" and "a/c.go".
func alternatives(name string) (names []string) {
	parts := braces.FindStringSubmatch(name)
	if parts == nil {
		return []string{name}
	}
	for _, choice := range strings.Split(parts[2], ",") {
		names = append(names, alternatives(parts[1]+choice+parts[3])...)
	}
	return names
}
