package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	mostMethods = 25  // of a type, with those of the types that it embeds
	mostLines   = 400 // of a file
)

// A methodSet holds the methods that a type declares and the types that it embeds, as "core/mem.Budget".
type methodSet struct {
	names  []string
	embeds []string
}

// methodSets adds the types of a file of a package to sets.
func methodSets(sets map[string]*methodSet, pkg string, f *ast.File) {
	imports := map[string]string{}
	for _, spec := range f.Imports {
		from, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(from)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imports[name] = strings.TrimPrefix(from, "freshgo/")
	}
	set := func(name string) *methodSet {
		if sets[pkg+"."+name] == nil {
			sets[pkg+"."+name] = &methodSet{}
		}
		return sets[pkg+"."+name]
	}
	var named func(e ast.Expr) string // the type in an embedded field or a receiver, without pointer and arguments
	named = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.StarExpr:
			return named(e.X)
		case *ast.IndexExpr:
			return named(e.X)
		case *ast.IndexListExpr:
			return named(e.X)
		case *ast.SelectorExpr:
			return imports[named(e.X)] + "." + e.Sel.Name
		case *ast.Ident:
			return e.Name
		}
		return ""
	}
	qualified := func(e ast.Expr) string {
		if name := named(e); strings.Contains(name, ".") {
			return name
		}
		return pkg + "." + named(e)
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				s := set(named(d.Recv.List[0].Type))
				s.names = append(s.names, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				t, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				s := set(t.Name.Name)
				switch of := t.Type.(type) {
				case *ast.StructType:
					for _, field := range of.Fields.List {
						if len(field.Names) == 0 {
							s.embeds = append(s.embeds, qualified(field.Type))
						}
					}
				case *ast.InterfaceType:
					for _, field := range of.Methods.List {
						if len(field.Names) == 0 {
							s.embeds = append(s.embeds, qualified(field.Type))
						} else {
							s.names = append(s.names, field.Names[0].Name)
						}
					}
				}
			}
		}
	}
}

// allMethods returns the methods of a type, with those that it gets from the types that it embeds.
func allMethods(sets map[string]*methodSet, of string) []string {
	s := sets[of]
	if s == nil {
		return nil
	}
	names := slices.Clone(s.names)
	for _, e := range s.embeds {
		names = append(names, allMethods(sets, e)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// tooLarge returns the types with too many methods.
func tooLarge(sets map[string]*methodSet) (findings []string) {
	for name := range sets {
		if n := len(allMethods(sets, name)); n > mostMethods {
			findings = append(findings, fmt.Sprintf("%s has %d methods, expected at most %d", name, n, mostMethods))
		}
	}
	slices.Sort(findings)
	return findings
}

func TestSizes(t *testing.T) {
	sets := map[string]*methodSet{}
	walkRepository(t, func(name, text string) {
		pkg := path.Dir(name)
		ours := strings.HasPrefix(pkg, "core/") || pkg == "capi"
		if !ours || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(text, "// Code generated") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
		require.NoError(t, err)
		methodSets(sets, pkg, f)
		if n := strings.Count(text, "\n"); n > mostLines {
			t.Errorf("%s has %d lines, expected at most %d: divide it by subject", name, n, mostLines)
		}
	}, ".go")
	require.Greater(t, len(sets), 500)
	for _, finding := range tooLarge(sets) {
		t.Error(finding)
	}
}

// Methods count once, whether a type declares them or gets them from what it embeds, of whatever package.
func TestMethodsAreCounted(t *testing.T) {
	sets := map[string]*methodSet{}
	for pkg, source := range map[string]string{
		"core/a": "package a\ntype A struct{ n int }\nfunc (a *A) One() {}\nfunc (A) two() {}\n" +
			"type I interface{ Three(); J }\ntype J interface{ Four() }\ntype G[T any] struct{ x T }\nfunc (*G[T]) Five() {}",
		"core/b": "package b\nimport \"freshgo/core/a\"\nimport other \"freshgo/core/a\"\nimport \"sync\"\n" +
			"type B struct { *a.A; other.I; a.G[int]; sync.Mutex; f func() }\nfunc (b *B) One() {}\nfunc (B) six() {}\n" +
			"type C struct { b B }\ntype D struct { C; B }",
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", source, 0)
		require.NoError(t, err)
		methodSets(sets, pkg, f)
	}
	require.Equal(t, []string{"Four", "Three"}, allMethods(sets, "core/a.I"))
	require.Equal(t, []string{"Five", "Four", "One", "Three", "six", "two"}, allMethods(sets, "core/b.B"))
	require.Empty(t, allMethods(sets, "core/b.C"))
	require.Len(t, allMethods(sets, "core/b.D"), 6)

	many := &methodSet{}
	for i := range mostMethods + 1 {
		many.names = append(many.names, strconv.Itoa(i))
	}
	sets = map[string]*methodSet{"x.Many": many}
	require.Equal(t, []string{"x.Many has 26 methods, expected at most 25"}, tooLarge(sets))
	many.names = many.names[1:]
	require.Empty(t, tooLarge(sets))
}
