package main

import "testing"

// These are the limits in ARCHITECTURE.md.
func TestLimits(t *testing.T) {
	t.Parallel()
	const mostExported, mostFiles, mostOfRunner = 80, 5, 6000
	m, err := measure("../..")
	if err != nil {
		t.Fatal(err)
	}
	if m.files < 100 || len(m.types) < 100 || len(m.exported) < 50 {
		t.Fatalf("%d files, %d types and %d packages were measured", m.files, len(m.types), len(m.exported))
	}
	for folder, n := range m.exported {
		if n > mostExported {
			t.Errorf("package %s has %d exported names, at most %d are to be had", folder, n, mostExported)
		}
	}
	if lines := m.tests["../../pusher"]; lines == 0 || lines > mostOfRunner {
		t.Errorf("the tests of package pusher have %d lines, at most %d are to be had", lines, mostOfRunner)
	}
	for name, of := range m.types {
		if len(of.files) > mostFiles {
			t.Errorf("type %s has methods in %d files, at most %d are to be had", name, len(of.files), mostFiles)
		}
	}
}
