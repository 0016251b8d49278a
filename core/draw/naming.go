package draw

import (
	"fmt"
	"strconv"
)

// naming distinguishes types in batches and in messages.
type naming interface {
	nodes(typ int, name string) string      // a tensor of a node type in batches
	edges(relation int, name string) string // and of a relation
	full(name, typ string) string
	describe(name, typ string) string
	label(text string) string             // of a type, nothing where types have no names
	within(label string, err error) error // adds the type to an error
}

// oneType names the tensors of a homogeneous graph.
type oneType struct{}

func (oneType) nodes(_ int, name string) string  { return name }
func (oneType) edges(_ int, name string) string  { return name }
func (oneType) full(name, _ string) string       { return name }
func (oneType) describe(name, _ string) string   { return strconv.Quote(name) }
func (oneType) label(string) string              { return "" }
func (oneType) within(_ string, err error) error { return err }

// namedTypes names the tensors of a graph whose types have names.
type namedTypes struct{}

func (namedTypes) nodes(typ int, name string) string      { return NodeName(typ, name) }
func (namedTypes) edges(relation int, name string) string { return EdgeName(relation, name) }
func (namedTypes) full(name, typ string) string           { return typ + "." + name }
func (namedTypes) describe(name, typ string) string       { return fmt.Sprintf("%q of %s", name, typ) }
func (namedTypes) label(text string) string               { return text }
func (namedTypes) within(label string, err error) error   { return fmt.Errorf("%s: %w", label, err) }
