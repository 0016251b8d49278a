package embed

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"freshgo/core/internal/crc"
	"freshgo/core/mem"
	"freshgo/core/ssd"
	"freshgo/core/store"
)

// state is a saved state, as the file of the same name has it. Its rename publishes the state.
type state struct {
	Version     int    `json:"version"`
	Rows        int64  `json:"rows"`
	RowBytes    int    `json:"row_bytes"`
	Token       string `json:"token"`
	Previous    string `json:"previous,omitempty"`
	Sums        uint32 `json:"sums"` // checksum of the file of checksums
	Description string `json:"description,omitempty"`
	Checksum    uint32 `json:"checksum"` // of the state whose Checksum is 0
}

// encoded returns the content of the file of s.
func (s state) encoded() ([]byte, error) { return json.MarshalIndent(s, "", "  ") }

// checksum returns what s.Checksum should be.
func (s state) checksum() (uint32, error) {
	s.Checksum = 0
	data, err := s.encoded()
	return crc.Checksum(data), err
}

const (
	version     = 1
	tokenBytes  = 16
	sumsPrefix  = "sums-"
	statePrefix = "state-" // of the files that keep earlier states
	freshSuffix = ".new"
)

func journalName(token string) string { return "journal-" + token }
func sumsName(token string) string    { return sumsPrefix + token }

// stateOf returns the name of the file that keeps an earlier state.
func stateOf(token string) string { return statePrefix + token + ".json" }

// ours reports whether a file is a part of a table.
func ours(name string) bool {
	if slices.Contains([]string{rowsName, lockName, stateName, stateName + freshSuffix}, name) {
		return true
	}
	for _, prefix := range []string{journalName(""), sumsPrefix, statePrefix} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// folder is the directory of a table.
type folder struct {
	fs   ssd.FS
	path string
}

func (f folder) name(file string) string { return filepath.Join(f.path, file) }

// sweep removes files of states that are neither s nor the state before it.
func (f folder) sweep(s *state) {
	names, err := f.fs.ReadDir(f.path)
	if err != nil {
		return // the next sweep finds them again
	}
	keep := []string{rowsName, lockName, stateName}
	for _, token := range []string{s.Token, s.Previous} {
		if token != "" {
			keep = append(keep, journalName(token), sumsName(token), stateOf(token))
		}
	}
	for _, name := range names {
		if ours(name) && !slices.Contains(keep, name) {
			_ = f.fs.Remove(f.name(name)) // likewise
		}
	}
}

// readState reads the state in a file.
func (f folder) readState(name string) (s state, err error) {
	data, err := f.read(name)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, &store.CorruptError{Path: f.name(name), Reason: err.Error()}
	}
	switch {
	case s.Version > version:
		return s, fmt.Errorf("embed: %s has version %d, expected at most %d: %w", f.name(name), s.Version, version,
			store.ErrVersion)
	case s.Version < 1, s.Rows < 1, s.RowBytes < 4, s.RowBytes%4 != 0, s.RowBytes > maxRowBytes,
		!isToken(s.Token), s.Previous != "" && !isToken(s.Previous):
		return s, &store.CorruptError{Path: f.name(name), Reason: fmt.Sprintf("%d rows of %d bytes, token %q, before it %q",
			s.Rows, s.RowBytes, s.Token, s.Previous)}
	}
	sum, err := s.checksum()
	if err == nil && sum != s.Checksum {
		err = &store.CorruptError{
			Path: f.name(name), Reason: fmt.Sprintf("checksum of the state is %08x, expected %08x", sum, s.Checksum),
		}
	}
	return s, err
}

func isToken(s string) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) == tokenBytes
}

// mostState bounds the file of a state, whose description the caller gives.
const mostState = 1 << 20

func (f folder) read(name string) ([]byte, error) {
	file, err := f.fs.Open(f.name(name), syscall.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close() // nothing was written
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	if size > mostState {
		reason := fmt.Sprintf("%d bytes, expected at most %d", size, mostState)
		return nil, &store.CorruptError{Path: f.name(name), Reason: reason}
	}
	data := make([]byte, size)
	return data, ssd.ReadFull(file, data, 0)
}

// write makes a durable file, in place of one of that name.
func (f folder) write(name string, data []byte) (err error) {
	file, err := f.fs.Open(f.name(name), syscall.O_WRONLY|syscall.O_CREAT|syscall.O_TRUNC|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := ssd.WriteFull(file, data, 0); err != nil {
		return err
	}
	return file.Sync()
}

// publish makes s the saved state: whole, or not at all. A new one gets a file that keeps it when it is an earlier one.
// After an error with published set, s is the saved state, and a loss of power may bring the one before it back.
func (f folder) publish(s *state, isNew bool) (published bool, err error) {
	if s.Checksum, err = s.checksum(); err != nil {
		return false, err
	}
	data, err := s.encoded()
	if err != nil {
		return false, err
	}
	if len(data) > mostState {
		return false, fmt.Errorf("embed: a description of %d bytes, expected at most %d: %w", len(s.Description),
			mostState/2, ErrInvalid)
	}
	if err := f.write(stateName+freshSuffix, data); err != nil { // first: see orphaned
		return false, err
	}
	if isNew {
		if err := f.write(stateOf(s.Token), data); err != nil {
			return false, err
		}
	}
	if err := f.fs.Rename(f.name(stateName+freshSuffix), f.name(stateName)); err != nil {
		return false, err
	}
	return true, f.fs.SyncDir(f.path)
}

// orphaned returns an error if a directory without stateName has a table that was saved, and not only what a creation
// leaves that was never saved: at most one file of checksums, no journal, and no state without the file to be renamed.
func (f folder) orphaned(names []string) error {
	sums, fresh := 0, slices.Contains(names, stateName+freshSuffix)
	var states []string
	saved, before := false, map[string]bool{}
	for _, name := range names {
		switch {
		case name == stateName:
			return nil
		case strings.HasPrefix(name, journalName("")):
			saved = true
		case strings.HasPrefix(name, sumsPrefix) && !strings.HasSuffix(name, freshSuffix):
			sums++
		case strings.HasPrefix(name, statePrefix):
			if s, err := f.readState(name); err == nil {
				states, before[stateOf(s.Previous)] = append(states, name), true
			}
			saved = saved || !fresh
		}
	}
	if !saved && sums < 2 {
		return nil
	}
	do := "remove the directory to make a new table"
	if last := slices.DeleteFunc(states, func(name string) bool { return before[name] }); len(last) == 1 {
		do = fmt.Sprintf("copy %s to %s to have the table as it was saved, or %s", last[0], stateName, do)
	}
	return &store.CorruptError{Path: f.path, Reason: fmt.Sprintf("a saved table without %s: %s", stateName, do)}
}

// missing returns the error of a table that lacks a file which its states need, and other errors as they are.
func (f folder) missing(err error) error {
	if errors.Is(err, syscall.ENOENT) {
		return &store.CorruptError{Path: f.path, Reason: err.Error()}
	}
	return err
}

// loadSums loads the checksums of a state.
func (f folder) loadSums(s *state, sums []uint32) error {
	file, err := f.fs.Open(f.name(sumsName(s.Token)), syscall.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer file.Close() // nothing was written
	data := mem.Bytes(sums)
	if err := ssd.ReadFull(file, data, 0); err != nil {
		return err
	}
	if sum := crc.Checksum(data); sum != s.Sums {
		return &store.CorruptError{
			Path: file.Name(), Reason: fmt.Sprintf("checksum of the file is %08x, expected %08x", sum, s.Sums),
		}
	}
	return nil
}

// Save publishes the rows of the file as a state, atomically, and returns its token. A nil description stays as it is.
// The state before it can be restored until the next Save. A loader that trains the table has written its rows before.
func (t *Table) Save(description *string) (token string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return "", err
	}
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // cannot fail
	next := t.state
	next.Version, next.Token, next.Previous = version, hex.EncodeToString(random[:]), t.state.Token
	if description != nil {
		next.Description = *description
	}
	if err := t.file.Sync(); err != nil {
		t.lost = err // after a failed sync the system may have dropped any write
		return "", err
	}
	data := mem.Bytes(t.sums)
	next.Sums = crc.Checksum(data)
	if err := t.folder.write(sumsName(next.Token), data); err != nil {
		return "", err
	}
	published, err := t.folder.publish(&next, true)
	if !published {
		return "", err
	}
	// The table is in this state from now on. Where it is not durable yet, the files of the one before stay, and no page
	// is changed before the directory has been synced (journal.begin).
	t.state, t.changed = next, false
	t.journal.end()
	if err != nil {
		return "", err
	}
	t.folder.sweep(&t.state)
	return next.Token, nil
}

// Restore makes the table what it was when the state with a token was saved: the last state, or the one before. No
// loader trains the table. Where a file that it needs is damaged, nothing is changed.
func (t *Table) Restore(token string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return t.usable()
	case t.users > 0:
		return fmt.Errorf("embed: %s: %w", t.folder.path, ErrInUse)
	case t.state.Token == "" || token != t.state.Token && token != t.state.Previous:
		return fmt.Errorf("embed: %s has the states %q and %q, asked for %q: %w", t.folder.path, t.state.Token,
			t.state.Previous, token, ErrToken)
	}
	steps := []*state{&t.state}
	if token == t.state.Previous {
		s, err := t.folder.readState(stateOf(token))
		if err != nil {
			return t.folder.missing(err)
		}
		s.Previous = "" // its journal may be gone
		steps = append(steps, &s)
	}
	now, needed := t.sums, t.journal.pages
	var sums [][]uint32
	for _, s := range steps {
		block, err := t.memory.Alloc(mem.Staging, t.pages()*4)
		if err != nil {
			return err
		}
		defer block.Free()
		then := mem.Slice[uint32](block)
		if err := t.folder.loadSums(s, then); err != nil {
			return t.folder.missing(err)
		}
		if err := t.journal.check(s, now, then, needed); err != nil {
			return err
		}
		sums, now, needed = append(sums, then), then, nil
	}
	t.journal.end()
	again := t.lost != nil // an earlier call may have published the other state
	for i, s := range steps {
		if err := t.undo(s, sums[i], again || i > 0); err != nil {
			t.lost = err // some pages are of the state, and others are not yet
			return err
		}
	}
	t.folder.sweep(&t.state)
	t.lost, t.changed = nil, false
	return nil
}

// undo undoes the changes since a state with these checksums was saved. The table is in that state or after it. Where
// publish is set it becomes the saved state first.
func (t *Table) undo(s *state, sums []uint32, publish bool) error {
	if publish {
		if _, err := t.folder.publish(s, false); err != nil {
			return err
		}
		t.state = *s
	}
	if err := t.journal.apply(s.Token, t.file, t.pages()); err != nil {
		return err
	}
	copy(t.sums, sums)
	return t.journal.discard(s.Token)
}
