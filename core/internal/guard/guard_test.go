package guard

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	sentinel := errors.New("sentinel")
	tests := []struct {
		name  string
		fn    func() error
		check func(*testing.T, error)
	}{
		{"returns nil", func() error { return nil }, func(t *testing.T, err error) { require.NoError(t, err) }},
		{"returns the error", func() error { return sentinel }, func(t *testing.T, err error) {
			require.Same(t, sentinel, err)
		}},
		{"panic with a value", func() error { panic("broken") }, func(t *testing.T, err error) {
			var p *PanicError
			require.ErrorAs(t, err, &p)
			require.Equal(t, "broken", p.Value)
			require.Contains(t, string(p.Stack), "TestRun")
			require.EqualError(t, err, "guard: recovered panic: broken")
			require.NoError(t, errors.Unwrap(p))
		}},
		{"panic with an error", func() error { panic(sentinel) }, func(t *testing.T, err error) {
			require.ErrorIs(t, err, sentinel)
		}},
		{"runtime error", func() error { var s []int; i := 3; s[i] = 1; return nil }, func(t *testing.T, err error) {
			var re runtime.Error
			require.ErrorAs(t, err, &re)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.check(t, Run(tt.fn)) })
	}
}

func TestGoReportsPanic(t *testing.T) {
	got := make(chan *PanicError, 1)
	Go(func() { panic("broken") }, func(e *PanicError) { got <- e })
	p := <-got
	require.Equal(t, "broken", p.Value)
	require.Contains(t, string(p.Stack), "TestGoReportsPanic")
}

func TestGoRunsDeferredCallsBeforeOnPanic(t *testing.T) {
	order := make(chan string, 2)
	Go(func() {
		defer func() { order <- "deferred" }()
		panic("broken")
	}, func(*PanicError) { order <- "onPanic" })
	require.Equal(t, "deferred", <-order)
	require.Equal(t, "onPanic", <-order)
}

func TestGoWithoutPanicStaysSilent(t *testing.T) {
	done := make(chan struct{})
	Go(func() { close(done) }, func(e *PanicError) { t.Errorf("unexpected %v", e) })
	<-done
}
