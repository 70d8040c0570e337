package cluster

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// slice is an EndpointSlice of a Service in shop, with the port http at 80.
func slice(service string, addresses ...string) *discoveryv1.EndpointSlice {
	port, name := int32(80), "http"
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

// taken returns the result of take as text.
func taken(x *index) string {
	var change Change
	x.take(&change)
	since := change.Since
	var out []string
	for port, endpoints := range change.Endpoints {
		line := port.String()
		if change.Unsaid[port] {
			line += " unsaid"
		}
		for _, e := range endpoints {
			line += " " + e.Address
		}
		out = append(out, line)
	}
	slices.Sort(out)
	for _, at := range since {
		out = append(out, fmt.Sprintf("+%gs", at.Sub(noon).Seconds()))
	}
	return strings.Join(out, "; ")
}

func TestIndex(t *testing.T) {
	t.Parallel()
	x := newIndex()
	steps := []struct {
		what string
		do   func()
		want string
	}{
		{"the first list", func() { x.put("shop/a", slice("web", "10.0.0.1"), time.Time{}) }, "shop/web:http 10.0.0.1"},
		{"nothing", func() {}, ""},
		{"the same again", func() { x.put("shop/a", slice("web", "10.0.0.1"), noon) }, ""},
		{"a second slice", func() { x.put("shop/b", slice("web", "10.0.0.2"), noon) }, "shop/web:http 10.0.0.1 10.0.0.2; +0s"},
		{"two changes at once", func() {
			x.put("shop/b", slice("web", "10.0.0.3"), noon.Add(time.Second))
			x.put("shop/c", slice("api", "10.0.0.4"), noon.Add(2*time.Second))
		}, "shop/api:http 10.0.0.4; shop/web:http 10.0.0.1 10.0.0.3; +1s; +2s"},
		{"an endpoint moves from slice to slice", func() {
			x.put("shop/a", slice("web"), noon)
			x.put("shop/b", slice("web", "10.0.0.1", "10.0.0.3"), noon)
		}, ""},
		{"another Service takes a slice", func() { x.put("shop/b", slice("api", "10.0.0.5"), noon) }, "shop/api:http 10.0.0.4 10.0.0.5; shop/web:http; +0s; +0s"},
		{"slices go", func() {
			x.remove("shop/b", noon, false)
			x.remove("shop/c", noon, false)
			x.remove("shop/never", noon, false)
		}, "shop/api:http; +0s; +0s"},
	}
	for _, step := range steps {
		step.do()
		if got := taken(x); got != step.want {
			t.Errorf("%s: %q, want %q", step.what, got, step.want)
		}
	}
	x.remove("shop/a", noon, false)
	if taken(x); len(x.slices)+len(x.services)+len(x.endpoints)+len(x.dirty) > 0 {
		t.Errorf("remembers what is gone: %+v", x)
	}
}

func TestChangedAt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, text string
		now, want    time.Time
	}{
		"it is not said":                {"", "", noon, noon},
		"it is said":                    {"", "2026-06-01T11:59:58.5Z", noon, noon.Add(-1500 * time.Millisecond)},
		"it was said of another change": {"2026-06-01T11:59:58Z", "2026-06-01T11:59:58Z", noon, noon},
		"another clock":                 {"", "2026-06-01T12:00:02Z", noon, noon},
		"long ago":                      {"", "2026-06-01T11:00:00Z", noon, noon},
		"no time":                       {"", "soon", noon, noon},
		"met for the first time":        {"", "2026-06-01T11:59:58Z", time.Time{}, time.Time{}},
	} {
		if got := changedAt(test.before, test.text, test.now); !got.Equal(test.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Slices of a Service, each read by itself, give the endpoints that all of them give together.
func TestJoinedAsTogether(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		var all []discoveryv1.EndpointSlice
		var parts []known
		for range 1 + random.IntN(4) {
			s := slice("web")
			for _, name := range []string{"http", "metrics"}[:random.IntN(3)] {
				port := int32(80 + random.IntN(2))
				s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Port: &port})
			}
			for range random.IntN(5) {
				of := func() *bool { return []*bool{nil, new(true), new(false)}[random.IntN(3)] }
				s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
					Addresses:  []string{[]string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "nowhere"}[random.IntN(5)]},
					Conditions: discoveryv1.EndpointConditions{Ready: of(), Serving: of(), Terminating: of()},
				})
			}
			all = append(all, *s)
			parts = append(parts, known{endpoints: sortedPorts(live.Endpoints([]discoveryv1.EndpointSlice{*s}))})
		}
		if diff := cmp.Diff(sortedPorts(live.Endpoints(all)), joined(parts), cmp.AllowUnexported(portEndpoints{})); diff != "" {
			t.Fatalf("together and joined differ:\n%s", diff)
		}
	}
}

// An index keeps no object, and one list of the endpoints of a Service with one slice.
func TestIndexKeepsEndpointsOnce(t *testing.T) {
	t.Parallel()
	x, gone := newIndex(), make(chan bool, 1)
	func() {
		s := slice("web", "10.0.0.1")
		runtime.AddCleanup(s, func(gone chan bool) { gone <- true }, gone)
		x.put("shop/a", s, noon)
	}()
	var change Change
	x.take(&change)
	of := service{"shop", "web"}
	if kept, made := x.slices[of][0].endpoints, x.endpoints[of]; &kept[0] != &made[0] || &made[0].endpoints[0] != &change.Endpoints[made[0].port][0] {
		t.Error("the endpoints are there twice")
	}
	eventually.Holds(t, "the object is forgotten", func() bool {
		runtime.GC()
		return len(gone) > 0
	})
	runtime.KeepAlive(x)
}

// Parts of a slice that endpoints do not need are dropped.
func TestTrim(t *testing.T) {
	t.Parallel()
	full, node, zone := slice("web", "10.0.0.1"), "node-7", "a"
	full.Name, full.ResourceVersion, full.ManagedFields = "web-x", "7", []metav1.ManagedFieldsEntry{{Manager: "x"}}
	full.Labels["more"], full.Annotations = "y", map[string]string{triggerAnnotation: "t", "more": "z"}
	full.Endpoints[0].NodeName, full.Endpoints[0].Zone = &node, &zone
	full.Endpoints[0].Addresses = []string{"10.0.0.1", "10.0.0.2"}
	want := slice("web", "10.0.0.1")
	want.Name, want.ResourceVersion, want.Annotations = "web-x", "7", map[string]string{triggerAnnotation: "t"}
	if got, err := trim(full); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("%v\n%s", err, cmp.Diff(want, got))
	}
}
