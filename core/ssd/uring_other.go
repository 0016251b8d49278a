//go:build !linux

package ssd

import "errors"

// kernel stands for the system calls of io_uring, which this system lacks.
type kernel any

func system() kernel { return nil }

func (e *Engine) startRing(kernel) error { return errors.New("io_uring is part of Linux alone") }

func (e *Engine) openWriteRing(File, int) writeRing { return nil }
