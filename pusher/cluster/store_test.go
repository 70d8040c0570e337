package cluster

import (
	"context"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
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
				out = append(out, "-"+name)
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

// A list in which everything is missing is not believed before the API server has
// shown that it knows any EndpointSlice at all.
func TestListOfNothing(t *testing.T) {
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
	l.takes("a is gone, b is known by the same server", "-a")

	l = begin()
	l.lose("b")
	l.list("a")
	l.takes("a is gone, and b not heard of", "trouble")
	l.list("b")
	l.takes("both are gone", "trouble")
	l.list("b", in("b", "10.0.0.3"))
	l.takes("b is back", "-a +b")

	l = begin()
	l.lose("b")
	l.list("a")
	l.list("b")
	l.takes("both are gone", "trouble")
	if err := l.followers["a"].Add(in("a", "10.0.0.9")); err != nil {
		t.Fatal(err)
	}
	l.takes("one comes", "+a -b")

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

// lose has a namespace be out of reach, until it is listed.
func (l *lists) lose(namespace string) { _ = l.followers[namespace].heard(errGone) }
