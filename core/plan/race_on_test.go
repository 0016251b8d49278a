//go:build race

package plan

// underRace says whether the race detector is on.
const underRace = true
