package ingress

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

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
