package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// comments are the comments of a package about its fields and types.
type comments struct {
	fields map[string]string // by "Type.Field"
	// values describe what a named type accepts: its constants, or the first sentence of its comment.
	values map[string]string
	enums  map[string][]string // the constants of a named type
}

// readComments reads the packages in folders, without their tests.
func readComments(folders ...string) (comments, error) {
	var paths []string
	for _, folder := range folders {
		found, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			return comments{}, err
		}
		paths = append(paths, found...)
	}
	c := comments{fields: map[string]string{}, values: map[string]string{}, enums: map[string][]string{}}
	constants := map[string][]string{}
	for _, path := range slices.Sorted(slices.Values(paths)) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return comments{}, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.ParseComments)
		if err != nil {
			return comments{}, err
		}
		c.read(file, constants)
	}
	for name, values := range constants {
		c.values[name] = oneOf(values)
		for _, value := range values {
			c.enums[name] = append(c.enums[name], strings.Trim(value, "`"))
		}
	}
	return c, nil
}

// read adds what one file says.
func (c comments) read(file *ast.File, constants map[string][]string) {
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range group.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				c.typeSpec(s, group.Doc)
			case *ast.ValueSpec:
				constant(s, constants)
			}
		}
	}
}

func (c comments) typeSpec(s *ast.TypeSpec, doc *ast.CommentGroup) {
	fields, ok := s.Type.(*ast.StructType)
	if !ok {
		sentence, _, _ := strings.Cut(oneParagraph(doc)+" ", ". ")
		c.values[s.Name.Name] = strings.TrimPrefix(strings.TrimPrefix(sentence, s.Name.Name+" "), "is ")
		return
	}
	for _, f := range fields.Fields.List {
		for _, name := range f.Names {
			c.fields[s.Name.Name+"."+name.Name] = oneParagraph(f.Doc)
		}
	}
}

// constant adds the texts that a constant with a type of its own may be.
func constant(s *ast.ValueSpec, constants map[string][]string) {
	named, ok := s.Type.(*ast.Ident)
	if !ok || len(s.Values) == 0 {
		return
	}
	literal, ok := s.Values[0].(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return
	}
	if text, err := strconv.Unquote(literal.Value); err == nil && text != "" {
		constants[named.Name] = append(constants[named.Name], "`"+text+"`")
	}
}

// oneOf returns "a, b or c".
func oneOf(values []string) string {
	last := len(values) - 1
	if last == 0 {
		return values[0]
	}
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

// oneParagraph returns a comment on one line.
func oneParagraph(doc *ast.CommentGroup) string {
	return strings.Join(strings.Fields(doc.Text()), " ")
}

func TestOneOf(t *testing.T) {
	t.Parallel()
	for want, values := range map[string][]string{"a": {"a"}, "a or b": {"a", "b"}, "a, b or c": {"a", "b", "c"}} {
		if got := oneOf(values); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
