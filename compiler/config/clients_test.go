package config

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestForwardedCheck(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(*Forwarded)
		want string // "" means no fault
	}{
		"default":              {func(*Forwarded) {}, ""},
		"append":               {func(f *Forwarded) { f.Policy, f.Trusted = AppendForwarded, []string{"10.0.0.0/8", "fd00::/8"} }, ""},
		"nobody is trusted":    {func(f *Forwarded) { f.Policy = KeepForwarded }, "spec.forwarded.policy: is keep, but no network is trusted"},
		"no address":           {func(f *Forwarded) { f.ClientAddress = AddressInHeader }, "spec.forwarded.clientAddress: is header, but no network is trusted"},
		"other policy":         {func(f *Forwarded) { f.Policy = "trust" }, `spec.forwarded.policy: "trust" is none of replace, append and keep`},
		"other address":        {func(f *Forwarded) { f.ClientAddress = "" }, `spec.forwarded.clientAddress: "" is neither connection nor header`},
		"no network":           {func(f *Forwarded) { f.Trusted = []string{"10.0.0.1/8"} }, `spec.forwarded.trusted[0]: "10.0.0.1/8" is not a network`},
		"allowed":              {func(f *Forwarded) { f.AllowHeaders = []string{"CF-Connecting-IP", "X.Y", "my_header"} }, ""},
		"no name":              {func(f *Forwarded) { f.AllowHeaders = []string{"X Y"} }, `spec.forwarded.allowHeaders[0]: "X Y" is not the name of a header`},
		"name of a break":      {func(f *Forwarded) { f.AllowHeaders = []string{"X\nY"} }, `spec.forwarded.allowHeaders[0]: "X\nY" is not the name of a header`},
		"set by HAProxy":       {func(f *Forwarded) { f.AllowHeaders = []string{"X-Real-IP"} }, "spec.forwarded.allowHeaders[0]: X-Real-IP is set by HAProxy"},
		"set, with underscore": {func(f *Forwarded) { f.AllowHeaders = []string{"x_real.ip"} }, "spec.forwarded.allowHeaders[0]: x_real.ip is set by HAProxy"},
		"never":                {func(f *Forwarded) { f.AllowHeaders = []string{"Upgrade"} }, "spec.forwarded.allowHeaders[0]: Upgrade is never passed on"},
	} {
		cfg := Default()
		c.edit(&cfg.Forwarded)
		var got []string
		for _, f := range cfg.Check() {
			got = append(got, f.Error())
		}
		if strings.Join(got, "|") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestBufferSize(t *testing.T) {
	t.Parallel()
	for size, want := range map[Size]string{
		"16k": "", "40960": "", "1m": "", "": `"" is not a size`, "0": `"0" is not a size`, "-1k": `"-1k" is not a size`, "40K": `"40K" is not a size`,
		"15k": "15k is not from 16k to 1024k", "2m": "2m is not from 16k to 1024k", "999999999m": "999999999m is not from 16k to 1024k",
	} {
		if got := size.check(16<<10, 1<<20); got != want {
			t.Errorf("%s: %q, want %q", size, got, want)
		}
	}
	if got := Size("40k").Bytes(); got != 40960 {
		t.Errorf("40k is %d", got)
	}
}

// The page for users lists exactly the names that are removed.
func TestDocumentOfProxyHeaders(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/reference/headers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "These are removed where they do not count:")
	list, _, _ = strings.Cut(list, "These are never passed on:")
	var got []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(list, -1) {
		got = append(got, m[1])
	}
	if !slices.Equal(got, proxyHeaders) {
		t.Errorf("docs/reference/headers.md lists %q, the code %q", got, proxyHeaders)
	}
	for _, name := range ownHeaders {
		if matched, _ := regexp.MatchString(Forwarded{}.Owned(), name); !matched {
			t.Errorf("%s is set beside what a client sends", name)
		}
	}
}

func TestCountriesAreChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		countries Countries
		want      string
	}{
		"nothing":         {Countries{}, ""},
		"a list":          {Countries{ConfigMaps: []string{"edge/countries"}}, ""},
		"both":            {Countries{ConfigMaps: []string{"edge/countries"}, Header: "CF-IPCountry"}, ""},
		"a file":          {Countries{Files: []string{"/etc/hapsnap/countries"}, Header: "X-Country"}, ""},
		"no file":         {Countries{Files: []string{""}}, `spec.countries.files[0]: "" is no path`},
		"no namespace":    {Countries{ConfigMaps: []string{"countries"}}, `spec.countries.configMaps[0]: "countries" is not namespace/name`},
		"no list":         {Countries{Header: "X-Country"}, "spec.countries.header: is set without a list"},
		"an underscore":   {Countries{ConfigMaps: []string{"a/b"}, Header: "X_Country"}, `spec.countries.header: "X_Country" is not the name of a header`},
		"a line break":    {Countries{ConfigMaps: []string{"a/b"}, Header: "X\nY"}, "is not the name of a header"},
		"a space":         {Countries{ConfigMaps: []string{"a/b"}, Header: "X Y"}, "is not the name of a header"},
		"the host":        {Countries{ConfigMaps: []string{"a/b"}, Header: "Host"}, "spec.countries.header: Host has another meaning"},
		"one of HAProxy":  {Countries{ConfigMaps: []string{"a/b"}, Header: "x-real-ip"}, "has another meaning"},
		"of a connection": {Countries{ConfigMaps: []string{"a/b"}, Header: "Transfer-Encoding"}, "has another meaning"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := Default()
			cfg.Countries = c.countries
			got := ""
			for _, e := range cfg.Check() {
				got += e.Error() + "\n"
			}
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
