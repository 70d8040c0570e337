package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	at := func(text string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{triggerAnnotation: text}}}
	}
	for name, test := range map[string]struct {
		old, s    *discoveryv1.EndpointSlice
		now, want time.Time
	}{
		"it is not said":                {nil, slice("web"), noon, noon},
		"it is said":                    {nil, at("2026-06-01T11:59:58.5Z"), noon, noon.Add(-1500 * time.Millisecond)},
		"it was said of another change": {at("2026-06-01T11:59:58Z"), at("2026-06-01T11:59:58Z"), noon, noon},
		"another clock":                 {nil, at("2026-06-01T12:00:02Z"), noon, noon},
		"long ago":                      {nil, at("2026-06-01T11:00:00Z"), noon, noon},
		"no time":                       {nil, at("soon"), noon, noon},
		"met for the first time":        {nil, at("2026-06-01T11:59:58Z"), time.Time{}, time.Time{}},
	} {
		if got := changedAt(test.old, test.s, test.now); !got.Equal(test.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
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
