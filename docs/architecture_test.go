package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// source is the Go code of the repository: the files by path, the packages, and all tests by name.
type source struct {
	files    map[string]string
	packages map[string]bool
	tests    map[string]bool
}

var testName = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)

func readSource(t *testing.T) source {
	t.Helper()
	s := source{map[string]string{}, map[string]bool{}, map[string]bool{}}
	err := fs.WalkDir(os.DirFS(repository), ".", func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() && (path == "build" || path == "tools" || entry.Name() == "testdata" || path == ".git") {
			return fs.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(filepath.Join(repository, path))
		s.files[path], s.packages[filepath.Dir(path)] = string(text), true
		for _, found := range testName.FindAllStringSubmatch(string(text), -1) {
			s.tests[found[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var (
	code     = regexp.MustCompile("`([^`\n]+)`")
	step     = regexp.MustCompile("`([a-z0-9_/]+\\.go)`\\s+`(\\w+)`")
	inFile   = regexp.MustCompile("`(\\w+)`\\s+(?:in\\s+|\\()`([a-z0-9_/]+\\.go)`")
	asTest   = regexp.MustCompile(`^Test[A-Z]\w*$`)
	asStory  = regexp.MustCompile(`^\w+\.txtar$`)
	asGoFile = regexp.MustCompile(`^[a-z0-9_/]+/[a-z0-9_]+\.go$`)
)

// TestArchitectureNamesWhatIs compares the packages, files, functions, tests and stories that ARCHITECTURE.md
// names with the existing ones. Every package must be named.
func TestArchitectureNamesWhatIs(t *testing.T) {
	t.Parallel()
	s := readSource(t)
	page := pages(t)["ARCHITECTURE.md"]
	named := map[string]bool{}
	for _, found := range code.FindAllStringSubmatch(page, -1) {
		name := found[1]
		named[name] = true
		switch {
		case asTest.MatchString(name) && !s.tests[name]:
			t.Errorf("there is no test %s", name)
		case strings.HasPrefix(name, "TestStories/"):
			if _, err := os.Stat(filepath.Join(repository, "pusher/testdata/stories", strings.TrimPrefix(name, "TestStories/")+".txt")); err != nil {
				t.Errorf("there is no story %s", name)
			}
		case asStory.MatchString(name):
			if _, err := os.Stat(filepath.Join(repository, "testscripts", name)); err != nil {
				t.Errorf("there is no story %s", name)
			}
		case asGoFile.MatchString(name) && s.files[name] == "":
			t.Errorf("there is no file %s", name)
		}
	}
	declares := func(file, name string) {
		if !regexp.MustCompile(`(?m)^(type |func (\([^)]*\) )?)` + name + `\b`).MatchString(s.files[file]) {
			t.Errorf("%s has no function and no type %s", file, name)
		}
	}
	for _, found := range step.FindAllStringSubmatch(page, -1) {
		declares(found[1], found[2])
	}
	for _, found := range inFile.FindAllStringSubmatch(page, -1) {
		declares(found[2], found[1])
	}
	_, table, _ := strings.Cut(page, "\n## Packages\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, found := range code.FindAllStringSubmatch(table, -1) {
		if name := found[1]; strings.Contains(name, "/") && !s.packages[name] {
			t.Errorf("there is no package %s", name)
		}
	}
	for name := range s.packages {
		if !named[name] {
			t.Errorf("ARCHITECTURE.md has no row for package %s", name)
		}
	}
}
