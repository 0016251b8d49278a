package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rules = map[string]func(*file) []string{
	"imports":       imports,
	"environment":   environment,
	"goroutines":    goroutines,
	"unsafeReasons": unsafeReasons,
}

func TestCore(t *testing.T) {
	const core = "../.."
	commented := map[string]bool{}
	err := filepath.WalkDir(core, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		pkg, err := filepath.Rel(core, filepath.Dir(path))
		require.NoError(t, err)
		set := token.NewFileSet()
		syntax, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		require.NoError(t, err)
		f := &file{File: syntax, set: set, pkg: filepath.ToSlash(pkg), name: filepath.Base(path)}
		commented[f.pkg] = commented[f.pkg] || packageComment(f)
		if ast.IsGenerated(syntax) {
			return nil
		}
		for _, rule := range rules {
			for _, finding := range rule(f) {
				t.Error(finding)
			}
		}
		return nil
	})
	require.NoError(t, err)
	for pkg := range layers {
		require.Contains(t, commented, pkg, "a package that has a layer does not exist")
	}
	for pkg, ok := range commented {
		require.True(t, ok, "core/%s has no package comment", pkg)
	}
}

// Each rule finds what it is for, and only that.
func TestRules(t *testing.T) {
	tests := []struct{ rule, pkg, source, want string }{
		{"imports", "store", `import "freshgo/core/ssd"`, ""},
		{"imports", "store", `import "freshgo/core/sample"`, "store must not import sample"},
		{"imports", "mem", `import "freshgo/core/ssd"`, "mem must not import ssd"},
		{"imports", "loader", `import "freshgo/core/sample"`, ""},
		{"imports", "loader", `import "freshgo/capi"`, "core must not import freshgo/capi"},
		{"imports", "loader", `import "freshgo/core/nowhere"`, "loader must not import nowhere"},
		{"imports", "nowhere", ``, "package nowhere has no layer"},
		{"imports", "mem", `import "C"`, "core must not import C"},
		{"imports", "mem", `import "os/signal"`, "core must not import os/signal"},
		{"imports", "mem", `import "golang.org/x/sys/unix"`, ""},
		{"imports", "mem", `import "golang.org/x/sysnet"`, "module of golang.org/x/sysnet is not allowed"},
		{"environment", "mem", `var x = os.Getenv("X")`, "os.Getenv: core does not read the environment"},
		{"environment", "mem", `func f() { os.LookupEnv("X") }`, "os.LookupEnv: core does not read the environment"},
		{"environment", "mem", `func f() { syscall.Setenv("X", "") }`, "syscall.Setenv: core does not read the environment"},
		{"environment", "mem", `func f() { os.Getpid() }`, ""},
		{"goroutines", "mem", `func f() { go f() }`, "go statement: use guard.Go"},
		{"goroutines", "mem", `func f() { wg.Go(f) }`, "call of Go: use guard.Go"},
		{"goroutines", "mem", `func f() { guard.Go(f, nil) }`, ""},
		{"goroutines", "internal/guard", `func f() { go f() }`, ""},
		{"unsafeReasons", "mem", "func f() {\n_ = unsafe.Add(p, 1)\n}", "unsafe without a comment that proves it"},
		{"unsafeReasons", "mem", "// f stays inside.\nfunc f() {\n_ = unsafe.Add(p, 1)\n}", ""},
		{"unsafeReasons", "mem", "func f() {\n_ = unsafe.Add(p, 1) // inside\n}", ""},
		{"unsafeReasons", "mem", "func f() {\n// both are\n// inside\n_ = unsafe.Add(p, 1)\n_ = unsafe.Add(p, 2)\n}", ""},
		{"unsafeReasons", "mem", "func f() {\n// inside\n_ = 1\n_ = 2\n_ = 3\n_ = 4\n_ = 5\n_ = 6\n_ = unsafe.Add(p, 1)\n}",
			"unsafe without a comment that proves it"},
		{"unsafeReasons", "mem", "func f() {\n_ = unsafe.Sizeof(0)\n}", ""},
		{"unsafeReasons", "mem", "func f(p unsafe.Pointer)", ""},
	}
	for _, tt := range tests {
		t.Run(tt.rule+"/"+tt.source, func(t *testing.T) {
			set := token.NewFileSet()
			syntax, err := parser.ParseFile(set, "x.go", "package x\n"+tt.source, parser.ParseComments)
			require.NoError(t, err)
			findings := rules[tt.rule](&file{File: syntax, set: set, pkg: tt.pkg, name: "x.go"})
			if tt.want == "" {
				require.Empty(t, findings)
				return
			}
			require.Len(t, findings, 1)
			require.Contains(t, findings[0], ": "+tt.want)
		})
	}
}

func TestPackageComment(t *testing.T) {
	for source, want := range map[string]bool{
		"package x":                     false,
		"// Package x is x.\npackage x": false,
		"// Package y guarantees a lot of things that are worth to be told at length.\npackage x": false,
		"// Package x guarantees a lot of things that are worth to be told at length.\npackage x": true,
	} {
		syntax, err := parser.ParseFile(token.NewFileSet(), "x.go", source, parser.ParseComments)
		require.NoError(t, err)
		require.Equal(t, want, packageComment(&file{File: syntax}), source)
	}
}
