// Package archtest has the rules about Belfry's packages and checks them: which may import which,
// which are pure, and that exported names have comments. The rules are plain functions of the
// source text, so that tests can show that each of them fires.
package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// module is the path of the module whose packages are checked.
const module = "github.com/belfry-cron/belfry"

// pkg is a parsed package.
type pkg struct {
	path  string // from the root of the module, which is "."
	name  string // without _test
	files []file
}

// file is one parsed file of a package.
type file struct {
	name string // from the root of the module
	test bool
	ast  *ast.File
	set  *token.FileSet
}

// at formats the place of a node as file:line.
func (f *file) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.name, f.set.Position(n.Pos()).Line)
}

// load parses all packages below root, for every system and build tag. It skips nested modules,
// test data and hidden folders.
func load(root fs.FS) ([]pkg, error) {
	found := map[string]*pkg{}
	set := token.NewFileSet()
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name == "." {
				return nil
			}
			base := path.Base(name)
			_, err := fs.Stat(root, path.Join(name, "go.mod"))
			if err == nil || base == "testdata" || base[0] == '.' || base[0] == '_' {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		p := found[dir]
		if p == nil {
			p = &pkg{path: dir, name: strings.TrimSuffix(parsed.Name.Name, "_test")}
			found[dir] = p
		}
		p.files = append(p.files, file{
			name: name, test: strings.HasSuffix(name, "_test.go"), ast: parsed, set: set,
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	var packages []pkg
	for _, dir := range slices.Sorted(maps.Keys(found)) {
		packages = append(packages, *found[dir])
	}
	return packages, nil
}

// check returns the violations of the rules, in sentences that say what to do.
func check(packages []pkg, table map[string]line, wings []wing) []string {
	wrong := checkTable(table, wings)
	kinds := kindsOfWork(packages)
	for _, p := range packages {
		l, ok := table[p.path]
		if !ok {
			wrong = append(wrong, fmt.Sprintf("package %s has no line in the table of internal/check/archtest/table.go: give it one, which says what it may import", p.path))
			continue
		}
		wrong = append(wrong, checkName(p)...)
		wrong = append(wrong, checkImports(p, l)...)
		if l.pure {
			wrong = append(wrong, checkPure(p)...)
		}
		wrong = append(wrong, checkPackageComment(p)...)
		wrong = append(wrong, checkExported(p)...)
		wrong = append(wrong, checkInit(p)...)
		wrong = append(wrong, checkKindsOfWork(p, kinds)...)
	}
	return wrong
}

// checkTable checks the table itself: allowed imports have no cycles.
func checkTable(table map[string]line, wings []wing) []string {
	var wrong []string
	for _, path := range slices.Sorted(maps.Keys(table)) {
		l, own := table[path], wingOf(wings, path)
		if own < 0 {
			wrong = append(wrong, fmt.Sprintf("package %s is in no wing: move it into the folder of one, or add its folder to the wings of table.go", path))
			continue
		}
		for _, to := range l.imports {
			target, ok := table[to]
			theirs := wingOf(wings, to)
			switch {
			case !ok:
				wrong = append(wrong, fmt.Sprintf("the table lets %s import %s, which has no line", path, to))
			case theirs > own:
				wrong = append(wrong, fmt.Sprintf("the table lets %s import %s, whose wing %s is above %s", path, to, wings[theirs].name, wings[own].name))
			case theirs == own && !l.pure && !target.pure && !target.shared:
				wrong = append(wrong, fmt.Sprintf("the table lets %s import %s: let it declare an interface of one or two methods, which the assembly passes in", path, to))
			case l.pure && !target.pure:
				wrong = append(wrong, fmt.Sprintf("the table lets the pure package %s import %s, which is not pure", path, to))
			}
		}
	}
	return wrong
}

func checkName(p pkg) []string {
	for _, part := range strings.Split(p.path, "/") {
		if slices.Contains(emptyNames, part) {
			return []string{fmt.Sprintf("package %s: %q says nothing about what is in it: name it after what its users ask it for", p.path, part)}
		}
	}
	return nil
}

// checkImports compares the imports of a package with its line.
func checkImports(p pkg, l line) []string {
	var wrong []string
	for _, f := range p.files {
		for _, spec := range f.ast.Imports {
			to, _ := strconv.Unquote(spec.Path.Value)
			switch own, isOwn := strings.CutPrefix(to, module+"/"); {
			case to == module:
				own = "."
				fallthrough
			case isOwn:
				if slices.Contains(l.imports, own) || f.test && (own == p.path || slices.Contains(l.testImports, own)) {
					continue
				}
				wrong = append(wrong, fmt.Sprintf("%s: %s may not import %s: its line in the table does not name it", f.at(spec), p.path, own))
			case strings.Contains(strings.Split(to, "/")[0], "."):
				if below(to, l.modules) || f.test && below(to, l.testModules) {
					continue
				}
				wrong = append(wrong, fmt.Sprintf("%s: %s may not import %s: name it in the package's line in the table, with its reason in docs/dependencies.md", f.at(spec), p.path, to))
			case l.pure && !f.test && !slices.Contains(pureImports, to) && !slices.Contains(l.std, to):
				wrong = append(wrong, fmt.Sprintf("%s: the pure package %s may not import %s", f.at(spec), p.path, to))
			}
		}
	}
	return wrong
}

// below reports whether a package is a named one or inside of one.
func below(path string, named []string) bool {
	return slices.ContainsFunc(named, func(n string) bool {
		return path == n || strings.HasPrefix(path, n+"/")
	})
}

// checkPure looks for forbidden uses of allowed imports in a pure package.
func checkPure(p pkg) []string {
	var wrong []string
	for _, f := range p.files {
		if f.test {
			continue
		}
		imported := map[string]string{} // imports by their name in this file
		for _, spec := range f.ast.Imports {
			to, _ := strconv.Unquote(spec.Path.Value)
			name := path.Base(to)
			if to == "math/rand/v2" {
				name = "rand"
			}
			if spec.Name != nil {
				name = spec.Name.Name
			}
			if name == "." {
				wrong = append(wrong, fmt.Sprintf("%s: the pure package %s imports %s without a name, which hides what it uses", f.at(spec), p.path, to))
			}
			imported[name] = to
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				wrong = append(wrong, fmt.Sprintf("%s: the pure package %s starts a goroutine", f.at(n), p.path))
			case *ast.SelectorExpr:
				from, ok := n.X.(*ast.Ident)
				if ok && slices.Contains(impureNames[imported[from.Name]], n.Sel.Name) {
					wrong = append(wrong, fmt.Sprintf("%s: the pure package %s uses %s.%s: let the caller pass in what it answers", f.at(n), p.path, from.Name, n.Sel.Name))
				}
			}
			return true
		})
	}
	return wrong
}

// checkPackageComment requires one comment on the purpose of the package.
func checkPackageComment(p pkg) []string {
	want := "Package " + p.name + " "
	if p.name == "main" {
		want = "Command " + path.Base(p.path) + " "
	}
	var comments []string
	for _, f := range p.files {
		if doc := f.ast.Doc.Text(); doc != "" {
			comments = append(comments, f.at(f.ast))
			if !strings.HasPrefix(doc, want) {
				return []string{fmt.Sprintf("%s: the comment of package %s begins with %q", f.at(f.ast), p.path, want)}
			}
		}
	}
	switch len(comments) {
	case 0:
		return []string{fmt.Sprintf("package %s has no comment that says what it is for", p.path)}
	case 1:
		return nil
	default:
		return []string{fmt.Sprintf("package %s has several comments, at %s: one is enough", p.path, strings.Join(comments, " and "))}
	}
}

// checkInit refuses functions that run by import.
func checkInit(p pkg) []string {
	var wrong []string
	for _, f := range p.files {
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				wrong = append(wrong, fmt.Sprintf("%s: package %s has an init function: nothing happens by import", f.at(fn), p.path))
			}
		}
	}
	return wrong
}

// checkKindsOfWork refuses branches by the kind of work of a job, which only package job and the
// executors may have: a new kind must not touch other packages.
func checkKindsOfWork(p pkg, kinds []string) []string {
	if p.path == "job" || strings.HasPrefix(p.path, "executor") {
		return nil
	}
	var wrong []string
	for _, f := range p.files {
		if f.test {
			continue
		}
		refuse := func(conditions ...ast.Expr) {
			for _, c := range conditions {
				if isKindOfWork(c, kinds) {
					wrong = append(wrong, fmt.Sprintf("%s: package %s branches by the kind of work of a job: let package job answer", f.at(c), p.path))
				}
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if n.Op == token.EQL || n.Op == token.NEQ {
					refuse(n.X, n.Y)
				}
			case *ast.SwitchStmt:
				refuse(n.Tag)
			}
			return true
		})
	}
	return wrong
}

// kindsOfWork returns the fields of job.RunSpec.
func kindsOfWork(packages []pkg) []string {
	var kinds []string
	for _, p := range packages {
		if p.path != "job" {
			continue
		}
		for _, f := range p.files {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.Name == "RunSpec" {
					for _, field := range spec.Type.(*ast.StructType).Fields.List {
						kinds = append(kinds, field.Names[0].Name)
					}
				}
				return true
			})
		}
	}
	return kinds
}

// isKindOfWork reports whether an expression is a kind of work: a field of the union, as in
// j.Run.Shell, or a call such as j.Run.Work().
func isKindOfWork(e ast.Expr, kinds []string) bool {
	if call, ok := e.(*ast.CallExpr); ok {
		s, ok := call.Fun.(*ast.SelectorExpr)
		return ok && s.Sel.Name == "Work" && len(call.Args) == 0
	}
	kind, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	union, ok := kind.X.(*ast.SelectorExpr)
	return ok && union.Sel.Name == "Run" && slices.Contains(kinds, kind.Sel.Name)
}

// wellKnown are methods of standard interfaces.
var wellKnown = []string{
	"Error", "Unwrap", "Is", "As", "MarshalText", "UnmarshalText", "MarshalJSON",
	"UnmarshalJSON", "MarshalYAML", "UnmarshalYAML",
}

// checkExported requires a comment on every exported name, which begins with it. A comment on a
// group of constants or variables suffices.
func checkExported(p pkg) []string {
	var wrong []string
	if p.name == "main" {
		return nil
	}
	for _, f := range p.files {
		if f.test {
			continue
		}
		undocumented := func(n ast.Node, name string) {
			wrong = append(wrong, fmt.Sprintf("%s: %s.%s is exported and has no comment that begins with its name", f.at(n), p.name, name))
		}
		for _, decl := range f.ast.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				checkFunction(decl, undocumented)
			case *ast.GenDecl:
				checkGroup(decl, undocumented)
			}
		}
	}
	return wrong
}

func checkFunction(decl *ast.FuncDecl, undocumented func(n ast.Node, name string)) {
	name := decl.Name.Name
	full := name
	if decl.Recv != nil {
		receiver := receiverName(decl.Recv)
		if !ast.IsExported(receiver) || slices.Contains(wellKnown, name) {
			return
		}
		full = receiver + "." + name
	}
	if ast.IsExported(name) && !begins(decl.Doc, name) {
		undocumented(decl, full)
	}
}

func checkGroup(decl *ast.GenDecl, undocumented func(n ast.Node, name string)) {
	for _, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			doc := spec.Doc
			if doc == nil && !decl.Lparen.IsValid() {
				doc = decl.Doc
			}
			if spec.Name.IsExported() && !begins(doc, spec.Name.Name) {
				undocumented(spec, spec.Name.Name)
			}
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				if name.IsExported() && decl.Doc.Text() == "" && spec.Doc.Text() == "" && spec.Comment.Text() == "" {
					undocumented(spec, name.Name)
				}
			}
		}
	}
}

// receiverName returns the type of a method without pointer and parameters.
func receiverName(list *ast.FieldList) string {
	t := list.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// begins reports whether a comment begins with a name, after an optional article.
func begins(doc *ast.CommentGroup, name string) bool {
	text := doc.Text()
	for _, article := range []string{"A ", "An ", "The "} {
		text = strings.TrimPrefix(text, article)
	}
	rest, ok := strings.CutPrefix(text, name)
	return ok && (rest == "" || !isNamePart(rest[0]))
}

func isNamePart(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}
