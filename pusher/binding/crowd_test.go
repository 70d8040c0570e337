package binding

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// crowdedSnapshot has so many backends for a Service of the namespace bad, and ten Services of the namespace good.
func crowdedSnapshot(revision uint64, backends int, checks string) snapshots.Snapshot {
	var config strings.Builder
	config.WriteString("global\n    fd-hard-limit 4000\ndefaults\n    default-server " + checks + "\n")
	for n := range backends {
		fmt.Fprintf(&config, "backend bad%d\n    #hapsnap servers bad/web:http\n", n)
	}
	for n := range 10 {
		fmt.Fprintf(&config, "backend good%d\n    #hapsnap servers good/s%d:http\n", n, n)
	}
	d := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config.String())}}}
	return d.Number(revision, snapshots.ID{})
}

// crowd returns n endpoints.
func crowd(n int) (out []snapshots.Endpoint) {
	at := netip.MustParseAddr("10.0.0.1")
	for range n {
		out = append(out, snapshots.Endpoint{Address: at.String(), Port: 80})
		at = at.Next()
	}
	return out
}

// held returns how many endpoints of each namespace have a server, and how many servers there are.
func held(b *Bindings, id snapshots.ID) (out map[string]int, servers int) {
	out = map[string]int{}
	for _, d := range b.prepared[id].Directives {
		for _, slot := range b.slots[d.Key()] {
			if servers++; slot.State == bind.SlotReady {
				out[d.Service.Namespace]++
			}
		}
	}
	return out, servers
}

// A namespace that asks for more servers than HAProxy may open files, with few objects, has endpoints left out. All
// others have all of theirs, those that come later too. If nothing checks servers, they need no files.
func TestServersOfANamespaceLeaveRoom(t *testing.T) {
	t.Parallel()
	bad, now := snapshots.ServicePort{Namespace: "bad", Service: "web", Port: "http"}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good := func(n int) snapshots.ServicePort {
		return snapshots.ServicePort{Namespace: "good", Service: fmt.Sprint("s", n), Port: "http"}
	}
	start := func(checks string, backends int) (*Bindings, snapshots.Snapshot) {
		b, s := New(nil, FromDirectory, Refusals{}), crowdedSnapshot(1, backends, checks)
		b.live.Endpoints = map[snapshots.ServicePort][]snapshots.Endpoint{bad: crowd(100)}
		for n := range 10 {
			b.live.Endpoints[good(n)] = crowd(5)
		}
		b.use(map[snapshots.ID]snapshots.Snapshot{s.ID(): s})
		b.Assign(now, time.Minute)
		return b, s
	}
	b, s := start("check", 85) // 10,625 servers
	has, servers := held(b, s.ID())
	if servers > 3000 || servers < 2900 || has["good"] != 50 || has["bad"] < 2000 {
		t.Errorf("%d servers, with endpoints: %v", servers, has)
	}
	if refused := b.crowded[bad]; len(refused) == 0 || len(refused) > 100 || !strings.Contains(refused[0].Reason, "fd-hard-limit") || len(b.crowded) != 1 {
		t.Errorf("left out: %v", b.crowded)
	}
	for n := range 10 { // more than their groups have room for
		b.live.Endpoints[good(n)] = crowd(20)
		b.changed[good(n)] = true
	}
	b.live.Endpoints[bad] = crowd(150)
	b.changed[bad] = true
	b.Assign(now, time.Minute)
	if has, servers = held(b, s.ID()); servers > 3300 || has["good"] != 200 || has["bad"] < 2000 {
		t.Errorf("later %d servers, with endpoints: %v", servers, has)
	}

	// Groups that have many slots keep them, and take those of others of their namespace.
	b, s = start("check", 20)
	next := crowdedSnapshot(2, 85, "check")
	b.use(map[snapshots.ID]snapshots.Snapshot{s.ID(): s, next.ID(): next})
	b.Assign(now, time.Minute)
	if has, servers = held(b, next.ID()); servers > 3000 || has["good"] != 50 || has["bad"] < 2065 || len(b.crowded) == 0 {
		t.Errorf("in addition to large groups %d servers, with endpoints: %v", servers, has)
	}

	// The objects are gone, and with them what was left out.
	next = crowdedSnapshot(3, 1, "check")
	b.use(map[snapshots.ID]snapshots.Snapshot{next.ID(): next})
	b.Prune()
	b.Assign(now, time.Minute)
	if has, _ = held(b, next.ID()); has["bad"] != 100 || len(b.crowded) > 0 {
		t.Errorf("with endpoints: %v, left out: %v", has, b.crowded)
	}

	// Nobody is left out where all fit, or nothing is checked.
	for checks, backends := range map[string]int{"check": 20, "inter 2s": 85} {
		b, s := start(checks, backends)
		if has, _ := held(b, s.ID()); has["bad"] != 100*backends || has["good"] != 50 || len(b.crowded) > 0 {
			t.Errorf("%s: with endpoints: %v, left out: %v", checks, has, b.crowded)
		}
	}
}
