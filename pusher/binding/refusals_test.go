package binding

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// A refused endpoint is no loss. The addresses of instances are distinguished from other addresses on the same
// hosts, also when instances come and go later.
func TestRefusals(t *testing.T) {
	t.Parallel()
	web, api := snapshots.ServicePort{Namespace: "shop", Service: "web"}, snapshots.ServicePort{Namespace: "shop", Service: "api"}
	good, node, admin := snapshots.Endpoint{Address: "10.1.0.1", Port: 8080}, snapshots.Endpoint{Address: "10.0.0.11", Port: 8080}, snapshots.Endpoint{Address: "10.0.0.11", Port: 5555}
	loop := snapshots.Endpoint{Address: "64:ff9b::7f00:1", Port: 80}
	r := NewRefusals(live.DefaultRefused, nil)
	used := r.filter(map[snapshots.ServicePort][]snapshots.Endpoint{web: {good, loop, node, admin}, api: {loop}})
	if got, there := used[api]; !there || len(got) != 0 {
		t.Errorf("a Service of which all is refused has %v, %v", got, there)
	}
	if !slices.Equal(used[web], []snapshots.Endpoint{good, node, admin}) {
		t.Errorf("used %v", used[web])
	}
	if err := observe.Refused(r.refused).Trouble(); err == nil || !strings.Contains(err.Error(), "[64:ff9b::7f00:1]:80 of shop/api: it is in 127.0.0.0/8; [64:ff9b::7f00:1]:80 of shop/web") {
		t.Errorf("it says %v", err)
	}
	own := map[netip.AddrPort]string{netip.MustParseAddrPort("10.0.0.11:5555"): "the Dataplane API of edge-1"}
	if changed := r.setOwn(own); len(changed) != 1 || !slices.Equal(changed[web], []snapshots.Endpoint{good, node}) {
		t.Errorf("with an instance: %v", changed)
	}
	if changed := r.setOwn(own); len(changed) != 0 {
		t.Errorf("once more: %v", changed)
	}
	if changed := r.setOwn(nil); !slices.Equal(changed[web], []snapshots.Endpoint{good, node, admin}) {
		t.Errorf("without: %v", changed)
	}
	r.filter(map[snapshots.ServicePort][]snapshots.Endpoint{web: nil, api: {good}})
	if err := observe.Refused(r.refused).Trouble(); err != nil || len(r.offered) != 1 {
		t.Errorf("mended: %v, %v", err, r.offered)
	}
}

// Recorded endpoints of a snapshot can be refused by their networks.
func TestRefusalsOfRecordedEndpoints(t *testing.T) {
	t.Parallel()
	web := snapshots.ServicePort{Namespace: "shop", Service: "web"}
	good, loop := snapshots.Endpoint{Address: "10.1.0.1", Port: 80}, snapshots.Endpoint{Address: "2002:7f00:1::", Port: 80}
	content, err := snapshots.MarshalEndpoints(map[snapshots.ServicePort][]snapshots.Endpoint{web: {good, loop}})
	if err != nil {
		t.Fatal(err)
	}
	d := snapshots.Draft{Files: []snapshots.File{
		{Path: snapshots.ConfigFile, Content: []byte("backend b\n    #hapsnap servers shop/web\n")}, {Path: snapshots.EndpointsFile, Content: content},
	}}
	for given, want := range map[bool]int{false: 0, true: 1} {
		r := NewRefusals(nil, nil)
		if given {
			r = NewRefusals(live.DefaultRefused, nil)
		}
		s := d.Number(1, snapshots.ID{})
		p := prepare(s, readConfig(s.Config()), true, &r)
		if p.Err != nil || observe.Refused(p.refused).Count() != want || strings.Contains(fmt.Sprint(p.Servers), loop.Address) != (want == 0) {
			t.Errorf("given %v: refused %v, servers %v, %v", given, p.refused, p.Servers, p.Err)
		}
	}
}

// A namespace with too many endpoints does not affect others. When it has fewer again, all of them are used.
func TestRefusalsOfTooManyEndpoints(t *testing.T) {
	t.Parallel()
	many := func(n int) []snapshots.Endpoint {
		out := make([]snapshots.Endpoint, n)
		for i := range out {
			out[i] = snapshots.Endpoint{Address: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String(), Port: 80}
		}
		return out
	}
	port := func(namespace string, n int) snapshots.ServicePort {
		return snapshots.ServicePort{Namespace: namespace, Service: fmt.Sprint("s", n)}
	}
	offered := map[snapshots.ServicePort][]snapshots.Endpoint{port("good", 0): many(4_000)}
	for n := range 7 {
		offered[port("bad", n)] = many(6_000)
	}
	r := NewRefusals(nil, nil)
	used := r.filter(offered)
	count := map[string]int{}
	for port, endpoints := range used {
		count[port.Namespace] += len(endpoints)
	}
	if count["good"] != 4_000 || count["bad"] != mostOfNamespace || len(used[port("bad", 0)]) != mostOfService || len(used[port("bad", 6)]) != 0 {
		t.Errorf("used: %v", count)
	}
	if text := observe.Refused(r.refused).Trouble().Error(); !strings.Contains(text, "a Service may have 5000 endpoints") || len(text) > 1000 {
		t.Errorf("it is said %q", text)
	}
	used = r.filter(map[snapshots.ServicePort][]snapshots.Endpoint{port("bad", 0): many(3), port("bad", 1): nil})
	if len(used[port("bad", 5)]) != mostOfService || len(used[port("bad", 6)]) != mostOfService-3 || len(used) != 7 {
		t.Errorf("with fewer: %d ports, %d", len(used), len(used[port("bad", 6)]))
	}
}

func TestListeners(t *testing.T) {
	t.Parallel()
	const text = `
global
    stats socket /run/haproxy/stats.sock mode 600 level admin
    stats socket ipv4@*:9999 level admin
    stats timeout 2m
peers edge
    peer edge-1 10.0.0.1:10000
frontend http
    bind :80
    bind *:80 # once
    bind 0.0.0.0:8080,[::]:8081 v4v6
frontend status
bind ipv4@10.0.0.1:8404 # not indented
    bind "quic6@[2001:db8::1]:443" ssl
    bind ${ADDRESS}:9000
    bind :${PORT}
    bind unix@/run/socket
    bind :9100-9102
    bind :9300-9200
    stats uri /stats
    bind
    binding :77
`
	got := ""
	for _, l := range listenersOf([]byte(text)) {
		got += fmt.Sprintf("%s %d, ", l.address, l.port)
	}
	if want := "invalid IP 9999, 10.0.0.1 10000, invalid IP 80, invalid IP 8080, invalid IP 8081, 10.0.0.1 8404, 2001:db8::1 443, invalid IP 9100, invalid IP 9101, invalid IP 9102, "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if all := listenersOf([]byte("frontend f\n    bind :20000-30000\n    bind :8404\n")); len(all) != mostListeners || all[0].port != 8404 {
		t.Errorf("a range of ports leaves no room for others: %d, %v", len(all), all[0])
	}
}

// The other address of a pod with two leads to HAProxy as the first one does, and so do the ports of its node.
func TestOtherAddressesOfInstances(t *testing.T) {
	t.Parallel()
	s := Sources{bindings: &Bindings{prepared: map[snapshots.ID]Prepared{{}: {ofConfig: readConfig([]byte("frontend f\n    bind *:80\n    bind 10.9.9.9:81\n"))}}}}
	own := s.ownAddresses(map[string]Place{"edge-1": {
		API: netip.MustParseAddrPort("10.0.0.11:5555"), Others: []netip.Addr{netip.MustParseAddr("fd00::11")},
		Ports: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:8080")},
	}})
	want := []string{"10.0.0.11:5555", "10.0.0.11:80", "10.9.9.9:81", "192.0.2.1:8080", "[fd00::11]:5555", "[fd00::11]:80"}
	var got []string
	for at := range own {
		got = append(got, at.String())
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("refused are %v, and not %v", got, want)
	}
}
