package ssd

import "unsafe"

// KernelStub stands between the io_uring engine and the kernel in tests: each function that is not nil may refuse a
// call.
type KernelStub struct {
	Setup    func(flags uint32) error
	Enter    func() error
	Register func() error
	Features uint32 // bits to take away from what the kernel offers
}

const (
	ModeDeferred  = setupSingleIssuer | setupDeferTaskrun
	ModeCoop      = setupCoopTaskrun
	RegisterAfter = registerAfter
)

func (k *KernelStub) setup(entries uint32, params *ringParams) (int, error) {
	if k.Setup != nil {
		if err := k.Setup(params.flags); err != nil {
			return -1, err
		}
	}
	fd, err := linux{}.setup(entries, params)
	params.features &^= k.Features
	return fd, err
}

func (k *KernelStub) enter(fd int, submit, wait uint32) (int, error) {
	if k.Enter != nil {
		if err := k.Enter(); err != nil {
			return 0, err
		}
	}
	return linux{}.enter(fd, submit, wait)
}

func (k *KernelStub) register(fd int, op uint32, args unsafe.Pointer, n uint32) error {
	if k.Register != nil {
		if err := k.Register(); err != nil {
			return err
		}
	}
	return linux{}.register(fd, op, args, n)
}
