package testscripts

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
)

// doubleOnly are the lines of a script that a real Dataplane API cannot be part of: a
// fault inside of the API, or a version that is named.
var doubleOnly = regexp.MustCompile(`(?m)^(fault \S+ '?(fail-reload|disk-full)|instances .*-api )`)

// realAPIFor returns the real Dataplane API for the script that runs in a folder, where
// there is one and the script can do with it; "" for the double.
func realAPIFor(workDir string) (string, error) {
	program, _ := dataplanetest.Real(filepath.Join(binaries, "haproxy")) // why there is none, the contract suite says
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
