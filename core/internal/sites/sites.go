package sites

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Site is a place in the source from which a method of ssd.FS or ssd.File is called, or a function of ssd that repeats
// one.
type Site struct {
	File        string // below core
	Method      string
	first, last int  // lines of the call, or of the function around it where the call is deferred
	deferred    bool // the runtime says of it only in which function it was
}

// String names the site by its first line.
func (s Site) String() string { return fmt.Sprintf("%s:%d %s", s.File, s.first, s.Method) }

// door is the package whose interfaces are called, and doors are those interfaces.
const door = "freshgo/core/ssd"

var doors = []string{"FS", "File", "CompletionFilter", "WriteFilter"}

// repeating are the functions of ssd that make a call until it is through. Where they are called is a site, and not the
// call within them.
var repeating = []string{"ReadFull", "WriteFull", "Reserve"}

// below are the files behind the door: the calls of the operating system, and the twin of it for tests.
var below = []string{"ssd/os.go", "ssd/faultfs/"}

// without are the methods that call nothing.
var without = []string{"Fd", "Name"}

// Find returns the sites in the source of core, which is at root.
func Find(root string) ([]Site, error) {
	l := &loader{root: root, set: token.NewFileSet(), packages: map[string]*types.Package{}}
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		if entry.Name() == "testdata" {
			return filepath.SkipDir
		}
		relative, err := filepath.Rel(root, path)
		if err == nil && relative != "." {
			_, err = l.Import("freshgo/core/" + filepath.ToSlash(relative))
		}
		return err
	})
	slices.SortFunc(l.sites, func(a, b Site) int { return strings.Compare(a.String(), b.String()) })
	return slices.CompactFunc(l.sites, func(a, b Site) bool { return a.String() == b.String() }), err
}

// loader type-checks the packages of core, as far as they use each other: others are empty, and what is unknown for
// that reason is left out.
type loader struct {
	root     string
	set      *token.FileSet
	packages map[string]*types.Package
	sites    []Site
}

// Import implements types.Importer.
func (l *loader) Import(path string) (*types.Package, error) {
	if known := l.packages[path]; known != nil {
		return known, nil
	}
	inside, ours := strings.CutPrefix(path, "freshgo/core/")
	if !ours {
		l.packages[path] = types.NewPackage(path, filepath.Base(path))
		l.packages[path].MarkComplete()
		return l.packages[path], nil
	}
	files, err := l.parse(filepath.Join(l.root, inside))
	if err != nil || len(files) == 0 {
		return types.NewPackage(path, filepath.Base(path)), err
	}
	info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: l, Error: func(error) {}, FakeImportC: true}
	l.packages[path], _ = config.Check(path, l.set, files, info) // its errors are of what other modules have
	for _, file := range files {
		name := inside + "/" + filepath.Base(l.set.Position(file.Pos()).Filename)
		if !slices.ContainsFunc(below, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			l.visit(name, file, info)
		}
	}
	return l.packages[path], nil
}

// parse returns the files of a package that are no tests, and not for another system.
func (l *loader) parse(dir string) (files []*ast.File, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	for _, name := range names {
		ours, err := build.Default.MatchFile(dir, filepath.Base(name))
		if err != nil {
			return nil, err
		}
		if !ours || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(l.set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, err
}

// visit adds the sites of a file.
func (l *loader) visit(name string, file *ast.File, info *types.Info) {
	var around []ast.Node // the nodes that hold the one visited
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			around = around[:len(around)-1]
			return true
		}
		around = append(around, n)
		if f, ok := n.(*ast.FuncDecl); ok && strings.HasPrefix(name, "ssd/") && slices.Contains(repeating, f.Name.Name) {
			around = around[:len(around)-1]
			return false
		}
		id, ok := n.(*ast.Ident)
		if method := l.method(id, around, info); ok && method != "" {
			l.sites = append(l.sites, l.site(name, method, around))
		}
		return true
	})
}

// method returns which method or repeating function an identifier that is visited names, or nothing.
func (l *loader) method(id *ast.Ident, around []ast.Node, info *types.Info) string {
	if id == nil || len(around) < 2 {
		return ""
	}
	if s, ok := around[len(around)-2].(*ast.SelectorExpr); ok && s.Sel == id {
		if selection := info.Selections[s]; selection != nil {
			named, ok := types.Unalias(selection.Recv()).(*types.Named)
			if ok && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == door &&
				slices.Contains(doors, named.Obj().Name()) && !slices.Contains(without, id.Name) {
				return id.Name
			}
			return ""
		}
	}
	used := info.Uses[id]
	if used == nil || used.Pkg() == nil || used.Pkg().Path() != door || !slices.Contains(repeating, used.Name()) {
		return ""
	}
	return used.Name()
}

// site is the one of the innermost call around a method's name.
func (l *loader) site(name, method string, around []ast.Node) Site {
	line := func(p token.Pos) int { return l.set.Position(p).Line }
	var call, function ast.Node
	s := Site{File: name, Method: method}
	for _, n := range slices.Backward(around) {
		switch n := n.(type) {
		case *ast.CallExpr:
			if call == nil {
				call = n
			}
		case *ast.DeferStmt:
			s.deferred = s.deferred || function == nil && n.Call == call
		case *ast.FuncDecl, *ast.FuncLit:
			if function == nil {
				function = n
			}
		}
	}
	if call == nil {
		call = around[len(around)-1]
	}
	s.first, s.last = line(call.Pos()), line(call.End())
	if s.deferred { // one site, however many such calls the function has
		s.first, s.last = line(function.Pos()), line(function.End())
	}
	return s
}

// Locate returns the site that a call of a method was made from, given its stack with the innermost frame first. The
// zero Site means that it is not in core.
func Locate(sites []Site, methods []string, stack []runtime.Frame) Site {
	for _, frame := range stack {
		_, file, found := strings.Cut(frame.File, "/core/")
		if !found {
			continue
		}
		for _, s := range sites {
			if s.File == file && slices.Contains(methods, s.Method) && !s.deferred && s.first <= frame.Line &&
				frame.Line <= s.last {
				return s
			}
		}
		for _, s := range slices.Backward(sites) {
			if s.File == file && slices.Contains(methods, s.Method) && s.deferred && s.first <= frame.Line &&
				frame.Line <= s.last {
				return s
			}
		}
	}
	return Site{}
}
