package plan

const (
	digitBits = 11 // of a radix sort: the counts of a digit stay within the first-level cache
	digits    = 1 << digitBits
)

// sortByRow sorts by row, stably, by counting the digits of what rows are above the lowest one, the last digit first.
// rows has room for twice its length; the result is in either half.
func sortByRow(rows []coldRow) []coldRow {
	n := len(rows)
	from, to := rows[:n:n], rows[n:2*n]
	lowest, highest := none, uint32(0)
	for _, c := range from {
		lowest, highest = min(lowest, c.row), max(highest, c.row)
	}
	for shift := uint(0); n > 1 && (highest-lowest)>>shift != 0; shift += digitBits {
		var place [digits]uint32
		for _, c := range from {
			place[(c.row-lowest)>>shift%digits]++
		}
		sum := uint32(0)
		for d, count := range place {
			place[d] = sum
			sum += count
		}
		for _, c := range from {
			d := (c.row - lowest) >> shift % digits
			to[place[d]] = c
			place[d]++
		}
		from, to = to, from
	}
	return from
}
