package store

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"freshgo/core/ssd"
)

// TestSpaceOfASmallFileSystem is the check on a file system that is small.
func TestSpaceOfASmallFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("a file system cannot be mounted here: %v", err)
	}
	defer func() { require.NoError(t, unix.Unmount(dir, 0)) }()
	free, err := ssd.OS.Space(dir)
	require.NoError(t, err)
	require.InDelta(t, 4<<20, free, 1<<16)
	in := Input{EdgeIndex: edgesOf([]int64{0, 1}, []int64{1, 2}), NumNodes: 1 << 20}
	path := filepath.Join(dir, "g")
	require.ErrorIs(t, Convert(context.Background(), ssd.OS, in, path, ConvertOptions{}), syscall.ENOSPC)
	in.NumNodes = 1 << 18
	require.NoError(t, Convert(context.Background(), ssd.OS, in, path, ConvertOptions{}))
}
