package cluster

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/snapshots"
)

// lists is a cluster whose watches a test stands in for.
type lists struct {
	t *testing.T
	*Cluster
	followers map[string]*follower // by namespace
}

func newLists(t *testing.T, namespaces ...string) *lists {
	t.Helper()
	l := &lists{t, New(Connection{}, false), map[string]*follower{}}
	l.Want(Wanted{Namespaces: namespaces})
	for _, f := range l.difference(context.Background()) {
		l.followers[f.query.Namespace] = f
	}
	return l
}

// in returns a slice of a Service that has the name of its namespace.
func in(namespace, address string) *discoveryv1.EndpointSlice {
	s := slice(namespace, address)
	s.Namespace, s.Name = namespace, "x"
	return s
}

// list has a namespace list each slice three times, by other names.
func (l *lists) list(namespace string, slices ...*discoveryv1.EndpointSlice) {
	l.t.Helper()
	var list []any
	for _, s := range slices {
		for _, name := range []string{"x", "y", "z"} {
			another := s.DeepCopy()
			another.Name = name
			list = append(list, another)
		}
	}
	_ = l.followers[namespace].heard(nil)
	if err := l.followers[namespace].Replace(list, ""); err != nil {
		l.t.Fatal(err)
	}
}

// take returns which Services have endpoints that changed, and which have none any
// more, and whether that is all to be heard.
func (l *lists) take() string {
	change := l.Take()
	var out []string
	for _, name := range []string{"a", "b"} {
		for port, endpoints := range change.Endpoints {
			if port.Service == name && endpoints == nil {
				if out = append(out, "-"+name); change.Unsaid[port] {
					out = append(out, "unsaid")
				}
			} else if port.Service == name {
				out = append(out, "+"+name)
			}
		}
	}
	if change.Status != nil && change.Status.Trouble != nil {
		out = append(out, "trouble")
	}
	return strings.Join(out, " ")
}

func (l *lists) takes(what, want string) {
	l.t.Helper()
	if got := l.take(); got != want {
		l.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// What is missing in a list is told apart from what was deleted, and what is there
// without endpoints from what is not there.
func TestMissingInAList(t *testing.T) {
	t.Parallel()
	begin := func() *lists {
		l := newLists(t, "a", "b")
		l.list("a", in("a", "10.0.0.1"))
		l.list("b", in("b", "10.0.0.2"))
		l.takes("at first", "+a +b")
		return l
	}
	l := begin()
	l.list("a")
	l.takes("a list has nothing of a", "-a unsaid")
	l.list("a", in("a", "10.0.0.1"))
	l.takes("a is back", "+a")

	l = begin()
	empty := in("a", "")
	empty.Endpoints = nil
	l.list("a", empty)
	l.takes("a has no endpoints", "-a")

	l = begin()
	l.lose("b")
	l.list("a")
	l.takes("a list has nothing of a, and b is not heard of", "-a unsaid trouble")

	l = begin()
	for _, namespace := range []string{"a", "b"} {
		for _, name := range []string{"x", "y", "z"} {
			s := in(namespace, "")
			s.Name = name
			if err := l.followers[namespace].Delete(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.takes("both were deleted", "-a -b")

	l = begin()
	l.Want(Wanted{Namespaces: []string{"b"}})
	f := l.followers["a"]
	l.difference(context.Background())
	if err := f.Add(in("a", "10.0.0.9")); err != nil {
		t.Fatal(err)
	}
	l.takes("nobody wants a any more", "-a")
}

// A Secret that a list came without is told apart from one that was deleted.
func TestSecretMissingInAList(t *testing.T) {
	t.Parallel()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "tls"}}
	for what, gone := range map[string]func(*follower) error{
		"missing": func(f *follower) error { return f.Replace(nil, "") },
		"deleted": func(f *follower) error { return f.Delete(secret) },
	} {
		c := New(Connection{}, false)
		c.Want(Wanted{Secrets: []snapshots.SecretName{named("a", "tls")}})
		f := c.difference(context.Background())[0]
		if err := f.Replace([]any{secret}, ""); err != nil {
			t.Fatal(err)
		}
		c.Take()
		if err := gone(f); err != nil {
			t.Fatal(err)
		}
		change := c.Take()
		if s, changed := change.Secrets[named("a", "tls")]; !changed || s != nil || change.Missing[named("a", "tls")] != (what == "missing") {
			t.Errorf("%s: %+v", what, change)
		}
	}
}

// lose has a namespace be out of reach, until it is listed.
func (l *lists) lose(namespace string) { _ = l.followers[namespace].heard(errGone) }
