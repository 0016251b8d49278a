package cache

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"freshgo/core/mem"
)

// Slots get their memory, whatever is written to them meanwhile stays, and Close does not wait for the rest.
func TestPopulate(t *testing.T) {
	const capacity, width = 1 << 15, 512
	open := func() (*Rows, *mem.Budget) {
		budget := mem.NewBudget(0)
		c, err := NewRows(budget, capacity, []int{width})
		require.NoError(t, err)
		c.Populate()
		return c, budget
	}
	c, budget := open()
	for slot := int64(0); slot < capacity; slot += 7 {
		c.Row(0, slot)[slot%width] = byte(slot) | 1
	}
	<-c.populated
	for slot := int64(0); slot < capacity; slot++ {
		for i, b := range c.Row(0, slot) {
			if slot%7 == 0 && int64(i) == slot%width {
				require.Equal(t, byte(slot)|1, b)
			} else if b != 0 {
				require.Zero(t, b)
			}
		}
	}
	c.Close()
	require.Zero(t, budget.Used())

	c, budget = open()
	c.Close()
	require.Zero(t, budget.Used())

	c, _ = open()
	defer c.Close()
	<-c.populated
	if !mem.Populate(c.Row(0, 0)[:0]) {
		t.Skip("this system has no such advice")
	}
	table := c.Table(0)
	resident := make([]byte, len(table)/unix.Getpagesize())
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(table))),
		uintptr(len(table)), uintptr(unsafe.Pointer(unsafe.SliceData(resident))))
	require.Zero(t, errno)
	require.NotContains(t, resident, byte(0), "a page has no memory")
}
