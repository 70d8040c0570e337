package live

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/snapshots"
)

func ptr[T any](v T) *T { return &v }

// slice is an EndpointSlice of shop/web with the port http at 8080.
func slice(endpoints ...discoveryv1.Endpoint) discoveryv1.EndpointSlice {
	return discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-x", Labels: map[string]string{"kubernetes.io/service-name": "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr(int32(8080)), Protocol: ptr(corev1.ProtocolTCP)}},
		Endpoints:   endpoints,
	}
}

// at is an endpoint with the conditions ready, serving and terminating, each "t", "f" or "-" for unset.
func at(address, conditions string) discoveryv1.Endpoint {
	condition := func(i int) *bool {
		if conditions[i] == '-' {
			return nil
		}
		return ptr(conditions[i] == 't')
	}
	return discoveryv1.Endpoint{
		Addresses:  []string{address},
		Conditions: discoveryv1.EndpointConditions{Ready: condition(0), Serving: condition(1), Terminating: condition(2)},
	}
}

var web = snapshots.ServicePort{Namespace: "shop", Service: "web", Port: "http"}

func TestConditions(t *testing.T) {
	endpoint := func(draining bool) map[snapshots.ServicePort][]snapshots.Endpoint {
		return map[snapshots.ServicePort][]snapshots.Endpoint{web: {{Address: "10.0.0.1", Port: 8080, Draining: draining}}}
	}
	none := map[snapshots.ServicePort][]snapshots.Endpoint{}
	for conditions, want := range map[string]map[snapshots.ServicePort][]snapshots.Endpoint{
		"---": endpoint(false), // unset is ready
		"ttf": endpoint(false),
		"t-t": endpoint(false), // of a Service that publishes addresses that are not ready
		"ftt": endpoint(true),
		"fft": none,
		"ftf": none, // it serves and is not leaving: its readiness gate is closed
		"f-t": none, // an unset serving means the same as ready
		"f--": none,
	} {
		if diff := cmp.Diff(want, Endpoints([]discoveryv1.EndpointSlice{slice(at("10.0.0.1", conditions))})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", conditions, diff)
		}
	}
}

func TestEndpoints(t *testing.T) {
	with := func(change func(*discoveryv1.EndpointSlice)) discoveryv1.EndpointSlice {
		s := slice(at("10.0.0.1", "---"))
		change(&s)
		return s
	}
	for _, tt := range []struct {
		name   string
		slices []discoveryv1.EndpointSlice
		want   map[snapshots.ServicePort][]snapshots.Endpoint
	}{
		{"several slices, each address once, sorted", []discoveryv1.EndpointSlice{
			slice(at("10.0.0.2", "---"), at("10.0.0.1", "---")), slice(at("10.0.0.1", "---"), at("10.0.0.3", "ftt"), at("10.0.0.3", "ftt")),
		}, map[snapshots.ServicePort][]snapshots.Endpoint{web: {{Address: "10.0.0.1", Port: 8080}, {Address: "10.0.0.2", Port: 8080}, {Address: "10.0.0.3", Port: 8080, Draining: true}}}},
		{"ready in one slice and leaving in another", []discoveryv1.EndpointSlice{
			slice(at("10.0.0.1", "ftt"), at("10.0.0.2", "t--")), slice(at("10.0.0.1", "t--"), at("10.0.0.2", "ftt")),
		}, map[snapshots.ServicePort][]snapshots.Endpoint{web: {{Address: "10.0.0.1", Port: 8080}, {Address: "10.0.0.2", Port: 8080}}}},
		{"IPv6, in its shortest form", []discoveryv1.EndpointSlice{
			with(func(s *discoveryv1.EndpointSlice) {
				s.AddressType = discoveryv1.AddressTypeIPv6
				s.Endpoints = []discoveryv1.Endpoint{at("FD00:0:0::1", "---"), at("fd00::1", "---")}
			}),
		}, map[snapshots.ServicePort][]snapshots.Endpoint{web: {{Address: "fd00::1", Port: 8080}}}},
		{"several ports, one without a name", []discoveryv1.EndpointSlice{
			with(func(s *discoveryv1.EndpointSlice) {
				s.Ports = append(s.Ports, discoveryv1.EndpointPort{Port: ptr(int32(9090))})
			}),
		}, map[snapshots.ServicePort][]snapshots.Endpoint{
			web:                                 {{Address: "10.0.0.1", Port: 8080}},
			{Namespace: "shop", Service: "web"}: {{Address: "10.0.0.1", Port: 9090}},
		}},
		{"what a proxy cannot connect to", []discoveryv1.EndpointSlice{
			with(func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN }),
			with(func(s *discoveryv1.EndpointSlice) { s.Labels = nil }),
			with(func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = nil }),
			with(func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = ptr(int32(70000)) }),
			with(func(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = ptr(corev1.ProtocolUDP) }),
			with(func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = nil }),
			slice(at("web.example", "---"), at("fe80::1%eth0", "---"), at("0.0.0.0", "---"), at("10.0.0.1:80", "---")),
		}, map[snapshots.ServicePort][]snapshots.Endpoint{}},
		{"the first address of several", []discoveryv1.EndpointSlice{
			with(func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"10.0.0.1", "10.0.0.2"} }),
		}, map[snapshots.ServicePort][]snapshots.Endpoint{web: {{Address: "10.0.0.1", Port: 8080}}}},
		{"nothing", nil, map[snapshots.ServicePort][]snapshots.Endpoint{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 5 {
				if diff := cmp.Diff(tt.want, Endpoints(tt.slices)); diff != "" {
					t.Fatalf("endpoints (-want +got):\n%s", diff)
				}
				rand.Shuffle(len(tt.slices), func(i, j int) { tt.slices[i], tt.slices[j] = tt.slices[j], tt.slices[i] })
			}
		})
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	r := Refusal{
		Networks: append(slices.Clone(DefaultRefused), netip.MustParsePrefix("10.96.0.1/32")),
		Own:      map[netip.AddrPort]string{netip.MustParseAddrPort("10.0.0.11:5555"): "the Dataplane API of edge-1"},
	}
	for address, refused := range map[string]bool{
		"10.1.2.3": false, "2001:db8::1": false, "192.168.0.1": false, "64:ff9b::a01:203": false, "2002:a01:203::1": false, "100.64.0.1": false,
		"127.0.0.1": true, "127.9.9.9": true, "0.0.0.0": true, "0.1.2.3": true, "169.254.169.254": true, "224.0.0.1": true, "255.255.255.255": true,
		"::": true, "::1": true, "fe80::1": true, "ff02::1": true,
		"::ffff:127.0.0.1": true, "::ffff:0:127.0.0.1": true, "::127.0.0.1": true, "64:ff9b::7f00:1": true, "64:ff9b:1::7f00:1": true, "2002:7f00:1::": true,
		"2001:0:1:2:3:4:80ff:fffe": true, "64:ff9b::a9fe:a9fe": true, "2002:a9fe:a9fe::1": true, "::ffff:10.1.2.3": false,
		"100.100.100.200": true, "64:ff9b::6464:64c8": true, "168.63.129.16": true, "192.0.0.192": true, "fd00:ec2::254": true, "fd00:ec2::23": true, "fd20:ce::254": true,
		"100.100.100.201": false, "fd00:ec3::1": false, "fd20:ce::1": false,
		"10.96.0.1": true, "64:ff9b::a60:1": true,
		"10.0.0.11": true, "::ffff:10.0.0.11": true, "64:ff9b::a00:b": true,
	} {
		used, told := r.Split([]snapshots.Endpoint{{Address: "10.9.9.9", Port: 5555}, {Address: address, Port: 5555}})
		if (len(told) == 1) != refused || len(used)+len(told) != 2 {
			t.Errorf("%s: used %v, refused %v", address, used, told)
		}
	}
	// Another port at an instance's address belongs to another program on the same node.
	if used, _ := r.Split([]snapshots.Endpoint{{Address: "10.0.0.11", Port: 8080}}); len(used) != 1 {
		t.Error("a port beside the Dataplane API is refused")
	}
	if _, told := r.Split([]snapshots.Endpoint{{Address: "10.0.0.11", Port: 5555}}); !strings.Contains(told[0].Reason, "the Dataplane API of edge-1") {
		t.Errorf("it says %v", told)
	}
	r.Allowed = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	if used, _ := r.Split([]snapshots.Endpoint{{Address: "127.0.0.1", Port: 80}}); len(used) != 1 {
		t.Error("what is allowed is refused")
	}
	if used, _ := (Refusal{}).Split([]snapshots.Endpoint{{Address: "127.0.0.1", Port: 80}}); len(used) != 1 {
		t.Error("the zero value refuses something")
	}
}
