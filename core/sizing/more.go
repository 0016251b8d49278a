package sizing

// Offer predicts an epoch with another memory.
type Offer struct {
	Memory     int64 `json:"memory"`
	EpochBytes int64 `json:"epoch_bytes"` // of the rows that are not held whole, read and written
}

// Offers predicts the bytes of an epoch of planned batches with the memory of the request, and with steps of a tenth
// more, up to twice as much. It stops when nothing is left to move. It returns none without a limit, or if this memory
// is too small or has no planned cache.
func Offers(r Request, g Graph, c Costs) (offers []Offer) {
	const steps = 10
	if r.Memory == 0 {
		return nil
	}
	for more, memory := int64(0), r.Memory; more <= steps; more++ {
		r.Memory = memory + memory/steps*more
		s, err := Divide(r, g, c)
		if err != nil || s.Cache != "belady" && !s.HoldsRows(&g) {
			return offers
		}
		offers = append(offers, Offer{r.Memory, s.EpochBytes})
		if s.EpochBytes == 0 {
			break
		}
	}
	if offers[0].EpochBytes == 0 {
		return nil
	}
	return offers
}
