package policy

import (
	"io/fs"
	"strings"
	"testing"

	coreruleset "github.com/corazawaf/coraza-coreruleset/v4"

	"github.com/hapsnap/hapsnap/waf/agent/previous"
)

// The versions that messages and snapshots name are those of the rules that agents carry.
func TestRulesVersions(t *testing.T) {
	t.Parallel()
	for version, files := range map[string]fs.FS{RulesVersion: coreruleset.FS, PreviousRulesVersion: previous.FS} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			checkVersion(t, files, version)
		})
	}
}

func checkVersion(t *testing.T, of fs.FS, version string) {
	t.Helper()
	files, err := fs.Glob(of, "@owasp_crs/*.conf")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	rules := 0
	for _, file := range files {
		text, err := fs.ReadFile(of, file)
		if err != nil {
			t.Fatal(err)
		}
		of, named := strings.Count(string(text), "ver:'OWASP_CRS/"), strings.Count(string(text), "ver:'OWASP_CRS/"+version+"'")
		if of != named {
			t.Errorf("%s: %d of %d rules are of another version than %s", file, of-named, of, version)
		}
		rules += of
	}
	if rules < 300 {
		t.Errorf("only %d rules name a version", rules)
	}
}
