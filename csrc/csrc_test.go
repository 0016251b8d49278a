package csrc

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"freshgo/core/mem"
)

// The structures of the DLPack specification, written down a second time.
type (
	dlTensor struct {
		data             uintptr
		device, deviceID int32
		ndim             int32
		code, bits       uint8
		lanes            uint16
		shape, strides   *int64
		byteOffset       uint64
	}
	managedLegacy struct {
		tensor       dlTensor
		ctx, deleter uintptr
	}
	managedVersioned struct {
		major, minor uint32
		ctx, deleter uintptr
		flags        uint64
		tensor       dlTensor
	}
)

// nothingLeft asserts after a test that every buffer came back and the pool is as empty as it began.
func nothingLeft(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		live, liveBytes, pooled := Counters()
		assert.Zero(t, live)
		assert.Zero(t, liveBytes)
		assert.Zero(t, pooled)
	})
}

func withPool(t *testing.T, n int64) {
	t.Helper()
	nothingLeft(t)
	Allocator{}.GrowPool(n, 0)
	t.Cleanup(func() { Allocator{}.GrowPool(-n, 0) })
}

// TestThePoolKeepsWhatIsReservedForBuffersInUse: what those in use leave of the reserve is kept, and given up as they
// grow.
func TestThePoolKeepsWhatIsReservedForBuffersInUse(t *testing.T) {
	nothingLeft(t)
	Allocator{}.GrowPool(0, 8<<20)
	t.Cleanup(func() { Allocator{}.GrowPool(0, -8<<20) })
	one, other := acquire(t, 4<<20), acquire(t, 4<<20)
	one.Release()
	_, live, pooled := Counters()
	assert.EqualValues(t, 4<<20, live)
	assert.EqualValues(t, 4<<20, pooled, "half of the reserve is not in use")
	third := acquire(t, 2<<20)
	_, live, pooled = Counters()
	assert.EqualValues(t, 6<<20, live)
	assert.Zero(t, pooled, "a buffer of another size has taken its place")
	third.Release()
	other.Release()
	_, live, pooled = Counters()
	assert.Zero(t, live)
	assert.EqualValues(t, 6<<20, pooled)
}

func acquire(t *testing.T, n int64) *Buffer {
	t.Helper()
	b, err := Allocator{}.Acquire(n)
	require.NoError(t, err)
	return b.(*Buffer)
}

func TestBuffersAreAlignedAndWritable(t *testing.T) {
	nothingLeft(t)
	for _, n := range []int64{0, 1, 63, 64, 255, 256, 257, 320, 321, 1000, 4096, 1<<20 + 1, 2<<20 - 1, 2 << 20, 2<<20 + 1,
		5 << 20, 33<<20 + 7} {
		b := acquire(t, n)
		require.Len(t, b.Bytes(), int(n))
		_, capacity, _ := Counters()
		assert.GreaterOrEqual(t, capacity, n)
		assert.LessOrEqual(t, capacity, max(256, n+n/4), "at most a quarter is unused")

		alignment := uintptr(64)
		if capacity >= 2<<20 {
			alignment = 2 << 20
		}
		address := uintptr(unsafe.Pointer(unsafe.SliceData(b.Bytes())))
		assert.Zerof(t, address%alignment, "%d bytes at %x", n, address)
		if n > 0 {
			b.Bytes()[0], b.Bytes()[n-1] = 1, 2
		}
		b.Release()
	}
}

func TestSizeClassesAreMonotone(t *testing.T) {
	nothingLeft(t)
	last := int64(0)
	for n := int64(0); n < 1<<14; n += 13 {
		b := acquire(t, n)
		_, capacity, _ := Counters()
		require.GreaterOrEqual(t, capacity, last)
		require.Zero(t, capacity%64)
		last = capacity
		b.Release()
	}
}

func TestMoreThanThereCanBeIsAnError(t *testing.T) {
	nothingLeft(t)
	for _, n := range []int64{1<<47 - 1, 1<<47 + 1, 1 << 62} {
		_, err := Allocator{}.Acquire(n)
		require.ErrorIs(t, err, mem.ErrBudget)
		assert.ErrorContains(t, err, "no memory")
	}
	assert.Panics(t, func() { _, _ = Allocator{}.Acquire(-1) })
}

func TestReleasingTwiceIsADefect(t *testing.T) {
	nothingLeft(t)
	b := acquire(t, 10)
	b.Release()
	assert.Panics(t, b.Release)
}

func TestWithoutLimitNothingIsKept(t *testing.T) {
	nothingLeft(t)
	acquire(t, 1000).Release()
	_, _, pooled := Counters()
	assert.Zero(t, pooled)
}

// TestFreedBuffersGoBackToTheSystem frees buffers below one that stays, where malloc would keep them.
func TestFreedBuffersGoBackToTheSystem(t *testing.T) {
	nothingLeft(t)
	const size, count = 128 << 10, 256
	acquire(t, 8*size).Release() // from here on malloc serves these sizes from its own heap
	var held []*Buffer
	before := anonymous(t)
	for range count {
		b := acquire(t, size)
		for i := 0; i < size; i += 4096 {
			b.Bytes()[i] = 1
		}
		held = append(held, b)
	}
	require.Greater(t, anonymous(t)-before, int64(size*count*9/10))
	last := held[count-1]
	for _, b := range held[:count-1] {
		b.Release()
	}
	assert.Less(t, anonymous(t)-before, int64(size*count/4))
	last.Release()
}

// anonymous is the process's memory in bytes that no file backs, without what Go could give back in the meantime.
func anonymous(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(status), "RssAnon:")
	require.True(t, found)
	var kilobytes int64
	_, err = fmt.Sscan(rest, &kilobytes)
	require.NoError(t, err)
	return kilobytes << 10
}

func TestPoolGivesBuffersOfTheSameClassAgain(t *testing.T) {
	withPool(t, 16<<20)
	for _, n := range []int64{300, 5000, 3 << 20} {
		b := acquire(t, n)
		first := unsafe.SliceData(b.Bytes())
		b.Release()
		_, _, pooled := Counters()
		assert.GreaterOrEqual(t, pooled, n)
		other := acquire(t, 2*n) // of another class, so it leaves the kept one alone
		b = acquire(t, n-1)
		assert.Same(t, first, unsafe.SliceData(b.Bytes()))
		b.Release()
		other.Release()
	}
}

func TestPoolDropsTheOldestBeyondItsLimit(t *testing.T) {
	withPool(t, 4096)
	held := []*Buffer{acquire(t, 1024), acquire(t, 2048), acquire(t, 1024), acquire(t, 512)}
	for i, want := range []int64{1024, 3072, 4096, 2048 + 1024 + 512} { // the last one pushes out the first
		held[i].Release()
		_, _, pooled := Counters()
		assert.Equal(t, want, pooled, "after release %d", i)
	}
	acquire(t, 1<<20).Release() // larger than the limit: pushes out everything, itself included
	_, _, pooled := Counters()
	assert.Zero(t, pooled)
}

func TestPublicHeadersArePlainCAndStandAlone(t *testing.T) {
	compiler, err := exec.Command("go", "env", "CC").Output()
	require.NoError(t, err)
	parts, err := filepath.Glob("include/freshgo/*.h")
	require.NoError(t, err)
	require.NotEmpty(t, parts)
	for _, header := range append(parts, "include/freshgo.h") {
		command := append(strings.Fields(string(compiler)), "-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror",
			"-fsyntax-only", "-xc", header)
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	whole, err := os.ReadFile("include/freshgo.h")
	require.NoError(t, err)
	for _, part := range parts {
		assert.Contains(t, string(whole), fmt.Sprintf("#include %q", strings.TrimPrefix(part, "include/")))
	}
}

// TestPoolModel compares the pool with a list in Go under random operations.
func TestPoolModel(t *testing.T) {
	const limit = 1 << 16
	withPool(t, limit)
	random := rand.New(rand.NewPCG(1, 2))
	sizes := []int64{256, 320, 1024, 1280, 4096, 16384, 65536, 131072} // capacities of classes
	var held []*Buffer
	var pool []int64 // capacities, oldest first
	for range 20_000 {
		if len(held) > 0 && random.IntN(2) == 0 {
			i := random.IntN(len(held))
			pool = append(pool, int64(len(held[i].Bytes())))
			held[i].Release()
			held = append(held[:i], held[i+1:]...)
			for sum(pool) > limit {
				pool = pool[1:]
			}
		} else {
			n := sizes[random.IntN(len(sizes))]
			held = append(held, acquire(t, n))
			for i, have := range pool {
				if have == n {
					pool = append(pool[:i], pool[i+1:]...)
					break
				}
			}
		}
		live, _, pooled := Counters()
		require.Equal(t, sum(pool), pooled)
		require.EqualValues(t, len(held), live)
	}
	for _, b := range held {
		b.Release()
	}
}

func sum(list []int64) (n int64) {
	for _, v := range list {
		n += v
	}
	return n
}

func TestTensorFollowsTheSpecification(t *testing.T) {
	nothingLeft(t)
	for _, shape := range [][]int64{{3, 4, 5}, {7}, {}, {0, 8}} {
		for _, versioned := range []bool{false, true} {
			b := acquire(t, 480)
			tensor, err := b.Tensor("größe", DType{Code: 2, Bits: 64}, shape, versioned)
			require.NoError(t, err)

			var view dlTensor
			if versioned {
				m := (*managedVersioned)(tensor.Managed)
				assert.Equal(t, []uint32{1, 0}, []uint32{m.major, m.minor})
				assert.Zero(t, m.flags, "writable, not copied")
				assert.NotZero(t, m.deleter)
				view = m.tensor
			} else {
				m := (*managedLegacy)(tensor.Managed)
				assert.NotZero(t, m.deleter)
				view = m.tensor
			}
			assert.Equal(t, uintptr(unsafe.Pointer(unsafe.SliceData(b.Bytes()))), view.data)
			assert.Equal(t, []int32{1, 0}, []int32{view.device, view.deviceID})
			assert.Equal(t, []uint8{2, 64}, []uint8{view.code, view.bits})
			assert.EqualValues(t, 1, view.lanes)
			assert.Zero(t, view.byteOffset)
			require.EqualValues(t, len(shape), view.ndim)
			stride := int64(1)
			for i := len(shape) - 1; i >= 0; i-- {
				assert.Equal(t, shape[i], unsafe.Slice(view.shape, len(shape))[i])
				assert.Equal(t, stride, unsafe.Slice(view.strides, len(shape))[i])
				stride *= shape[i]
			}
			assert.Equal(t, "größe\x00", string(unsafe.Slice((*byte)(tensor.Name), len("größe")+1)))
			b.Release()
			tensor.Delete()
		}
	}
}

func TestTensorOutlivesTheReferenceItWasMadeFrom(t *testing.T) {
	nothingLeft(t)
	b := acquire(t, 800)
	first, err := b.Tensor("x", DType{Code: 2, Bits: 32}, []int64{200}, false)
	require.NoError(t, err)
	second, err := b.Tensor("x", DType{Code: 2, Bits: 32}, []int64{200}, true)
	require.NoError(t, err)
	b.Release()
	first.Delete()
	live, _, _ := Counters()
	assert.EqualValues(t, 1, live, "the second tensor still holds the buffer")
	second.Delete()
}

func TestManyThreadsShareThePool(t *testing.T) {
	withPool(t, 1<<20)
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(3, uint64(worker)))
			for range 300 {
				n := random.Int64N(20_000)
				b, err := Allocator{}.Acquire(n)
				if !assert.NoError(t, err) {
					return
				}
				for i := range b.Bytes() {
					b.Bytes()[i] = byte(worker)
				}
				tensor, err := b.(*Buffer).Tensor("x", DType{Code: 1, Bits: 8}, []int64{n}, worker%2 == 0)
				assert.NoError(t, err)
				b.Release()
				for _, v := range unsafe.Slice((*byte)(dataOf(tensor)), n) {
					if v != byte(worker) {
						assert.Fail(t, "another thread wrote into this buffer")
						return
					}
				}
				tensor.Delete()
			}
		})
	}
	all.Wait()
}

func dataOf(t Tensor) unsafe.Pointer {
	if t.versioned != 0 {
		return *(*unsafe.Pointer)(unsafe.Pointer(&(*managedVersioned)(t.Managed).tensor.data))
	}
	return *(*unsafe.Pointer)(unsafe.Pointer(&(*managedLegacy)(t.Managed).tensor.data))
}
