package cli

import (
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/process"
)

func TestParseSide(t *testing.T) {
	t.Parallel()
	exists := func(path string) bool { return path == "manifests@r1" || path == "manifests" }
	for name, want := range map[string]struct {
		store, revision string
		code            int
	}{
		"manifests":                       {},
		"manifests@r1":                    {}, // it exists
		"not-there":                       {}, // which reading it will say
		"not-there@x":                     {},
		"store@head":                      {store: "store", revision: "head"},
		"dir:store@r12":                   {store: "dir:store", revision: "r12"},
		"dir:store@12":                    {store: "dir:store", revision: "12"},
		"dir:store@r000012-9f3ac01b2d":    {store: "dir:store", revision: "r000012-9f3ac01b2d"},
		"git+ssh://git@host/edge.git@r3":  {store: "git+ssh://git@host/edge.git", revision: "r3"},
		"git+file:///e.git?branch=b@head": {store: "git+file:///e.git?branch=b", revision: "head"},
		"git+ssh://git:secret@host/e.git": {code: process.ExitUsage},
		"dir:store":                       {code: process.ExitUsage},
		"dir:store@":                      {code: process.ExitUsage},
		"dir:store@newest":                {code: process.ExitUsage},
	} {
		store, revision, err := parseSide(name, exists)
		if store != want.store || revision != want.revision || process.Code(t.Context(), err) != want.code {
			t.Errorf("%s: store %q, revision %q, %v", name, store, revision, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v holds the password", name, err)
		}
	}
}
