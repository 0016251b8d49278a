//go:build !linux

package ssd

// KernelStub stands before no kernel: there is no io_uring here.
type KernelStub struct{}
