package ingress

import (
	"testing"

	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// A line that refuses requests is recognized in quotes too.
func TestRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"http-request deny if { src 192.0.2.1 }":   true,
		`http-request "deny"`:                      true,
		`http-request de\x6ey`:                     true,
		"http-request # deny":                      false,
		`tcp-request content 'reject' if WAIT_END`: true,
		"tcp-request inspect-delay 5s":             false,
		`http-request set-header x "deny"`:         false,
		"http-request return status 403 # or so":   true,
		`http-request set-header x "y" # reject`:   false,
	} {
		line, err := policy.NewLine(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := refuses(routing.SnippetLine{Line: line}); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
