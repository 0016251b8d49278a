package window

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"freshgo/core/sizing"
	"freshgo/core/ssd"
)

// TestWhatIsLearnedIsThePriorOfTheNext: a loader that found reading slower than it was calibrated leaves a price
// between the two to the next one of its store, which measures nothing.
func TestWhatIsLearnedIsThePriorOfTheNext(t *testing.T) {
	o := options()
	o.Transfer, o.Calibration = "auto", filepath.Join(t.TempDir(), "devices.json")
	var prices []float64
	for _, slower := range []float64{3, 1, 1} {
		t.Run("", func(t *testing.T) {
			c := open(t, ssd.OS, o, func(*sizing.Split) {}).cache
			price := c.device.Device().Seconds(1, 2)
			require.Equal(t, len(prices) == 0, c.calibrated.Requests > 0, "it is measured once")
			prices = append(prices, price)
			full := c.draw.Engine.Stats().Full
			for range 4 {
				requests := int64(1 / price)
				full.Requests += requests
				full.Bytes += requests * 2 * ssd.PageBytes
				full.Time += time.Duration(slower * float64(time.Second))
				c.device.Observe(full, 0)
			}
		})
	}
	require.Greater(t, prices[1], 1.3*prices[0])
	require.Less(t, prices[1], 2.5*prices[0])
	require.Equal(t, prices[1], prices[2], "nothing new was learned")
}
