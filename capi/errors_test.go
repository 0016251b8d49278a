package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"freshgo/core/draw"
	"freshgo/core/loader"
	"freshgo/core/mem"
	"freshgo/core/sample"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

func TestEveryErrorHasItsCode(t *testing.T) {
	at := func(op string, err error) error {
		return &ssd.PathError{Op: op, Path: "/data/x.bin", Off: 8192, Err: err}
	}
	for _, c := range []struct {
		err  error
		want failure
	}{
		{errTimeout, failure{code: 1}},
		{errEnd, failure{code: 2}},
		{invalid("n is 3"), failure{code: 10}},
		{fmt.Errorf("%w: x", store.ErrInvalid), failure{code: 10}},
		{fmt.Errorf("%w: x", draw.ErrOption), failure{code: 10}},
		{fmt.Errorf("%w: x", sample.ErrFanout), failure{code: 10}},
		{fmt.Errorf("%w: x", sample.ErrSeed), failure{code: 10}},
		{fmt.Errorf("%w: x", ssd.ErrRefused), failure{code: 10}},
		{fmt.Errorf("%w: x", errDType), failure{code: 11}},
		{fmt.Errorf("%w: %w", store.ErrNotFound, at("open", syscall.ENOENT)),
			failure{code: 12, errno: syscall.ENOENT, path: "/data/x.bin"}},
		{at("open", syscall.ENOENT), failure{code: 12, errno: syscall.ENOENT, path: "/data/x.bin"}},
		{fmt.Errorf("%w: x", store.ErrExists), failure{code: 13}},
		{at("mkdir", syscall.EEXIST), failure{code: 13, errno: syscall.EEXIST, path: "/data/x.bin"}},
		{at("open", syscall.EACCES), failure{code: 14, errno: syscall.EACCES, path: "/data/x.bin"}},
		{at("mkdir", syscall.EROFS), failure{code: 14, errno: syscall.EROFS, path: "/data/x.bin"}},
		{at("read", syscall.EIO), failure{code: 15, errno: syscall.EIO, path: "/data/x.bin"}},
		{syscall.EMFILE, failure{code: 15, errno: syscall.EMFILE}},
		{at("write", syscall.ENOSPC), failure{code: 16, errno: syscall.ENOSPC, path: "/data/x.bin"}},
		{at("sync", syscall.EIO), failure{code: 16, errno: syscall.EIO, path: "/data/x.bin"}},
		{fmt.Errorf("%w: x", store.ErrFormat), failure{code: 17}},
		{fmt.Errorf("%w: x", store.ErrVersion), failure{code: 18}},
		{&store.CorruptError{Path: "/data/y.bin", Off: 4096, Reason: "x"}, failure{code: 19, path: "/data/y.bin"}},
		{at("read", io.ErrUnexpectedEOF), failure{code: 19, path: "/data/x.bin"}},
		{&mem.BudgetError{Purpose: mem.Batch, Need: 70, Free: 30, Limit: 50}, failure{code: 20, minimum: 90}},
		{syscall.ENOMEM, failure{code: 20, errno: syscall.ENOMEM}},
		{errClosed, failure{code: 21}},
		{loader.ErrClosed, failure{code: 21}},
		{loader.ErrNoEpoch, failure{code: 21}},
		{store.ErrClosed, failure{code: 21}},
		{store.ErrReplaced, failure{code: 21}},
		{fmt.Errorf("%w: x", store.ErrBusy), failure{code: 22}},
		{fmt.Errorf("x: %w", context.Canceled), failure{code: 23}},
		{errors.New("nobody knows this one"), failure{code: 24}},
	} {
		for _, err := range []error{c.err, fmt.Errorf("context: %w", c.err),
			errors.Join(c.err, errors.New("cleaning up failed too"))} {
			c.want.message = err.Error()
			assert.Equal(t, &c.want, failureOf(err))
		}
	}
}

func TestTextIsCutAtACharacter(t *testing.T) {
	for _, text := range []string{"", "plain", "größe", "日本語のパス", "🐘🐘🐘", strings.Repeat("é", 600)} {
		for n := 1; n < 20; n++ {
			out := []byte(strings.Repeat("?", n+1))
			writeText(out[:n], text)
			assert.Equal(t, byte('?'), out[n], "wrote past the end")
			got, _, ended := strings.Cut(string(out[:n]), "\x00")
			assert.True(t, ended)
			assert.True(t, utf8.ValidString(got), "%q cut to %q", text, got)
			assert.True(t, strings.HasPrefix(text, got))
			assert.True(t, len(text) == len(got) || len(got) > n-1-utf8.UTFMax, "%q cut to %q in %d bytes", text, got, n)
		}
	}
}

func TestBytesOfPathsStay(t *testing.T) {
	out := make([]byte, 20)
	writeText(out, "/data/\xff\xfe.bin")
	assert.Equal(t, "/data/\xff\xfe.bin\x00", string(out[:len("/data/xx.bin")+1]))
}

func TestPanicPoisonsOnceAndForAll(t *testing.T) {
	t.Cleanup(func() { poison.Store(nil) })
	assert.False(t, notePanic(errors.New("an error is no panic")))
	assert.Nil(t, poison.Load())

	first := recovered(func() error { panic("the first") })
	assert.True(t, notePanic(fmt.Errorf("wrapped: %w", first)))
	assert.True(t, notePanic(recovered(func() error { panic("the second") })))
	f := poison.Load()
	assert.EqualValues(t, 24, f.code)
	assert.Contains(t, f.message, "the first")
	assert.NotContains(t, f.message, "the second")
	assert.Contains(t, f.message, "errors_test.go", "says where")
}

func TestRecoveredReturnsTheError(t *testing.T) {
	assert.ErrorIs(t, recovered(func() error { return io.EOF }), io.EOF)
	assert.NoError(t, recovered(func() error { return nil }))
}
