package hostname

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Every name of up to five relevant characters is judged as by the API, and so are names at the limits of
// length.
func TestNamesAreJudgedAsByTheAPI(t *testing.T) {
	t.Parallel()
	check := func(name string) {
		if got, want := LabelProblems(name), validation.IsDNS1123Label(name); !slices.Equal(got, want) {
			t.Errorf("label %q: %v, want %v", name, got, want)
		}
		if got, want := SubdomainProblems(name), validation.IsDNS1123Subdomain(name); !slices.Equal(got, want) {
			t.Errorf("subdomain %q: %v, want %v", name, got, want)
		}
	}
	for _, n := range []int{62, 63, 64, 252, 253, 254} {
		check(strings.Repeat("a", n))
		check(strings.Repeat("a.", n/2) + "a")
	}
	names := []string{""}
	for range 5 {
		var longer []string
		for _, name := range names {
			check(name)
			for _, c := range []string{"a", "7", "-", ".", "A", "_"} {
				longer = append(longer, name+c)
			}
		}
		names = longer
	}
}

func TestOf(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "foo.bar.com": "foo.bar.com", "FOO.Bar.com.": "foo.bar.com", "*.Foo.com": ".foo.com",
	} {
		if got := Of(in); got != want {
			t.Errorf("Of(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		name, host string
		want       bool
	}{
		{"a.foo.com", "a.foo.com", true},
		{"A.foo.com", "a.foo.com", true},
		{"*.foo.com", "a.foo.com", true},
		{"*.foo.com", "*.foo.com", true},
		{"*.foo.com", "foo.com", false},
		{"*.foo.com", "a.b.foo.com", false},
		{"a.foo.com", "*.foo.com", false},
	} {
		if got := Covers([]string{"other.example", c.name}, c.host); got != c.want {
			t.Errorf("Covers(%q, %q) = %v", c.name, c.host, got)
		}
	}
}
