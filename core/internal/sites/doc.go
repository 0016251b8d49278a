// Package sites finds the places in the source of core at which files are opened, read, written, renamed or removed:
// the calls of ssd.FS and ssd.File, which all file work goes through. Its test makes each of them fail, and fails where
// there is one that it has not reached.
//
// Tests alone use it. It reads the source, takes a second, and needs no compiler.
package sites
