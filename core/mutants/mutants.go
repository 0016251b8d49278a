// Package mutants runs the targets of the fuzzer as plain tests, with inputs that are changed at random: without a look
// at what they cover, and a hundred times as many as the fuzzer runs in the same time. What is changed are the corpora
// that the fuzzer has found.
package mutants

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	// Variable is the variable of the environment with how many inputs each target is given.
	Variable = "FRESHGO_TEST_MUTANTS"
	// CorpusVariable is the one with a directory of corpora beside those in testdata/fuzz: the fuzzer's own is in
	// $(go env GOCACHE)/fuzz.
	CorpusVariable = "FRESHGO_TEST_CORPUS"
	few            = 300 // inputs without the variable
	maxBytes       = 1 << 16
)

// Target is a target of the fuzzer.
type Target struct {
	f       *testing.F
	random  *rand.Rand
	corpus  [][]any
	current []any
}

// Of begins a target, whose inputs are changed by random.
func Of(f *testing.F, random *rand.Rand) *Target {
	t := &Target{f: f, random: random}
	roots := []string{"testdata/fuzz"}
	if more := os.Getenv(CorpusVariable); more != "" {
		roots = append(roots, more)
	}
	for _, root := range roots {
		t.read(root)
	}
	return t
}

// Add adds an input to the corpus, as testing.F does.
func (t *Target) Add(args ...any) {
	t.f.Helper()
	t.f.Add(args...)
	t.corpus = append(t.corpus, args)
}

// Fuzz is testing.F's, of a function whose first argument is a testing.TB. Where the fuzzer does not run, mutants come
// first. One that fails is written to the corpus.
func (t *Target) Fuzz(check any) {
	t.f.Helper()
	call := reflect.ValueOf(check)
	in := []reflect.Type{reflect.TypeFor[*testing.T]()}
	for i := 1; i < call.Type().NumIn(); i++ {
		in = append(in, call.Type().In(i))
	}
	if !fuzzing() {
		t.mutants(func(args []any) {
			alone := &scope{TB: t.f}
			defer alone.end()
			values := []reflect.Value{reflect.ValueOf(alone)}
			for _, arg := range args {
				values = append(values, reflect.ValueOf(arg))
			}
			call.Call(values)
		})
	}
	t.f.Fuzz(reflect.MakeFunc(reflect.FuncOf(in, nil, false), call.Call).Interface())
}

// scope is the test of one mutant, which cleans up before the next one comes.
type scope struct {
	testing.TB
	cleanups []func()
}

func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) TempDir() string {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (s *scope) end() {
	for _, cleanup := range slices.Backward(s.cleanups) {
		cleanup()
	}
}

// fuzzing says whether the fuzzer runs, in this process or in one that began it.
func fuzzing() bool {
	asked := false
	for _, name := range []string{"test.fuzz", "test.fuzzworker"} {
		value := ""
		if f := flag.Lookup(name); f != nil {
			value = f.Value.String()
		}
		asked = asked || value != "" && value != "false"
	}
	return asked
}

func (t *Target) mutants(check func(args []any)) {
	t.f.Helper()
	n := few
	if text := os.Getenv(Variable); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.f.Fatalf("%s is %q, expected a number", Variable, text)
		}
	}
	whole := false
	defer func() {
		if !whole {
			t.f.Logf("failed with %s", t.write())
		}
	}()
	for range n {
		t.next()
		check(t.current)
	}
	whole = true
	t.f.Logf("%d mutants of %d inputs", n, len(t.corpus))
}

// next changes the input at hand, or begins with another of the corpus.
func (t *Target) next() {
	from := t.corpus[t.random.IntN(len(t.corpus))]
	if t.current == nil || t.random.IntN(6) == 0 {
		t.current = from
	}
	changed := append([]any{}, t.current...)
	for changes := 1 + t.random.IntN(3); changes > 0; changes-- {
		i := t.random.IntN(len(changed))
		switch v := changed[i].(type) {
		case []byte:
			other, _ := from[i].([]byte)
			changed[i] = piecewise(t.random, v, other)
		default:
			sum := reflect.New(reflect.TypeOf(v)).Elem()
			if old := reflect.ValueOf(v); sum.CanInt() {
				sum.SetInt(old.Int()*int64(t.random.IntN(2)) + int64(number(t.random))) // its lowest bits
			} else {
				sum.SetUint(old.Uint()*t.random.Uint64N(2) + number(t.random))
			}
			changed[i] = sum.Interface()
		}
	}
	t.current = changed
}

// number is small, near a power of two, or anything.
func number(random *rand.Rand) uint64 {
	switch random.IntN(3) {
	case 0:
		return random.Uint64N(9) - 4
	case 1:
		return 1<<random.IntN(64) + random.Uint64N(3) - 1
	}
	return random.Uint64() >> random.IntN(64)
}

// piecewise returns data with one change. other is what pieces may be taken from.
func piecewise(random *rand.Rand, data, other []byte) []byte {
	cut := func(of []byte) (lo, hi int) {
		lo = random.IntN(len(of) + 1)
		return lo, lo + random.IntN(min(len(of)-lo, 1<<random.IntN(12))+1)
	}
	at := random.IntN(len(data) + 1)
	out := append(make([]byte, 0, len(data)+64), data...)
	switch kind := random.IntN(8); {
	case kind == 0 && at < len(data):
		out[at] ^= 1 << random.IntN(8)
	case kind == 1 && at < len(data):
		out[at] = byte(random.Uint32())
	case kind == 2: // a number in the place of as many bytes
		for i, n := 0, number(random); i < 1<<random.IntN(4) && at+i < len(out); i++ {
			out[at+i] = byte(n >> (8 * i))
		}
	case kind == 3: // a number as it is in a manifest
		n := number(random)
		for ; n >= 0x80 && at < len(out); at, n = at+1, n>>7 {
			out[at] = byte(n) | 0x80
		}
		if at < len(out) {
			out[at] = byte(n)
		}
	case kind == 4: // less
		lo, hi := cut(data)
		out = append(out[:lo], data[hi:]...)
	case kind == 5: // the end is missing
		out = out[:at]
	case kind == 6: // a piece twice
		lo, hi := cut(data)
		out = append(append(out[:at], data[lo:hi]...), data[at:]...)
	default: // a piece of another
		lo, hi := cut(other)
		out = append(append(out[:at], other[lo:hi]...), data[at:]...)
	}
	return out[:min(len(out), maxBytes)]
}

// read adds the inputs of a directory of corpora.
func (t *Target) read(root string) {
	t.f.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Base(filepath.Dir(path)) != t.f.Name() {
			return nil // there may be no corpora
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		args, err := parse(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		t.corpus = append(t.corpus, args)
		return nil
	})
	if err != nil {
		t.f.Fatal(err)
	}
}

// write adds the input at hand to the corpus in testdata.
func (t *Target) write() string {
	text := strings.Builder{}
	text.WriteString(heading + "\n")
	for _, arg := range t.current {
		switch v := arg.(type) {
		case []byte:
			fmt.Fprintf(&text, "[]byte(%q)\n", v)
		default:
			fmt.Fprintf(&text, "%T(%v)\n", v, v)
		}
	}
	dir := filepath.Join("testdata", "fuzz", t.f.Name())
	name := fmt.Sprintf("%x", sha256.Sum256([]byte(text.String())))[:16]
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err.Error()
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		return err.Error()
	}
	return path
}

const heading = "go test fuzz v1"

var numbers = map[string]reflect.Type{
	"int": reflect.TypeFor[int](), "int64": reflect.TypeFor[int64](), "uint8": reflect.TypeFor[uint8](),
	"byte": reflect.TypeFor[uint8](), "uint16": reflect.TypeFor[uint16](), "uint64": reflect.TypeFor[uint64](),
}

// parse reads an input as the fuzzer writes it: a line of Go for each argument.
func parse(text string) (args []any, err error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if lines[0] != heading {
		return nil, fmt.Errorf("begins with %q, expected %q", lines[0], heading)
	}
	for _, line := range lines[1:] {
		arg, err := argument(line)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		args = append(args, arg)
	}
	return args, nil
}

func argument(line string) (any, error) {
	parsed, err := parser.ParseExpr(line)
	if err != nil {
		return nil, err
	}
	call, ok := parsed.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return nil, fmt.Errorf("a %T, expected a conversion", parsed)
	}
	value, sign := call.Args[0], int64(1)
	if minus, ok := value.(*ast.UnaryExpr); ok && minus.Op == token.SUB {
		value, sign = minus.X, -1
	}
	literal, ok := value.(*ast.BasicLit)
	if !ok {
		return nil, fmt.Errorf("a %T, expected a literal", value)
	}
	if literal.Kind == token.STRING {
		text, err := strconv.Unquote(literal.Value)
		return []byte(text), err
	}
	name, ok := call.Fun.(*ast.Ident)
	if !ok || numbers[name.Name] == nil {
		return nil, fmt.Errorf("the type %T is unknown", call.Fun)
	}
	bits := uint64(0)
	if literal.Kind == token.CHAR {
		r, _, _, err := strconv.UnquoteChar(literal.Value[1:], '\'')
		if err != nil {
			return nil, err
		}
		bits = uint64(r)
	} else if bits, err = strconv.ParseUint(literal.Value, 0, 64); err != nil {
		return nil, err
	}
	return reflect.ValueOf(sign * int64(bits)).Convert(numbers[name.Name]).Interface(), nil
}
