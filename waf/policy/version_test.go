package policy

import (
	"io/fs"
	"strings"
	"testing"

	coreruleset "github.com/corazawaf/coraza-coreruleset/v4"
)

// The version that messages and snapshots name is that of the rules in go.mod.
func TestRulesVersion(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(coreruleset.FS, "@owasp_crs/*.conf")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	rules := 0
	for _, file := range files {
		text, err := fs.ReadFile(coreruleset.FS, file)
		if err != nil {
			t.Fatal(err)
		}
		of, named := strings.Count(string(text), "ver:'OWASP_CRS/"), strings.Count(string(text), "ver:'OWASP_CRS/"+RulesVersion+"'")
		if of != named {
			t.Errorf("%s: %d of %d rules are of another version than %s", file, of-named, of, RulesVersion)
		}
		rules += of
	}
	if rules < 300 {
		t.Errorf("only %d rules name a version", rules)
	}
}
