package snapshots

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var shopWeb = ServicePort{"shop", "web", "http"}

func TestEndpointsAreReadAsWritten(t *testing.T) {
	endpoints := map[ServicePort][]Endpoint{
		shopWeb:                   {{"fd00::1", 80, false}, {"10.0.0.1", 81, true}, {"10.0.0.1", 80, false}},
		{"shop", "api", ""}:       {{"10.0.0.2", 8080, false}},
		{"a", "none", "http"}:     nil,
		{"shop", "api", "metric"}: {},
	}
	data, err := MarshalEndpoints(endpoints)
	want := `apiVersion: hapsnap.dev/v1alpha1
kind: Endpoints
services:
- endpoints: []
  namespace: a
  port: http
  service: none
- endpoints:
  - address: 10.0.0.2
    port: 8080
  namespace: shop
  service: api
- endpoints: []
  namespace: shop
  port: metric
  service: api
- endpoints:
  - address: 10.0.0.1
    port: 80
  - address: 10.0.0.1
    draining: true
    port: 81
  - address: fd00::1
    port: 80
  namespace: shop
  port: http
  service: web
`
	if diff := cmp.Diff(want, string(data)); diff != "" || err != nil {
		t.Errorf("written, %v (-want +got):\n%s", err, diff)
	}
	s := Draft{Files: []File{{EndpointsFile, data}, {ConfigFile, nil}}}.Number(1, ID{})
	got, recorded, err := s.RecordedEndpoints()
	endpoints[shopWeb] = []Endpoint{{"10.0.0.1", 80, false}, {"10.0.0.1", 81, true}, {"fd00::1", 80, false}}
	endpoints[ServicePort{"a", "none", "http"}] = []Endpoint{}
	if diff := cmp.Diff(endpoints, got); diff != "" || err != nil || !recorded {
		t.Errorf("read, %v, %v (-want +got):\n%s", recorded, err, diff)
	}
}

func TestRecordedEndpointsOfNone(t *testing.T) {
	if got, recorded, err := (Snapshot{}).RecordedEndpoints(); got != nil || recorded || err != nil {
		t.Errorf("not recorded: %v, %v, %v", got, recorded, err)
	}
	data, _ := MarshalEndpoints(nil)
	if got, err := ParseEndpoints(data); len(got) != 0 || err != nil {
		t.Errorf("recorded as none: %v, %v", got, err)
	}
}

func TestParseEndpointsRefuses(t *testing.T) {
	const head = "apiVersion: hapsnap.dev/v1alpha1\nkind: Endpoints\nservices:\n"
	for name, text := range map[string]string{
		"nothing":           "",
		"another kind":      "apiVersion: hapsnap.dev/v1alpha1\nkind: Channel\nservices: []\n",
		"an unknown word":   head + "- {namespace: a, service: b, endpoints: [], weight: 1}\n",
		"a service twice":   head + "- {namespace: a, service: b, endpoints: []}\n- {namespace: a, service: b, endpoints: []}\n",
		"a name":            head + "- {namespace: a, service: b, endpoints: [{address: localhost, port: 80}]}\n",
		"a zone":            head + "- {namespace: a, service: b, endpoints: [{address: \"fe80::1%eth0\", port: 80}]}\n",
		"no port":           head + "- {namespace: a, service: b, endpoints: [{address: 10.0.0.1}]}\n",
		"an endpoint twice": head + "- {namespace: a, service: b, endpoints: [{address: 10.0.0.1, port: 80}, {address: 10.0.0.1, port: 80}]}\n",
	} {
		if got, err := ParseEndpoints([]byte(text)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
