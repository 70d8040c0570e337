package ingress

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// A file is a part of the list, like a ConfigMap. Findings have the line, and never its content: it may be the
// wrong file.
func TestCountryFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files []access.CountryFile
		want  string
	}{
		"one":                   {[]access.CountryFile{{Path: "/v/a", Text: "192.0.2.0/24 DE"}}, "192.0.2.0/24 DE"},
		"another, and the list": {[]access.CountryFile{{Path: "/v/a", Text: "192.0.2.0/24 DE"}, {Path: "/v/b", Text: "2001:db8::/32 FR"}}, "192.0.2.0/24 DE, 2001:db8::/32 FR"},
		"one that is not there": {[]access.CountryFile{{Path: "/v/a", Text: "192.0.2.0/24 DE"}, {Path: "/v/b", Wrong: "does not exist"}}, "/v/b: does not exist, so that there is no list of countries"},
		"nothing but comments":  {[]access.CountryFile{{Path: "/v/a", Text: "# soon"}}, "/v/a: has no line with a network"},
		"one with nothing":      {[]access.CountryFile{{Path: "/v/a", Text: "192.0.2.0/24 DE"}, {Path: "/v/b", Text: "# soon"}}, "/v/b: has no line with a network"},
		"another file":          {[]access.CountryFile{{Path: "/v/a", Text: "192.0.2.0/24 DE\neyJhbGciOi.secret"}}, "/v/a:2: this is not a network and a code"},
		"two countries":         {[]access.CountryFile{{Path: "/v/a", Text: "192.0.2.0/24 DE"}, {Path: "/v/b", Text: "192.0.2.0/24 AT"}}, "/v/b:1: 192.0.2.0/24 is of AT, and of DE in line 1 of /v/a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model, found := Translate(inputs.Inputs{}, Config{CountryHeader: true, CountryFiles: c.files})
			got := ""
			if model.Countries != nil {
				var all []string
				for _, n := range model.Countries.Networks {
					all = append(all, fmt.Sprintf("%s %s", n.Network, n.Code))
				}
				got = strings.Join(all, ", ")
			}
			for _, d := range found {
				got += "\n" + d.String()
			}
			if !strings.Contains(got, c.want) || (model.Countries == nil) != (len(found) > 0) || strings.Contains(got, "secret") {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
