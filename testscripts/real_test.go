package testscripts

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
)

// doubleOnly matches lines of a script for which a real Dataplane API cannot be used: a fault inside of the
// API, or a named version.
var doubleOnly = regexp.MustCompile(`(?m)^(fault \S+ '?(fail-reload|disk-full)|instances .*-api )`)

// realAPIFor returns the real Dataplane API for the script in a folder, if there is one and the script can use
// it. It returns "" for the double.
func realAPIFor(workDir string) (string, error) {
	program, _ := dataplanetest.Real(filepath.Join(binaries, "haproxy")) // the contract suite reports why there is none
	if program == "" {
		return "", nil
	}
	name := strings.TrimPrefix(filepath.Base(workDir), "script-")
	script, err := os.ReadFile(name + ".txtar")
	if err != nil || doubleOnly.Match(script) {
		return "", err
	}
	return filepath.Abs(program)
}
