package ssd_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/ssd/faultfs"
)

func requireUsable(t *testing.T, d ssd.Device) {
	t.Helper()
	for _, v := range []float64{d.RequestSeconds, d.PageSeconds, d.ReadBytesPerSecond, d.WriteBytesPerSecond,
		d.RequestProcessor, d.PageProcessor, d.WriteProcessor, d.WriteBeside} {
		require.False(t, math.IsNaN(v) || math.IsInf(v, 0) || v < 0, "%+v", d)
	}
	require.Positive(t, d.PageSeconds)
	require.Positive(t, d.PageProcessor)
	require.Positive(t, d.WriteProcessor)
	require.Positive(t, d.ReadBytesPerSecond)
	require.Positive(t, d.WriteBytesPerSecond)
	require.LessOrEqual(t, d.WriteBeside, 7./8)
	require.InEpsilon(t, (1-d.WriteBeside)*1e6/d.WriteBytesPerSecond, d.WriteSeconds(1e6), 1e-9)
}

// Files of any size will do, down to one of a few bytes.
func TestCalibrate(t *testing.T) {
	for _, kind := range kinds {
		for _, size := range []int{8, ssd.PageBytes, 3*ssd.PageBytes + 8, 20 * ssd.PageBytes, 4 << 20} {
			r := newRig(t, ssd.Options{Kind: kind, Depth: 16}, size)
			d, err := ssd.Calibrate(context.Background(), r.engine, r.handle, ssd.Calibration{
				WriteDir: t.TempDir(), Budget: r.budget, Limit: 50 * time.Millisecond,
			})
			require.NoError(t, err)
			requireUsable(t, d)
			require.Empty(t, d.WriteAssumed)
			require.Equal(t, string(kind), d.Engine)
			require.Equal(t, 16, d.Depth)
			require.InDelta(t, 10*d.RequestSeconds+30*d.PageSeconds, d.Seconds(10, 30), 1e-12)
			r.Close()
		}
	}
}

// Where nothing can be written the rate is assumed, and the reason is told.
func TestCalibrateWithoutWriting(t *testing.T) {
	for want, c := range map[string]struct {
		dir   string
		limit int64
		fault faultfs.Fault
	}{
		"no directory":            {},
		"no such file":            {dir: filepath.Join(t.TempDir(), "none")},
		"read-only file system":   {dir: t.TempDir(), fault: faultfs.Fault{Op: faultfs.Open, Errno: syscall.EROFS}},
		"no space left on device": {dir: t.TempDir(), fault: faultfs.Fault{Op: faultfs.Allocate, Errno: syscall.ENOSPC}},
		"input/output error":      {dir: t.TempDir(), fault: faultfs.Fault{Op: faultfs.Write, Errno: syscall.EIO}},
		"memory budget exceeded":  {dir: t.TempDir(), limit: ssd.DefaultSlotBytes / 2},
	} {
		t.Run(want, func(t *testing.T) {
			r := newRig(t, ssd.Options{Kind: kinds[0], Depth: 8}, 1<<20)
			defer r.Close()
			if c.fault.Op != "" {
				c.fault.Nth, c.fault.Path, c.fault.Times = 2, ssd.TempPrefix+"*", faultfs.Forever
				if c.fault.Op != faultfs.Write { // the first write is the trial
					c.fault.Nth = 1
				}
				r.fs.Arm(c.fault)
			}
			budget := mem.NewBudget(c.limit)
			d, err := ssd.Calibrate(context.Background(), r.engine, r.handle,
				ssd.Calibration{WriteDir: c.dir, Budget: budget, Limit: 20 * time.Millisecond})
			require.NoError(t, err)
			requireUsable(t, d)
			require.Contains(t, d.WriteAssumed, want)
			require.Equal(t, d.ReadBytesPerSecond, d.WriteBytesPerSecond)
			require.Zero(t, budget.Used())
		})
	}
}

func TestCalibrateFailsWhereReadingDoes(t *testing.T) {
	r := newRig(t, ssd.Options{Kind: kinds[0], Depth: 8}, 1<<20)
	defer r.Close()
	c := ssd.Calibration{WriteDir: t.TempDir(), Budget: r.budget, Limit: time.Second}
	for _, nth := range []int{1, 30} {
		r.fs.Arm(faultfs.Fault{
			Op: faultfs.Read, Nth: nth, Times: faultfs.Forever, Errno: syscall.EIO, Path: filepath.Base(r.path),
		})
		_, err := ssd.Calibrate(context.Background(), r.engine, r.handle, c)
		require.ErrorIs(t, err, syscall.EIO)
		r.fs.Clear()
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.fs.Arm(faultfs.Fault{Op: faultfs.Read, Nth: 30, Hook: cancel, Short: 1 << 20})
	_, err := ssd.Calibrate(ctx, r.engine, r.handle, c)
	require.ErrorIs(t, err, context.Canceled)
	ctx, cancel = context.WithCancel(context.Background())
	r.fs.Arm(faultfs.Fault{Op: faultfs.Write, Nth: 3, Hook: cancel, Short: 1 << 20})
	_, err = ssd.Calibrate(ctx, r.engine, r.handle, c)
	require.ErrorIs(t, err, context.Canceled)
}

func TestFit(t *testing.T) {
	for name, c := range map[string]struct {
		pages         []int64
		seconds       []float64
		request, page float64
	}{
		"a line":            {[]int64{1, 4, 16}, []float64{12e-6, 18e-6, 42e-6}, 10e-6, 2e-6},
		"two points":        {[]int64{1, 2, 2}, []float64{12e-6, 14e-6, 14e-6}, 10e-6, 2e-6},
		"only bytes count":  {[]int64{1, 4, 16}, []float64{2e-6, 8e-6, 32e-6}, 0, 2e-6},
		"never negative":    {[]int64{1, 4, 16}, []float64{1e-6, 8e-6, 40e-6}, 0, 1.3475e-6},
		"pages cost little": {[]int64{1, 4, 16}, []float64{20e-6, 10e-6, 10e-6}, 11.111e-6, ssd.FastestPage},
		"one length":        {[]int64{1, 1, 1}, []float64{10e-6, 10e-6, 10e-6}, 10e-6, ssd.FastestPage},
	} {
		request, page := ssd.Fit(c.pages, c.seconds)
		require.InDelta(t, c.request, request, 2e-9, name)
		require.InDelta(t, c.page, page, 2e-9, name)
		require.GreaterOrEqual(t, request, 0.0, name)
		require.GreaterOrEqual(t, page, ssd.FastestPage, name)
	}
}

var someDevice = ssd.Device{RequestSeconds: 1e-5, PageSeconds: 2e-6, ReadBytesPerSecond: 1e9, WriteBytesPerSecond: 5e8,
	Engine: "io_uring", Depth: 128}

func TestSavedDevices(t *testing.T) {
	fs := faultfs.New(ssd.OS)
	path := filepath.Join(t.TempDir(), "device.json")
	_, found := ssd.LoadDevice(fs, path, "a")
	require.False(t, found)
	other := someDevice
	other.RequestSeconds, other.WriteAssumed = 0, "the disk is full"
	require.True(t, ssd.SaveDevice(fs, path, "a", someDevice))
	require.True(t, ssd.SaveDevice(fs, path, "b", other))
	for key, want := range map[string]ssd.Device{"a": someDevice, "b": other} {
		got, found := ssd.LoadDevice(fs, path, key)
		require.True(t, found)
		require.Equal(t, want, got)
	}
	_, found = ssd.LoadDevice(fs, path, "c")
	require.False(t, found)
	require.True(t, ssd.SaveDevice(fs, path, "a", other))
	got, _ := ssd.LoadDevice(fs, path, "a")
	require.Equal(t, other, got)
	for i := range 20 {
		require.True(t, ssd.SaveDevice(fs, path, strings.Repeat("x", i), someDevice))
	}
	_, found = ssd.LoadDevice(fs, path, "a")
	require.False(t, found, "the oldest goes")
	_, found = ssd.LoadDevice(fs, path, "x")
	require.False(t, found)
	_, found = ssd.LoadDevice(fs, path, "xxxx")
	require.True(t, found)
	require.NoFileExists(t, path+".partial")
	require.Zero(t, fs.OpenFiles())
}

// What cannot be read or makes no sense is not there, and is replaced.
func TestUnusableSavedDevices(t *testing.T) {
	path := filepath.Join(t.TempDir(), "device.json")
	require.True(t, ssd.SaveDevice(ssd.OS, path, "a", someDevice))
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	for name, data := range map[string]string{
		"empty": "", "no JSON": "\x00\x01", "cut": string(good[:len(good)/2]),
		"another version": strings.Replace(string(good), `"version": 3`, `"version": 2`, 1),
		"zero":            strings.Replace(string(good), "0.00001,", "-1,", 1),
		"no page":         strings.Replace(string(good), "0.000002", "0", 1),
		"huge":            string(good) + strings.Repeat(" ", 100_000), "a number": "1",
		"no rate": strings.Replace(string(good), "1000000000", "0", 1),
	} {
		require.NotEqual(t, string(good), data, name)
		require.NoError(t, os.WriteFile(path, []byte(data), 0o600))
		_, found := ssd.LoadDevice(ssd.OS, path, "a")
		require.False(t, found, name)
		require.True(t, ssd.SaveDevice(ssd.OS, path, "a", someDevice), name)
		got, found := ssd.LoadDevice(ssd.OS, path, "a")
		require.True(t, found, name)
		require.Equal(t, someDevice, got)
	}
	bad := someDevice
	bad.PageSeconds = math.NaN()
	require.False(t, ssd.SaveDevice(ssd.OS, path, "a", bad))
}

// A file that cannot be written, or not wholly, leaves the old one as it is.
func TestSavedDevicesOnABadDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "device.json")
	require.True(t, ssd.SaveDevice(ssd.OS, path, "a", someDevice))
	other := someDevice
	other.Depth = 3
	for nth := 1; ; nth++ {
		fs := faultfs.New(ssd.OS, faultfs.Fault{Op: faultfs.Any, Nth: nth, Errno: syscall.ENOSPC, Path: "*.partial"})
		saved := ssd.SaveDevice(fs, path, "a", other)
		require.Zero(t, fs.OpenFiles())
		require.NoFileExists(t, path+".partial")
		got, found := ssd.LoadDevice(ssd.OS, path, "a")
		require.True(t, found)
		if saved {
			require.Equal(t, other, got)
			require.Greater(t, nth, 5)
			break
		}
		if got == other { // renamed, and then closing failed
			require.True(t, ssd.SaveDevice(ssd.OS, path, "a", someDevice))
		} else {
			require.Equal(t, someDevice, got)
		}
	}
	require.False(t, ssd.SaveDevice(ssd.OS, filepath.Join(t.TempDir(), "none", "device.json"), "a", other))
}

func TestDeviceKey(t *testing.T) {
	r := newRig(t, ssd.Options{Kind: kinds[0], Depth: 8}, ssd.PageBytes)
	defer r.Close()
	key, err := r.engine.DeviceKey("uuid", r.handle)
	require.NoError(t, err)
	info, err := ssd.OS.Stat(r.path)
	require.NoError(t, err)
	require.Regexp(t, `^store uuid device \d+ engine `+string(kinds[0])+` depth 8 slot 65536$`, key)
	require.NotZero(t, info.Device)
	r.fs.Arm(faultfs.Fault{Op: faultfs.Stat, Nth: 1, Errno: syscall.EIO})
	_, err = r.engine.DeviceKey("uuid", r.handle)
	require.ErrorIs(t, err, syscall.EIO)
}
