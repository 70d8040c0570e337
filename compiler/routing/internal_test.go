package routing

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/snapshots"
)

// These are the bytes that a path may hold, each of them one that a request may
// carry as it is, and that means nothing in a map.
func TestPathBytes(t *testing.T) {
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789" + "-._~" + "!$&'()*+,;=" + ":@" + "/%" + "<>[]^`{|}"
	for c := range 256 {
		path := "/a" + string([]byte{byte(c)}) + "b"
		message, _ := checkUsable(path)
		if want := strings.IndexByte(allowed, byte(c)) >= 0; (message == "") != want {
			t.Errorf("%q: allowed is %v, want %v (%s)", path, message == "", want, message)
		}
	}
}

func TestCheckUsableLength(t *testing.T) {
	for n, want := range map[int]bool{maxPath: true, maxPath + 1: false} {
		if message, _ := checkUsable("/" + strings.Repeat("a", n-1)); (message == "") != want {
			t.Errorf("a path of %d bytes: usable is %v (%s)", n, message == "", message)
		}
	}
}

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
		{"/" + strings.Repeat("a", maxPath), prefix, true}, // which is for checkUsable
	} {
		if message, _ := checkPath(c.path, c.kind); (message == "") != c.ok {
			t.Errorf("%s %s: %q, want ok %v", c.kind, printable.Quoted(c.path), message, c.ok)
		}
	}
}

func TestHostName(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "foo.bar.com": "foo.bar.com", "FOO.Bar.com.": "foo.bar.com", "*.Foo.com": ".foo.com",
	} {
		if got := hostName(in); got != want {
			t.Errorf("hostName(%q) = %q, want %q", in, got, want)
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
		if got := covers([]string{"other.example", c.name}, c.host); got != c.want {
			t.Errorf("covers(%q, %q) = %v", c.name, c.host, got)
		}
	}
}

// Two Services never share a backend, nor two Secrets a file.
func TestNamesAreUnique(t *testing.T) {
	labels := []string{"a", "b", "a-b", "a-b-a", "b-a"}
	backends, files := map[string]string{Unavailable: "no Service"}, map[string]string{}
	claim := func(names map[string]string, name, by string) {
		if other := names[name]; other != "" {
			t.Errorf("%s and %s are both %s", by, other, name)
		}
		names[name] = by
	}
	for _, namespace := range labels {
		for _, name := range append(labels, "a.b", "b.a") {
			object := snapshots.SecretName{Namespace: namespace, Name: name}
			claim(files, certificateFile(object), object.String())
			for _, port := range append(labels, "80") {
				claim(backends, backendName(object, port), object.String()+":"+port)
			}
		}
	}
}
