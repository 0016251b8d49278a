package guard

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPiecesAreTakenOnce: by several goroutines, each number once, and those of a run by one of them in order.
func TestPiecesAreTakenOnce(t *testing.T) {
	for _, run := range []int64{1, 8} {
		for _, count := range []int64{0, 1, 7, 32, 33, 1003} {
			pieces, taken := NewPieces(count, run), make([]int, count)
			var mu sync.Mutex
			var takers sync.WaitGroup
			for range 4 {
				takers.Go(func() {
					last := int64(-1)
					for number := range pieces.Each() {
						if number%run > 0 {
							require.Equal(t, last+1, number)
						}
						last = number
						mu.Lock()
						taken[number]++
						mu.Unlock()
					}
				})
			}
			takers.Wait()
			for number, n := range taken {
				require.Equal(t, 1, n, "number %d of %d", number, count)
			}
			first, end := pieces.Take()
			require.Equal(t, first, end, "none is left")
		}
	}
}
