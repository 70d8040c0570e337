package layers

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// link is [Name], [Type.Member], [pkg.Name] or [pkg.Type.Member]. Words in capitals are arguments of commands.
	link = regexp.MustCompile(`(?:^|[\s(])\[\*?([A-Za-z]\w*[a-z]\w*(?:\.[A-Za-z]\w*){0,2})\](?:[\s.,;:)'-]|$)`)
	// subject is a first word in the place of a name, with its verb. Some such words are not names of code.
	subject = regexp.MustCompile(`^(?:[a-z]\w+ [a-z]+s|[A-Z]\w+ (?:returns|reports))\b`)
	noName  = regexp.MustCompile(`^(age|git|haproxy|helm|kubectl|kustomize|HAProxy|Nobody|Nothing|Everything|)$`)
)

// TestCommentsNameWhatIs checks the comments outside of tests. A link to a name of the module must lead to it.
// A doc comment must not begin with a former name of its subject.
func TestCommentsNameWhatIs(t *testing.T) {
	t.Parallel()
	set, files, names := token.NewFileSet(), map[string]*ast.File{}, map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if path == "../../build" && entry.IsDir() {
			return fs.SkipDir
		} else if err == nil && filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go") {
			files[path], err = parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		}
		return err
	})
	if err != nil || len(files) < 100 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for path, file := range files {
		pkg := filepath.Base(filepath.Dir(path))
		names[pkg] = true
		declarations(file, func(name string, doc *ast.CommentGroup) {
			names[pkg+"."+name] = true
			first, _, _ := strings.Cut(subject.FindString(doc.Text()), " ")
			if first != name[strings.LastIndexByte(name, '.')+1:] && !noName.MatchString(first) {
				t.Errorf("%s: the comment of %s begins with %q", set.Position(doc.Pos()), name, first)
			}
		})
	}
	for path, file := range files {
		for _, comment := range file.Comments {
			for _, found := range link.FindAllStringSubmatch(comment.Text(), -1) {
				pkg, name, _ := strings.Cut(found[1], ".")
				if here := filepath.Base(filepath.Dir(path)); name == "" || names[here+"."+pkg] {
					pkg, name = here, found[1]
				}
				typ, _, _ := strings.Cut(name, ".")
				if names[pkg] && !names[pkg+"."+name] && !names[pkg+"."+typ+".*"] && !names[found[1]] {
					t.Errorf("%s: [%s] names nothing", set.Position(comment.Pos()), found[1])
				}
			}
		}
	}
}

// declarations yields the names of a file with their comments. Members are Type.Member. Type.* stands for the
// embedded ones.
func declarations(file *ast.File, yield func(string, *ast.CommentGroup)) {
	typ, group := "", (*ast.CommentGroup)(nil)
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncDecl:
			if typ = ""; n.Recv != nil {
				typ = strings.TrimPrefix(types.ExprString(n.Recv.List[0].Type), "*") + "."
			}
			yield(typ+n.Name.Name, n.Doc)
		case *ast.GenDecl:
			if group = n.Doc; n.Lparen.IsValid() {
				group = nil
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				yield(name.Name, []*ast.CommentGroup{cmp.Or(n.Doc, group), nil}[min(i, 1)])
			}
		case *ast.TypeSpec:
			typ = n.Name.Name + "."
			yield(n.Name.Name, cmp.Or(n.Doc, group))
		case *ast.Field:
			for _, name := range append(n.Names, ast.NewIdent("*"))[:max(len(n.Names), 1)] {
				yield(typ+name.Name, nil)
			}
		}
		_, function := node.(*ast.FuncDecl)
		_, field := node.(*ast.Field)
		return !function && !field
	})
}
