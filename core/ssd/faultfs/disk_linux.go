package faultfs

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Disk is a file system of its own in an image, which can lose its power.
type Disk struct {
	testing.TB
	image string
	dir   string // where it is mounted
	homes int
}

// making gives the command and the size of each kind of file system.
var making = map[string]struct {
	bytes   int64
	command []string
}{
	"ext4": {64 << 20, []string{"mkfs.ext4", "-q", "-F"}},
	"xfs":  {320 << 20, []string{"mkfs.xfs", "-q", "-f", "-K"}}, // it makes none below 300 MiB
}

// DiskKinds returns the kinds of file system that NewDisk makes.
func DiskKinds() []string { return slices.Sorted(maps.Keys(making)) }

// NewDisk makes and mounts a file system. It skips the test where that is not possible.
func NewDisk(t testing.TB, kind string) *Disk {
	t.Helper()
	home := t.TempDir()
	d := &Disk{TB: t, image: filepath.Join(home, "image"), dir: filepath.Join(home, "mounted")}
	must(t, os.WriteFile(d.image, nil, 0o600))
	must(t, os.Truncate(d.image, making[kind].bytes))
	must(t, os.Mkdir(d.dir, 0o700))
	for _, command := range [][]string{append(making[kind].command, d.image), {"mount", "-o", "loop", d.image, d.dir}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("a file system in an image cannot be made here: %v: %v: %s", command, err, out)
		}
	}
	t.Cleanup(func() { _ = exec.Command("umount", d.dir).Run() })
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Home makes an empty directory on the disk, in the place of the one before.
func (d *Disk) Home() string {
	d.Helper()
	must(d, os.RemoveAll(filepath.Join(d.dir, fmt.Sprint(d.homes))))
	d.homes++
	home := filepath.Join(d.dir, fmt.Sprint(d.homes))
	must(d, os.Mkdir(home, 0o700))
	return home
}

// Sync makes what is on the disk durable.
func (d *Disk) Sync() {
	root, err := os.Open(d.dir)
	must(d, err)
	defer root.Close()
	must(d, unix.Syncfs(int(root.Fd())))
}

// shutdown is EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN: the disk takes nothing any more.
const shutdown = 0x8004587d

// Loss is a way in which power goes.
type Loss uint32

// Power goes with what the journal of the file system has by then, or with what it has written out already.
const (
	JournalFlushed Loss = 1
	JournalLost    Loss = 2
)

// LosePower lets the disk take nothing any more.
func (d *Disk) LosePower(how Loss) {
	root, err := os.Open(d.dir)
	must(d, err)
	defer root.Close()
	// the kernel reads four bytes there during the call
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, root.Fd(), shutdown, uintptr(unsafe.Pointer(&how)))
	if errno != 0 {
		d.Fatalf("shutting the file system down: %v", errno)
	}
}

// Again mounts the file system after the loss, as the next start does.
func (d *Disk) Again() {
	d.Helper()
	d.run("umount", d.dir)
	// A process that began a mount namespace of its own meanwhile has a copy of the mount. While it lives, so does the
	// file system without power, and to mount the image again would give that one, which answers EIO.
	for until := time.Now().Add(time.Minute); d.attached(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			d.Fatalf("another process still has %s mounted, in a mount namespace of its own", d.image)
		}
	}
	d.run("mount", "-o", "loop", d.image, d.dir)
}

func (d *Disk) run(command ...string) {
	d.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		d.Fatalf("%v: %v: %s", command, err, out)
	}
}

// attached reports whether a loop device has the image.
func (d *Disk) attached() bool {
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	must(d, err)
	return slices.ContainsFunc(backing, func(name string) bool {
		path, err := os.ReadFile(name)
		return err == nil && strings.TrimSpace(string(path)) == d.image // a device may go while we look
	})
}
