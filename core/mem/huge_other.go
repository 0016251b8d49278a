//go:build !linux

package mem

// adviseHuge does nothing: this system has no such advice.
func adviseHuge([]byte) {}

// discard does nothing: what lies beyond a block that has shrunk returns with its map.
func discard([]byte) {}

// Populate does nothing: this system has no such advice.
func Populate([]byte) bool { return false }
