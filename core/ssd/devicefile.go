package ssd

import (
	"encoding/json"
	"fmt"
	"math"
	"syscall"
)

const (
	deviceVersion = 3        // of the file; other versions are ignored
	maxDeviceFile = 64 << 10 // bytes; a file has a few hundred per key
	maxDevices    = 16       // keys kept in a file
)

// deviceFile is the content of a file of calibrations, the latest last.
type deviceFile struct {
	Version int           `json:"version"`
	Devices []savedDevice `json:"devices"`
}

type savedDevice struct {
	Key    string `json:"key"`
	Device Device `json:"device"`
}

// DeviceKey returns the key of a calibration: the store, its current device, and the engine.
func (e *Engine) DeviceKey(store string, h *Handle) (string, error) {
	info, err := e.fs.Stat(h.Name())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("store %s device %d engine %s depth %d slot %d", store, info.Device, e.name, e.depth, e.slot), nil
}

// LoadDevice returns the calibration saved under key in the file at path. It returns false if there is no usable one,
// for any reason: calibrating again costs a second and is always right.
func LoadDevice(fs FS, path, key string) (Device, bool) {
	for _, saved := range readDevices(fs, path) {
		if saved.Key == key {
			return saved.Device, saved.Device.valid()
		}
	}
	return Device{}, false
}

// ForgetDevice discards the calibration under key, which proved wrong.
func ForgetDevice(fs FS, path, key string) bool { return SaveDevice(fs, path, key, Device{}) }

func readDevices(fs FS, path string) []savedDevice {
	file, err := fs.Open(path, syscall.O_RDONLY, 0)
	if err != nil {
		return nil
	}
	defer file.Close() // nothing was written
	size, err := file.Size()
	if err != nil || size > maxDeviceFile {
		return nil
	}
	data := make([]byte, size)
	var contents deviceFile
	if ReadFull(file, data, 0) != nil || json.Unmarshal(data, &contents) != nil || contents.Version != deviceVersion {
		return nil
	}
	return contents.Devices
}

// SaveDevice saves a calibration under key in the file at path, and keeps those of other keys. It replaces the file by
// renaming, so readers see the old or the new one. It reports whether it succeeded: an unsaved calibration is repeated.
// Of two concurrent saves, one may be lost.
func SaveDevice(fs FS, path, key string, d Device) bool {
	contents := deviceFile{Version: deviceVersion}
	for _, saved := range readDevices(fs, path) {
		if saved.Key != key {
			contents.Devices = append(contents.Devices, saved)
		}
	}
	contents.Devices = append(contents.Devices, savedDevice{key, d})
	contents.Devices = contents.Devices[max(len(contents.Devices)-maxDevices, 0):]
	data, err := json.MarshalIndent(contents, "", " ")
	if err != nil {
		return false // infinite figures
	}
	// The name is fixed, so that killed processes leave at most one file, which the next one overwrites.
	partial := path + ".partial"
	file, err := fs.Open(partial, syscall.O_WRONLY|syscall.O_CREAT, 0o644)
	if err != nil {
		return false
	}
	held, err := writeLocked(file, data)
	if held && err == nil {
		err = fs.Rename(partial, path)
	}
	if err != nil {
		// The next save may fail before it overwrites the file. If the lock failed, this may be another process's file, whose
		// save is then lost.
		_ = fs.Remove(partial)
	}
	return file.Close() == nil && held && err == nil
}

// writeLocked writes data as the whole content of file, unless another process holds the lock for that.
func writeLocked(file File, data []byte) (held bool, err error) {
	if held, err = file.Lock(true); err != nil || !held {
		return false, err
	}
	if err = file.Truncate(0); err != nil {
		return true, err
	}
	return true, WriteFull(file, data, 0)
}

// valid reports whether the figures are usable.
func (d Device) valid() bool {
	for _, v := range []float64{d.PageSeconds, d.ReadBytesPerSecond, d.WriteBytesPerSecond} {
		if !(v > 0) || math.IsInf(v, 0) {
			return false
		}
	}
	return d.RequestSeconds >= 0 && !math.IsInf(d.RequestSeconds, 0)
}
