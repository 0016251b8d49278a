package store

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPiecesAreVisitedOnce: by several readers, each piece once, and those of a large file in runs.
func TestPiecesAreVisitedOnce(t *testing.T) {
	for _, count := range []int64{0, 1, 7, scanReaders * scanRun, scanReaders*scanRun + 1, 1003} {
		p, visits := newPieces(count), make([]int, count)
		var mu sync.Mutex
		var readers sync.WaitGroup
		for range scanReaders {
			readers.Go(func() {
				last := int64(-1)
				require.NoError(t, p.each(func(number int64) error {
					if count > scanReaders*scanRun && number%scanRun > 0 {
						require.Equal(t, last+1, number)
					}
					last = number
					mu.Lock()
					defer mu.Unlock()
					visits[number]++
					return nil
				}))
			})
		}
		readers.Wait()
		for number, n := range visits {
			require.Equal(t, 1, n, "piece %d of %d", number, count)
		}
	}
}
