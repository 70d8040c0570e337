package routing

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Every name of up to five characters, of those that make a difference, is judged as the API
// judges it; so are those at the limits of length.
func TestNamesAreJudgedAsByTheAPI(t *testing.T) {
	t.Parallel()
	check := func(name string) {
		if got, want := labelProblems(name), validation.IsDNS1123Label(name); !slices.Equal(got, want) {
			t.Errorf("label %q: %v, want %v", name, got, want)
		}
		if got, want := subdomainProblems(name), validation.IsDNS1123Subdomain(name); !slices.Equal(got, want) {
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
