package cluster

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/kubewatch"
)

// told is a cluster whose events a test sends.
type told struct {
	t *testing.T
	*Cluster
}

// in returns a slice of a Service that is named like its namespace.
func in(namespace, address string) *discoveryv1.EndpointSlice {
	s := slice(namespace, address)
	s.Namespace, s.Name = namespace, "x"
	return s
}

// put sends a slice.
func (l *told) put(s *discoveryv1.EndpointSlice) {
	l.t.Helper()
	l.handle(kubewatch.Event{Query: endpointSlices(s.Namespace), Name: types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, Object: s, At: time.Now()})
}

// gone sends that the slice of a namespace is gone.
func (l *told) gone(namespace string, missing bool) {
	l.t.Helper()
	l.handle(kubewatch.Event{Query: endpointSlices(namespace), Name: types.NamespacedName{Namespace: namespace, Name: "x"}, Missing: missing, At: time.Now()})
}

// take returns which Services have changed endpoints, which have none any more, and whether that is everything.
func (l *told) take() string {
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
	return strings.Join(out, " ")
}

func (l *told) takes(what, want string) {
	l.t.Helper()
	if got := l.take(); got != want {
		l.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// A slice that is missing in a list differs from a deleted one. A Service without endpoints differs from one
// that does not exist.
func TestMissingInAList(t *testing.T) {
	t.Parallel()
	begin := func() *told {
		l := &told{t, New(Connection{}, false)}
		l.put(in("a", "10.0.0.1"))
		l.put(in("b", "10.0.0.2"))
		l.takes("at first", "+a +b")
		return l
	}
	l := begin()
	l.gone("a", true)
	l.takes("a list has nothing of a", "-a unsaid")
	l.put(in("a", "10.0.0.1"))
	l.takes("a is back", "+a")

	l = begin()
	empty := in("a", "")
	empty.Endpoints = nil
	l.put(empty)
	l.takes("a has no endpoints", "-a")

	l = begin()
	l.gone("a", false)
	l.gone("b", false)
	l.takes("both were deleted", "-a -b")
}

// A Secret that is missing in a list differs from a deleted one.
func TestSecretMissingInAList(t *testing.T) {
	t.Parallel()
	name := named("a", "tls")
	for _, missing := range []bool{false, true} {
		c := New(Connection{}, false)
		e := kubewatch.Event{Query: secret(name), Name: types.NamespacedName(name), At: time.Now()}
		there := e
		there.Object = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "tls"}}
		c.handle(there)
		if change := c.Take(); change.Secrets[name] == nil || len(change.Since) != 1 {
			t.Errorf("there: %+v", change)
		}
		e.Missing = missing
		c.handle(e)
		change := c.Take()
		if s, changed := change.Secrets[name]; !changed || s != nil || change.Missing[name] != missing {
			t.Errorf("missing %v: %+v", missing, change)
		}
	}
}
