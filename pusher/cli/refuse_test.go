package cli

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

func TestRefusedNetworks(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	for words, want := range map[string][]netip.Prefix{
		"default":              append(slices.Clone(live.DefaultRefused), netip.MustParsePrefix("10.96.0.1/32")),
		"none":                 nil,
		"10.0.0.0/8,192.0.2.1": {netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32")},
	} {
		f := runFlags{refuse: strings.Split(words, ","), allow: []string{"127.0.0.0/8"}}
		if err := f.refusals(); err != nil || !slices.Equal(f.options.RefuseEndpoints, want) || len(f.options.AllowEndpoints) != 1 {
			t.Errorf("%s: %v, %v", words, f.options.RefuseEndpoints, err)
		}
	}
	for _, word := range []string{"10.0.0.1/8", "example.com", "", "none,default"} {
		f := runFlags{refuse: strings.Split(word, ",")}
		if err := f.refusals(); process.Code(t.Context(), err) != process.ExitUsage {
			t.Errorf("%q: %v", word, err)
		}
	}
}
