//go:build !cuda

package gpu

// Probe returns the number of devices and the version of the driver's API.
func Probe() (devices, version int, err error) { return 0, 0, ErrUnavailable }

// Memory returns what is free on a device and all it has, in bytes.
func Memory(int) (free, total int64, err error) { return 0, 0, ErrUnavailable }

// In calls fn with a device's primary context as the thread's current one.
func In(int, func() error) error { return ErrUnavailable }

// Queue queues launches on a stream of a device, one after the other.
func Queue(device int, image []byte, stream uintptr, launches []Launch) error { return ErrUnavailable }
