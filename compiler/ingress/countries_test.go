package ingress

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// countryConfigMap returns a ConfigMap with texts under the keys a, b and so on.
func countryConfigMap(name string, texts ...string) inputs.Object[corev1.ConfigMap] {
	data := map[string]string{}
	for i, text := range texts {
		data[string(rune('a'+i))] = text
	}
	return inputs.Object[corev1.ConfigMap]{Ref: diag.Object{Kind: "ConfigMap", Namespace: "edge", Name: name}, Value: &corev1.ConfigMap{Data: data}}
}

func TestCountryList(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		objects []inputs.Object[corev1.ConfigMap]
		want    string // the list, or the finding
	}{
		"both families, one order": {
			[]inputs.Object[corev1.ConfigMap]{countryConfigMap("one", "2001:db8::/32 FR\n192.0.2.0/24 de\n", "10.0.0.1 US-CA"), countryConfigMap("two", "\n# all\n 192.0.2.0/25\tAT # more\r\n192.0.2.0/24 DE")},
			"10.0.0.1/32 US-CA, 192.0.2.0/24 DE, 192.0.2.0/25 AT, 2001:db8::/32 FR",
		},
		"bits beyond the length": {one("192.0.2.0/24 DE\n10.0.0.1/8 FR"), `key a, line 2: "10.0.0.1/8" has bits beyond its length`},
		"no network":             {one("DE 192.0.2.0/24"), `key a, line 1: "DE" is not a network`},
		"no code":                {one("192.0.2.0/24"), `key a, line 1: "192.0.2.0/24" does not stand with one code`},
		"two codes":              {one("192.0.2.0/24 DE AT"), `key a, line 1: "192.0.2.0/24" does not stand with one code`},
		"a name":                 {one("192.0.2.0/24 Germany"), `key a, line 1: "Germany" is not the code of a country`},
		"letters that grow":      {one("192.0.2.0/24 ßS"), `is not the code of a country`},
		"of a spreadsheet":       {one("192.0.2.0/24,DE"), `key a, line 1: "192.0.2.0/24,DE" is not a network`},
		"IPv4 as IPv6":           {one("::ffff:192.0.2.0/120 DE"), "is an IPv4 network in the form of IPv6"},
		"two countries":          {one("192.0.2.0/24 DE\n192.0.2.0/24 AT"), "key a, line 2: 192.0.2.0/24 is of AT, and of DE in line 1 of key a"},
		"nothing":                {one("# soon\n"), "has no line with a network"},
		"no text":                {[]inputs.Object[corev1.ConfigMap]{countryConfigMap("one")}, "has no text with networks"},
		"one is not there":       {one("192.0.2.0/24 DE")[:0], "ConfigMap edge/one: does not exist"},
		"many wrong":             {one(strings.Repeat("x\n", 50)), "line 20: \"x\" is not a network, and 30 more lines are wrong"},
		"too many":               {one(strings.Repeat("192.0.2.0/24 DE\n", 1_000_000+1)), "the list has more than 1000000 networks"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{CountryHeader: true, Countries: []string{"edge/one"}}
			if len(c.objects) > 1 {
				cfg.Countries = []string{"edge/two", "edge/one", "edge/one"}
			}
			model, found := Translate(inputs.Inputs{ConfigMaps: c.objects}, cfg)
			got := ""
			if model.Countries != nil {
				for _, n := range model.Countries.Networks {
					got += fmt.Sprintf(", %s %s", n.Network, n.Code)
				}
			}
			for _, d := range found {
				got += "\n" + d.String()
			}
			if !strings.Contains(got, c.want) || (model.Countries == nil) != (len(found) > 0) {
				t.Errorf("got %s", got)
			}
		})
	}
}

func one(text string) []inputs.Object[corev1.ConfigMap] {
	return []inputs.Object[corev1.ConfigMap]{countryConfigMap("one", text)}
}

// The list is read again only if one of its texts has changed.
func TestCountryMemo(t *testing.T) {
	t.Parallel()
	memo := &access.CountryMemo{}
	read := func(text string) *routing.CountryList {
		model, _ := Translate(inputs.Inputs{ConfigMaps: one(text)}, Config{CountryHeader: true, Countries: []string{"edge/one"}, CountryMemo: memo})
		return model.Countries
	}
	first := read("192.0.2.0/24 DE")
	if again := read("192.0.2.0/24 DE"); first == nil || again != first {
		t.Error("the same text was read again")
	}
	if read("192.0.2.0/24 nonsense") != nil {
		t.Error("a wrong text gives a list")
	}
	if next := read("192.0.2.0/24 AT"); next == nil || next.Networks[0].Code != "AT" {
		t.Errorf("another text was not read: %v", next)
	}
}

// Reviews and the loop may read the list at the same time.
func TestCountryMemoIsShared(t *testing.T) {
	t.Parallel()
	memo := &access.CountryMemo{}
	var readers sync.WaitGroup
	for _, code := range []string{"DE", "AT"} {
		readers.Go(func() {
			for range 20 {
				model, _ := Translate(inputs.Inputs{ConfigMaps: one("192.0.2.0/24 " + code)}, Config{CountryHeader: true, Countries: []string{"edge/one"}, CountryMemo: memo})
				if got := model.Countries.Networks[0].Code; got != code {
					t.Errorf("read %s, want %s", got, code)
				}
			}
		})
	}
	readers.Wait()
}

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
