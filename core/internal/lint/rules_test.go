package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"strconv"
	"strings"
)

// A file is one parsed Go file of core that is not a test.
type file struct {
	*ast.File
	set  *token.FileSet
	pkg  string // import path below core, "internal/asm"
	name string // base name
}

func (f *file) line(p token.Pos) int { return f.set.Position(p).Line }

func (f *file) find(node ast.Node, format string, args ...any) string {
	return fmt.Sprintf("core/%s/%s:%d: %s", f.pkg, f.name, f.line(node.Pos()), fmt.Sprintf(format, args...))
}

// layers order the packages of core: a package imports only from layers below its own, and only packages named here
// exist.
var layers = map[string]int{
	"internal/asm": 0, "internal/guard": 0, "internal/lint": 0, "internal/explore": 0,
	"internal/invariants": 0, "internal/reuse": 0, "internal/bitset": 0, "internal/sites": 0,
	"internal/skewed": 0,
	"internal/crc":    1, "mem": 1, "manifest": 1, "gpu": 1,
	"rows": 2, "ssd": 2, "narrow": 2, "offsets": 2, "packed": 2,
	"ssd/faultfs": 3, "sample": 3, "cache": 3, "store": 3, "scratch": 3,
	"plan": 4, "history": 4, "graph": 4, "links": 4, "embed": 4,
	"sizing": 5, "prune": 5, "propagate": 5,
	"draw":   6,
	"batch":  7,
	"fetch":  8,
	"window": 9,
	"loader": 10,
}

// modules lists the modules that core may use outside of its tests.
var modules = []string{"github.com/golang/protobuf", "google.golang.org/protobuf", "golang.org/x/sys",
	"gorgonia.org/cu"}

// imports checks the direction of imports and that nothing but the standard library and modules is used.
func imports(f *file) (findings []string) {
	layer, known := layers[f.pkg]
	if !known {
		return []string{f.find(f.File, "package %s has no layer", f.pkg)}
	}
	for _, spec := range f.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		if below, found := strings.CutPrefix(path, "freshgo/core/"); found {
			if to, known := layers[below]; !known || to >= layer {
				findings = append(findings, f.find(spec, "%s must not import %s", f.pkg, below))
			}
			continue
		}
		switch first, _, _ := strings.Cut(path, "/"); {
		case path == "C" || path == "os/signal" || path == "plugin" || first == "freshgo":
			findings = append(findings, f.find(spec, "core must not import %s", path))
		case strings.Contains(first, ".") && !allowedModule(path):
			findings = append(findings, f.find(spec, "module of %s is not allowed", path))
		}
	}
	return findings
}

func allowedModule(path string) bool {
	for _, m := range modules {
		if path == m || strings.HasPrefix(path, m+"/") {
			return true
		}
	}
	return false
}

// environment finds what reads or changes the environment of the process. Only what serves tests may.
func environment(f *file) []string {
	if f.pkg == "internal/explore" {
		return nil
	}
	return f.selectors(func(pkg, name string) bool {
		return (pkg == "os" || pkg == "syscall" || pkg == "unix") &&
			(strings.HasSuffix(name, "env") || name == "LookupEnv" || name == "Environ")
	}, "core does not read the environment")
}

func (f *file) selectors(bad func(pkg, name string) bool, message string) (findings []string) {
	ast.Inspect(f.File, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && bad(x.Name, s.Sel.Name) {
				findings = append(findings, f.find(n, "%s.%s: %s", x.Name, s.Sel.Name, message))
			}
		}
		return true
	})
	return findings
}

// goroutines finds those that are not started through guard: a panic in one ends the process.
func goroutines(f *file) (findings []string) {
	if f.pkg == "internal/guard" {
		return nil
	}
	ast.Inspect(f.File, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			findings = append(findings, f.find(n, "go statement: use guard.Go"))
		case *ast.CallExpr: // sync.WaitGroup and errgroup.Group have a Go method
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Go" {
				if x, ok := s.X.(*ast.Ident); !ok || x.Name != "guard" {
					findings = append(findings, f.find(n, "call of Go: use guard.Go"))
				}
			}
		}
		return true
	})
	return findings
}

// reasonLines is the largest distance between a use of unsafe and its proof above: one comment serves a few lines that
// belong together.
const reasonLines = 6

// unsafeReasons finds uses of unsafe in function bodies without their proof, a comment on the same line or a little
// above, which in a short function may be its own. Sizes are constants and need none.
func unsafeReasons(f *file) (findings []string) {
	commented := map[int]bool{}
	for _, group := range f.Comments {
		for line := f.line(group.Pos()); line <= f.line(group.End()); line++ {
			commented[line] = true
		}
	}
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := s.X.(*ast.Ident)
			if !ok || x.Name != "unsafe" || s.Sel.Name == "Sizeof" || s.Sel.Name == "Alignof" || s.Sel.Name == "Offsetof" {
				return true
			}
			for line := f.line(n.Pos()); line >= f.line(n.Pos())-reasonLines; line-- {
				if commented[line] {
					return true
				}
			}
			findings = append(findings, f.find(n, "unsafe without a comment that proves it"))
			return true
		})
	}
	return findings
}

// packageComment reports whether the file holds a comment on the package that says more than its name.
func packageComment(f *file) bool {
	text := f.Doc.Text()
	return strings.HasPrefix(text, "Package "+f.Name.Name+" ") && len(text) > 60
}
