package live

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
)

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
		"10.96.0.1": true, "64:ff9b::a60:1": true,
		"10.0.0.11": true, "::ffff:10.0.0.11": true, "64:ff9b::a00:b": true,
	} {
		used, told := r.Split([]snapshots.Endpoint{{Address: "10.9.9.9", Port: 5555}, {Address: address, Port: 5555}})
		if (len(told) == 1) != refused || len(used)+len(told) != 2 {
			t.Errorf("%s: used %v, refused %v", address, used, told)
		}
	}
	// Another port of an instance is whatever runs beside it, as on a node.
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
