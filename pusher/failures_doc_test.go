package pusher

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each failure in docs/explanation/failures.md names tests that exist. Each test of a failure is in
// that page.
func TestFailuresAreTested(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/explanation/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### What the pusher survives\n")
	named := map[string]bool{}
	for row := range strings.Lines(section) {
		cells := strings.Split(row, "|")
		if len(cells) != 4 || strings.HasPrefix(cells[1], "---") || strings.TrimSpace(cells[1]) == "failure" {
			continue
		}
		names := regexp.MustCompile("`[^`]+`").FindAllString(cells[2], -1)
		if len(names) == 0 {
			t.Errorf("no test of: %s", cells[1])
		}
		for _, name := range names {
			named[strings.Trim(name, "`")] = true
		}
	}
	tests := failureTests(t)
	stories := slices.DeleteFunc(slices.Sorted(maps.Keys(named)), func(name string) bool { return !strings.HasSuffix(name, ".txtar") })
	for _, story := range stories {
		if _, err := os.Stat(filepath.Join("..", "testscripts", story)); err != nil {
			t.Errorf("there is no such story: %v", err)
		}
		delete(named, story)
	}
	for name := range named { // failures at the start of a program, or of what other packages do
		for _, of := range []string{"internal/bootstrap", "internal/kubeconfig", "compiler", "compiler/controller", "pusher/binding", "snapshots/gitstore"} {
			if declares(t, "../"+of+"/*_test.go", name) {
				delete(named, name)
			}
		}
	}
	if diff := cmp.Diff(tests, slices.Sorted(maps.Keys(named))); diff != "" || len(tests) == 0 {
		t.Errorf("tests that exist, and that are listed (-exist +listed):\n%s", diff)
	}
}

// declares reports whether one of these files declares a test.
func declares(t *testing.T, pattern, name string) bool {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(paths, func(path string) bool {
		text, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)")
	})
}

// failureTests lists the tests, and the stories of [TestStories], that are named as tests of a
// failure.
func failureTests(t *testing.T) []string {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func (TestFailure[A-Z]\w+)\(`)
	var tests []string
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			tests = append(tests, m[1])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	stories, globErr := filepath.Glob("testdata/stories/failure_*.txt")
	if globErr != nil {
		t.Fatal(globErr)
	}
	for _, story := range stories {
		tests = append(tests, filepath.Base(story))
	}
	slices.Sort(tests)
	return tests
}
