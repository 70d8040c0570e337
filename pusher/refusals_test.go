package pusher

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// What is refused was said, and is no loss; what instances are is told apart from what else
// runs on their addresses, also when they come and go later.
func TestRefusals(t *testing.T) {
	t.Parallel()
	web, api := snapshots.ServicePort{Namespace: "shop", Service: "web"}, snapshots.ServicePort{Namespace: "shop", Service: "api"}
	good, node, admin := snapshots.Endpoint{Address: "10.1.0.1", Port: 8080}, snapshots.Endpoint{Address: "10.0.0.11", Port: 8080}, snapshots.Endpoint{Address: "10.0.0.11", Port: 5555}
	loop := snapshots.Endpoint{Address: "64:ff9b::7f00:1", Port: 80}
	r := newRefusals(Options{RefuseEndpoints: live.DefaultRefused})
	used := r.filter(map[snapshots.ServicePort][]snapshots.Endpoint{web: {good, loop, node, admin}, api: {loop}})
	if got, there := used[api]; !there || len(got) != 0 {
		t.Errorf("a Service of which all is refused has %v, %v", got, there)
	}
	if !slices.Equal(used[web], []snapshots.Endpoint{good, node, admin}) {
		t.Errorf("used %v", used[web])
	}
	if err := r.trouble(); err == nil || !strings.Contains(err.Error(), "[64:ff9b::7f00:1]:80 of shop/api: it is in 127.0.0.0/8; [64:ff9b::7f00:1]:80 of shop/web") {
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
	if err := r.trouble(); err != nil || len(r.offered) != 1 {
		t.Errorf("mended: %v, %v", err, r.offered)
	}
}
