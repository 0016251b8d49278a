// Package manifest holds the schema of a store's manifest and the codec of the file it lives in.
//
// Decode accepts exactly what Encode wrote: it checks magic, version, length and checksum before it parses, and what it
// allocates is bounded: a few bytes for each that it was given, and those of maxParts messages. It does not check that
// the contents make sense; package store, its only caller, does.
package manifest

//go:generate protoc --go_out=. --go_opt=paths=source_relative manifest.proto

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	//lint:ignore SA1019 the manifest is defined over this module, whose messages come from google.golang.org/protobuf
	"github.com/golang/protobuf/proto"
)

const (
	// Name is the file of a store that holds its manifest.
	Name = "manifest.pb"
	// Version is the newest format version. Encode writes the oldest that has all that a manifest uses, so that older
	// programs read what they can.
	Version = 2
	// HeaderBytes is the size of the header: magic (8 bytes), version, payload length, checksum (uint32 each).
	HeaderBytes = 20
	// MaxPayloadBytes bounds what a reader allocates for a manifest. A tensor takes about a hundred bytes, so it is out
	// of reach.
	MaxPayloadBytes = 64 << 20
	magic           = "FRESHGO\x00"
)

var (
	// ErrFormat means that the bytes are no manifest.
	ErrFormat = errors.New("not a freshgo store")
	// ErrVersion means that a newer freshgo wrote the manifest.
	ErrVersion = errors.New("store format not supported")
	// ErrCorrupt means that a file is damaged: the manifest, or an array.
	ErrCorrupt = errors.New("the file is damaged")

	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Encode returns the contents of a manifest file. Equal manifests give equal bytes within one build of the program
// only.
func Encode(m *Manifest) ([]byte, error) {
	payload, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("manifest: encoding: %w", err)
	}
	if len(payload) > MaxPayloadBytes {
		return nil, fmt.Errorf("manifest: %d bytes, expected at most %d", len(payload), MaxPayloadBytes)
	}
	file := make([]byte, HeaderBytes, HeaderBytes+len(payload))
	copy(file, magic)
	binary.LittleEndian.PutUint32(file[8:], VersionOf(m))
	binary.LittleEndian.PutUint32(file[12:], uint32(len(payload)))
	file = append(file, payload...)
	binary.LittleEndian.PutUint32(file[16:], checksum(file))
	return file, nil
}

// Decode parses the contents of a manifest file. Its errors wrap ErrFormat, ErrVersion or ErrCorrupt.
func Decode(file []byte) (*Manifest, error) {
	if !HasMagic(file) {
		return nil, fmt.Errorf("manifest: %w: no freshgo header", ErrFormat)
	}
	if len(file) < HeaderBytes {
		return nil, fmt.Errorf("manifest: %w: header of %d bytes, expected %d", ErrCorrupt, len(file), HeaderBytes)
	}
	version := binary.LittleEndian.Uint32(file[8:])
	if version < 1 || version > Version {
		return nil, fmt.Errorf("manifest: %w: version %d, expected 1 to %d", ErrVersion, version, Version)
	}
	length := binary.LittleEndian.Uint32(file[12:])
	if int64(len(file)-HeaderBytes) != int64(length) {
		return nil, fmt.Errorf("manifest: %w: %d bytes after the header, expected %d", ErrCorrupt, len(file)-HeaderBytes,
			length)
	}
	if got, want := checksum(file), binary.LittleEndian.Uint32(file[16:]); got != want {
		return nil, fmt.Errorf("manifest: %w: checksum %08x, expected %08x", ErrCorrupt, got, want)
	}
	m := new(Manifest)
	if n := parts(file[HeaderBytes:], m.ProtoReflect().Descriptor(), maxParts); n > maxParts {
		return nil, fmt.Errorf("manifest: %w: more than %d parts", ErrCorrupt, maxParts)
	}
	if err := proto.Unmarshal(file[HeaderBytes:], m); err != nil {
		return nil, fmt.Errorf("manifest: %w: %w", ErrCorrupt, err)
	}
	if needs := VersionOf(m); version != needs {
		return nil, fmt.Errorf("manifest: %w: version %d, expected %d for what it describes", ErrCorrupt, version, needs)
	}
	return m, nil
}

// VersionOf returns the oldest format version whose readers do not misread a manifest.
func VersionOf(m *Manifest) uint32 {
	for _, e := range m.GetEdgeTypes() {
		if e.GetUnnumbered() || e.GetEdgeIds().GetDtype() == DType_UINT40 {
			return 2
		}
	}
	return 1
}

// HasMagic reports whether file begins as a manifest file does, damaged or not.
func HasMagic(file []byte) bool {
	return len(file) >= len(magic) && string(file[:len(magic)]) == magic
}

// Clone returns a copy of m that shares nothing with it.
func Clone(m *Manifest) *Manifest { return proto.Clone(m).(*Manifest) }

// checksum covers all of the file but the checksum itself.
func checksum(file []byte) uint32 {
	return crc32.Update(crc32.Checksum(file[:16], castagnoli), castagnoli, file[HeaderBytes:])
}
