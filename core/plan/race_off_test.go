//go:build !race

package plan

// underRace reports whether the race detector is on.
const underRace = false
