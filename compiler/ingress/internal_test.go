package ingress

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/snapshots"
)

func TestCheckPath(t *testing.T) {
	const exact, prefix, specific = networkingv1.PathTypeExact, networkingv1.PathTypePrefix, networkingv1.PathTypeImplementationSpecific
	for _, c := range []struct {
		path string
		kind networkingv1.PathType
		ok   bool
	}{
		{"/", exact, true},
		{"/", prefix, true},
		{"", prefix, false},
		{"", exact, false},
		{"", specific, true},
		{"x", specific, false},
		{"/a//b", prefix, false},
		{"/a//b", specific, true},
		{"/a/.", exact, false},
		{"/a/..b", exact, true},
		{"/.well-known/x", exact, true},
		{"/a%2Fb", prefix, false},
		{"/" + strings.Repeat("a", routing.MaxPath), prefix, true}, // checkUsable checks the length
	} {
		if message, _ := checkPath(c.path, c.kind); (message == "") != c.ok {
			t.Errorf("%s %s: %q, want ok %v", c.kind, printable.Quoted(c.path), message, c.ok)
		}
	}
}

// No two Services share a backend, and no two Secrets a file.
func TestNamesAreUnique(t *testing.T) {
	labels := []string{"a", "b", "a-b", "a-b-a", "b-a"}
	backends, files := map[string]string{routing.Unavailable: "no Service"}, map[string]string{}
	claim := func(names map[string]string, name, by string) {
		if other := names[name]; other != "" {
			t.Errorf("%s and %s are both %s", by, other, name)
		}
		names[name] = by
	}
	for _, namespace := range labels {
		for _, name := range append(labels, "a.b", "b.a") {
			object := snapshots.SecretName{Namespace: namespace, Name: name}
			claim(files, routing.CertificateFile(object), object.String())
			for _, port := range append(labels, "80") {
				claim(backends, backendName(types.NamespacedName(object), port), object.String()+":"+port)
			}
		}
	}
}

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
