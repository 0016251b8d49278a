package manifest

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxParts bounds the messages of a manifest, and the integers in its lists. An empty message takes two bytes of a file
// and about 150 of memory, so the size of the file alone does not bound what parsing allocates: 64 MiB of them would
// take 4.8 GB and 40 s. maxParts messages take 40 MB. A graph of 2^14 relations with a tensor each has 2^17.
const maxParts = 1 << 18

// parts counts the messages below a message of this kind and the integers in its lists, until there are more than
// limit. Bytes that are no fields end the count: Unmarshal says what is wrong with them. It allocates nothing.
func parts(payload []byte, kind protoreflect.MessageDescriptor, limit int) (n int) {
	for len(payload) > 0 && n <= limit {
		number, wire, size := protowire.ConsumeTag(payload)
		if size < 0 {
			return n
		}
		payload = payload[size:]
		if size = protowire.ConsumeFieldValue(number, wire, payload); size < 0 {
			return n
		}
		value := payload[:size]
		payload = payload[size:]
		field := kind.Fields().ByNumber(number)
		if field == nil || wire != protowire.BytesType && wire != protowire.VarintType {
			continue // unknown fields are kept as they are, and numbers of a fixed size take no more than in the file
		}
		below := field.Message()
		switch {
		case wire == protowire.BytesType && below != nil:
			inner, _ := protowire.ConsumeBytes(value)
			n += 1 + parts(inner, below, limit-n)
		case wire == protowire.BytesType && field.Kind() == protoreflect.Int64Kind:
			n += size // a byte each at least
		case wire == protowire.VarintType && field.IsList():
			n++
		}
	}
	return n
}
