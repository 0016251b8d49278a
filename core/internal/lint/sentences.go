package lint

import (
	"fmt"
	"regexp"
	"strings"
)

// riddle matches a comment or a docstring that begins "x is what", "x are those of" and the like. A comment begins with
// a verb or with the noun of the field: "newSpread returns", not "newSpread is that of".
var riddle = regexp.MustCompile(
	`^\s*(?://|#|/?\*+|""")\s*[A-Za-z_.()]+(?: [a-z]+)? (?:is|are) (?:what|that|those|how|where|which|whom)\b`)

// riddles finds the comments of a source file that begin so.
func riddles(name, text string) (findings []string) {
	for i, line := range strings.Split(text, "\n") {
		if riddle.MatchString(line) {
			findings = append(findings, fmt.Sprintf("%s:%d: begin with a verb or the noun: %s", name, i+1,
				strings.TrimSpace(line)))
		}
	}
	return findings
}
