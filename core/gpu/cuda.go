//go:build cuda

package gpu

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"gorgonia.org/cu"
)

// A device that has been used. Its context and its module stay until the process ends: PyTorch holds the same context
// as long, and the order in which libraries are taken down at exit is nobody's to choose.
type device struct {
	handle  cu.Device
	context cu.CUContext

	loading   sync.Mutex // held while the module is loaded, once, and functions are looked up
	module    *cu.Module
	functions map[string]cu.Function
}

var (
	opening sync.Mutex // guards devices
	devices = map[int]*device{}
)

// What the kernels are compiled for (Makefile): sm_80 and later, by an nvcc whose machine code and PTX an older driver
// refuses.
const (
	leastDriver     = 13000
	leastCapability = 80
)

// Probe returns the number of devices and the version of the driver's API.
func Probe() (count, version int, err error) {
	count, err = cu.NumDevices()
	if err != nil {
		return 0, 0, driverError("counting devices", err)
	}
	return count, cu.Version(), nil
}

// Memory returns what is free on a device and all it has, in bytes.
func Memory(ordinal int) (free, total int64, err error) {
	err = In(ordinal, func() error {
		free, total, err = cu.MemInfo()
		if err != nil {
			return driverError("asking for memory", err)
		}
		return nil
	})
	return free, total, err
}

// In calls fn with a device's primary context as the thread's current one.
func In(ordinal int, fn func() error) error {
	d, err := open(ordinal)
	if err != nil {
		return err
	}
	return d.in(fn)
}

// Queue queues launches on a stream of a device, one after the other. `image` holds the kernels, as nvcc wrote them;
// the first one that is given for a device counts.
func Queue(ordinal int, image []byte, stream uintptr, launches []Launch) error {
	if len(launches) == 0 {
		return nil
	}
	d, err := open(ordinal)
	if err != nil {
		return err
	}
	return d.in(func() error {
		for i := range launches {
			f, err := d.function(image, launches[i].Kernel)
			if err != nil {
				return err
			}
			if err := launches[i].queue(f, stream); err != nil {
				return err
			}
		}
		return nil
	})
}

func open(ordinal int) (*device, error) {
	opening.Lock()
	defer opening.Unlock()
	if d := devices[ordinal]; d != nil {
		return d, nil
	}
	count, err := cu.NumDevices()
	if err != nil {
		return nil, driverError("counting devices", err)
	}
	if ordinal < 0 || ordinal >= count {
		return nil, fmt.Errorf("%w: device is %d, expected one of the %d devices, from 0 on", ErrDevice, ordinal, count)
	}
	d := &device{functions: map[string]cu.Function{}}
	if d.handle, err = cu.GetDevice(ordinal); err != nil {
		return nil, driverError("opening a device", err)
	}
	if err = suits(ordinal, d.handle); err != nil {
		return nil, err
	}
	if d.context, err = d.handle.RetainPrimaryCtx(); err != nil {
		return nil, driverError("retaining a primary context", err)
	}
	devices[ordinal] = d
	return d, nil
}

// suits returns an error if the kernels cannot run on a device, with the remedy.
func suits(ordinal int, handle cu.Device) error {
	if version := cu.Version(); version < leastDriver {
		return fmt.Errorf("%w: it supports CUDA %d.%d and the kernels need %d.0: install driver 580 or newer, or keep the "+
			"operators' tensors on the CPU", ErrDriver, version/1000, version%1000/10, leastDriver/1000)
	}
	major, err := handle.Attribute(cu.ComputeCapabilityMajor)
	if err != nil {
		return driverError("asking for the compute capability", err)
	}
	minor, err := handle.Attribute(cu.ComputeCapabilityMinor)
	if err != nil {
		return driverError("asking for the compute capability", err)
	}
	if 10*major+minor < leastCapability {
		return fmt.Errorf("%w: device %d has compute capability %d.%d and the kernels need %d.%d: choose another device, "+
			"or keep the operators' tensors on the CPU", ErrUnsuited, ordinal, major, minor, leastCapability/10,
			leastCapability%10)
	}
	return nil
}

// in calls fn on one thread, with the device's context as the current one.
func (d *device) in(fn func() error) error {
	runtime.LockOSThread() // the current context belongs to the thread
	defer runtime.UnlockOSThread()
	if err := cu.PushCurrentCtx(d.context); err != nil {
		return driverError("entering a context", err)
	}
	err := fn()
	if _, failed := cu.PopCurrentCtx(); failed != nil && err == nil {
		err = driverError("leaving a context", failed)
	}
	return err
}

// function returns a kernel of the module, which is loaded if need be. The context is current.
func (d *device) function(image []byte, name string) (cu.Function, error) {
	d.loading.Lock()
	defer d.loading.Unlock()
	if f, known := d.functions[name]; known {
		return f, nil
	}
	if d.module == nil {
		m, err := cu.LoadData(string(image))
		if err != nil {
			return cu.Function{}, driverError("loading the kernels", err)
		}
		d.module = &m
	}
	f, err := d.module.Function(name)
	if err != nil {
		return f, driverError("looking up "+name, err)
	}
	d.functions[name] = f
	return f, nil
}

func (l *Launch) queue(f cu.Function, stream uintptr) error {
	// cu copies a word for each pointer, side by side. The driver knows that the kernel has one parameter and reads as
	// many bytes as that has from where the first pointer points to: the copy of the words.
	words := make([]unsafe.Pointer, len(l.Words))
	for i := range words {
		words[i] = unsafe.Pointer(&l.Words[i]) // 8 bytes, which cu reads before it returns
	}
	// A cu.Stream is a struct around the handle, and cu has no function that makes one from a number.
	s := *(*cu.Stream)(unsafe.Pointer(&stream))
	if err := f.Launch(l.Blocks, 1, 1, l.Threads, 1, 1, l.SharedBytes, s, words); err != nil {
		return driverError("launching "+l.Kernel, err)
	}
	return nil
}

func driverError(doing string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrDriver, doing, err)
}
