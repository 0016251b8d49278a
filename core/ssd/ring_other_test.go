//go:build !linux

package ssd_test

const hasRing = false
