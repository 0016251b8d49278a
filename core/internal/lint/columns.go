package lint

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Lines longer than these are hard to read beside each other. A tab counts as one character.
const (
	proseColumns = 100
	codeColumns  = 120
)

// longCode finds the lines of a source file that are too long.
func longCode(name, text string) (findings []string) {
	for i, line := range strings.Split(text, "\n") {
		if n := utf8.RuneCountInString(line); n > codeColumns {
			findings = append(findings, fmt.Sprintf("%s:%d: %d characters, at most %d", name, i+1, n, codeColumns))
		}
	}
	return findings
}

// longProse finds the lines of a Markdown file that are too long. Tables and indented code have no limit, fenced code
// has that of code, and a line that holds a single word, such as a link, cannot be shorter.
func longProse(name, text string) (findings []string) {
	fenced, indented, blank := false, false, true
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			fenced = !fenced
		}
		indented = !fenced && strings.HasPrefix(line, "    ") && (indented || blank)
		blank = trimmed == ""
		limit := proseColumns
		if fenced {
			limit = codeColumns
		}
		n := utf8.RuneCountInString(line)
		exempt := !fenced && (indented || strings.HasPrefix(trimmed, "|") || singleWord(trimmed))
		if n > limit && !exempt {
			findings = append(findings, fmt.Sprintf("%s:%d: %d characters, at most %d", name, i+1, n, limit))
		}
	}
	return findings
}

// singleWord reports whether a line cannot be broken: apart from a list marker it has only one word.
func singleWord(trimmed string) bool {
	return !strings.Contains(strings.TrimPrefix(trimmed, "- "), " ")
}
