package ssd

import (
	"encoding/json"
	"fmt"
	"math"
	"syscall"
)

const (
	deviceVersion = 3        // of the file; another is not read
	maxDeviceFile = 64 << 10 // bytes; a file of ours has a few hundred for each key
	maxDevices    = 16       // keys kept in a file
)

// deviceFile is the contents of a file of calibrations, the latest last.
type deviceFile struct {
	Version int           `json:"version"`
	Devices []savedDevice `json:"devices"`
}

type savedDevice struct {
	Key    string `json:"key"`
	Device Device `json:"device"`
}

// DeviceKey names what a calibration depends on: the store, the device that holds it at the moment, and the engine.
func (e *Engine) DeviceKey(store string, h *Handle) (string, error) {
	info, err := e.fs.Stat(h.Name())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("store %s device %d engine %s depth %d slot %d", store, info.Device, e.name, e.depth, e.slot), nil
}

// LoadDevice returns the calibration saved under key in the file at path. It returns false when there is none that can
// be used, whatever the reason: calibrating again costs a second and is always right.
func LoadDevice(fs FS, path, key string) (Device, bool) {
	for _, saved := range readDevices(fs, path) {
		if saved.Key == key {
			return saved.Device, saved.Device.valid()
		}
	}
	return Device{}, false
}

// ForgetDevice makes LoadDevice find nothing under key, because what was saved proved wrong.
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

// SaveDevice saves a calibration under key in the file at path, beside those of other keys. It replaces the file by
// renaming, so that readers see the old or the new one. It reports whether it did: what is not saved is measured again.
// When two save at once one may lose.
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
	// The name is fixed, so that a process killed here leaves one file at most, which the next one writes over.
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
		// The next one may have nothing to write over it. Where the lock failed it may be that of another, who then
		// loses.
		_ = fs.Remove(partial)
	}
	return file.Close() == nil && held && err == nil
}

// writeLocked writes data as the whole of file, unless somebody else is doing so, who then holds the lock.
func writeLocked(file File, data []byte) (held bool, err error) {
	if held, err = file.Lock(true); err != nil || !held {
		return false, err
	}
	if err = file.Truncate(0); err != nil {
		return true, err
	}
	return true, WriteFull(file, data, 0)
}

// valid reports whether the figures can be calculated with.
func (d Device) valid() bool {
	for _, v := range []float64{d.PageSeconds, d.ReadBytesPerSecond, d.WriteBytesPerSecond} {
		if !(v > 0) || math.IsInf(v, 0) {
			return false
		}
	}
	return d.RequestSeconds >= 0 && !math.IsInf(d.RequestSeconds, 0)
}
