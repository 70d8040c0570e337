package assert

import (
	"bytes"
	"fmt"
	"os"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/internal/process"
)

// Find returns the tests in files, and in directories and below them, by file and
// place, and what is wrong with them. Other files of directories are passed over.
// The error is for what cannot be read, and a usage error where there is no test.
func Find(paths ...string) ([]Test, []diag.Diagnostic, error) {
	var tests []Test
	var found []diag.Diagnostic
	seen := map[string]bool{}
	for _, path := range paths {
		files, err := manifests.Files(path)
		if err != nil {
			return nil, nil, err
		}
		before := len(tests) + len(found)
		for _, file := range files {
			if seen[file] {
				continue
			}
			seen[file] = true
			more, wrong, err := readFile(file)
			if err != nil {
				return nil, nil, err
			}
			tests, found = append(tests, more...), append(found, wrong...)
		}
		if len(tests)+len(found) == before {
			return nil, nil, process.WithHint(process.Usage("there is no %s in %s", Kind, path), "docs/how-to/testing.md says how to write one")
		}
	}
	slices.SortStableFunc(tests, func(a, b Test) int { return a.position().Compare(b.position()) })
	return tests, diag.Sort(found), nil
}

// readFile reads the tests of a file, if it says that it has any.
func readFile(file string) ([]Test, []diag.Diagnostic, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("read tests: %w", err)
	}
	if !bytes.Contains(data, []byte(Kind)) {
		return nil, nil, nil
	}
	set, err := manifests.Read(file)
	if err != nil {
		return nil, nil, err
	}
	tests, found := read(file, set)
	return tests, found, nil
}
