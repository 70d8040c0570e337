package core

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher/binding"
)

// What leads to a pod is read as the discovery writes it, and what is neither an address nor a port is left out.
func TestPlaces(t *testing.T) {
	t.Parallel()
	api := netip.MustParseAddrPort("10.244.0.1:5555")
	want := binding.Place{API: api, Others: []netip.Addr{netip.MustParseAddr("fd00::1")}, Ports: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:80")}}
	equal := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	ports := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
	if diff := cmp.Diff(want, placeOf(api, "192.0.2.1:80 fd00::1 x"), equal, ports); diff != "" {
		t.Error(diff)
	}
}
