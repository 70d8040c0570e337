package binding

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

// numbered returns a snapshot with backends, each with some Services of shop.
func numbered(revision uint64, backends ...[]string) snapshots.Snapshot {
	var config strings.Builder
	for n, services := range backends {
		fmt.Fprintf(&config, "backend b%d\n", n)
		for _, s := range services {
			fmt.Fprintf(&config, "    #hapsnap servers shop/%s:http weight=%d\n", s, 1+len(s))
		}
	}
	d := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config.String())}}}
	return d.Number(revision, snapshots.ID{})
}

// If endpoints come and go one by one, the slots and servers are the same as if everything were assigned anew
// each time.
func TestAssignWhatChanged(t *testing.T) {
	t.Parallel()
	have := map[snapshots.ID]snapshots.Snapshot{}
	for n, backends := range [][][]string{{{"a"}, {"a", "bb"}, {"ccc"}}, {{"bb"}, {"a", "bb"}, {"a"}, {"none"}}} {
		s := numbered(uint64(n+1), backends...)
		have[s.ID()] = s
	}
	now, random := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), rand.New(rand.NewPCG(1, 2))
	quick, slow := New(nil, FromDirectory, Refusals{}), New(nil, FromDirectory, Refusals{})
	for _, b := range []*Bindings{quick, slow} {
		b.live.Endpoints = map[snapshots.ServicePort][]snapshots.Endpoint{}
		b.use(have)
		b.stale = true
		b.Assign(now, time.Minute)
	}
	for step := range 400 {
		now = now.Add(time.Duration(random.IntN(40)) * time.Second)
		port := httpPort([]string{"a", "bb", "ccc", "unused"}[random.IntN(4)])
		var endpoints []snapshots.Endpoint
		for n := range random.IntN(2 + step/40) {
			endpoints = append(endpoints, snapshots.Endpoint{Address: fmt.Sprintf("10.0.0.%d", 1+n+random.IntN(3)), Port: 80, Draining: random.IntN(4) == 0})
		}
		quick.live.Endpoints[port], slow.live.Endpoints[port] = endpoints, endpoints
		quick.changed[port], slow.stale = true, true
		quick.Assign(now, time.Minute)
		slow.Assign(now, time.Minute)
		if diff := cmp.Diff(slow.slots, quick.slots); diff != "" {
			t.Fatalf("step %d: slots (-all +some):\n%s", step, diff)
		}
		for id := range have {
			if diff := cmp.Diff(slow.prepared[id].Servers, quick.prepared[id].Servers); diff != "" || slow.prepared[id].Err != nil {
				t.Fatalf("step %d: %v, servers of %s (-all +some):\n%s", step, slow.prepared[id].Err, id, diff)
			}
		}
		// The quick way may look once too often for a drained slot.
		if quick.due.IsZero() && !slow.due.IsZero() || quick.due.After(slow.due) && !slow.due.IsZero() || slow.shapes != quick.shapes {
			t.Fatalf("step %d: due %s and %s, shapes %d and %d", step, slow.due, quick.due, slow.shapes, quick.shapes)
		}
	}
}

// The endpoints of a backend change when one comes or goes, and not when the drain of one that is gone ends. Updates read what
// was known before, while the next change is noted.
func TestMoved(t *testing.T) {
	t.Parallel()
	s := numbered(1, []string{"a"}, []string{"bb"})
	b := New(nil, FromDirectory, Refusals{})
	b.live.Endpoints = map[snapshots.ServicePort][]snapshots.Endpoint{}
	b.use(map[snapshots.ID]snapshots.Snapshot{s.ID(): s})
	b.stale = true
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	assign := func(after time.Duration, service string, addresses ...string) map[string]time.Time {
		var list []snapshots.Endpoint
		for _, a := range addresses {
			list = append(list, snapshots.Endpoint{Address: a, Port: 80})
		}
		if service != "" {
			b.live.Endpoints[httpPort(service)] = list
			b.changed[httpPort(service)] = true
		}
		b.Assign(began.Add(after), time.Minute)
		return b.Moved()
	}
	assign(0, "", "")
	came := assign(time.Second, "a", "10.0.0.1")
	if want := (map[string]time.Time{"b0": began.Add(time.Second)}); !maps.Equal(came, want) {
		t.Errorf("once an endpoint came: %v", came)
	}
	gone := assign(2*time.Second, "a")
	both := assign(3*time.Second, "bb", "10.0.0.2")
	ended := assign(10*time.Minute, "") // the drain ends
	if want := (map[string]time.Time{"b0": began.Add(2 * time.Second), "b1": began.Add(3 * time.Second)}); !maps.Equal(ended, want) || !maps.Equal(both, want) {
		t.Errorf("once its drain has ended: %v, before: %v", ended, both)
	}
	if !came["b0"].Equal(began.Add(time.Second)) || len(gone) != 1 {
		t.Errorf("what was known before has changed: %v, %v", came, gone)
	}
}

// Whatever snapshots come and go, and whatever of the cluster is known, the slots are the same as if everything were assigned
// anew each time, and the servers of a snapshot are those that its directives get of these slots.
func TestSnapshotsComeAndGo(t *testing.T) {
	t.Parallel()
	var all []snapshots.Snapshot
	for n, backends := range [][][]string{{{"a"}, {"a", "bb"}}, {{"bb"}, {"ccc"}}, {{"a"}, {"ccc", "none"}}} {
		s := numbered(uint64(10*n+1), backends...)
		for revision := range uint64(3) { // with other maps, and the same haproxy.cfg
			d := snapshots.Draft{Files: append(slices.Clone(s.Files), snapshots.File{Path: "maps/a.map", Content: fmt.Appendln(nil, "a", revision)})}
			if revision > 0 { // it waits for a Secret
				d.Certificates = []snapshots.CertificateRef{{File: "certs/a.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "tls"}}}
			}
			all = append(all, d.Number(uint64(10*n)+revision+1, snapshots.ID{}))
		}
	}
	status := func(slices, secret bool) (s cluster.Status) {
		t.Helper()
		of := map[string]any{}
		if slices {
			of["namespaces"] = map[string]bool{"shop": true}
		}
		if secret {
			of["secrets"] = []snapshots.SecretName{{Namespace: "shop", Name: "tls"}}
		}
		text, err := json.Marshal(of)
		if err = errors.Join(err, json.Unmarshal(text, &s)); err != nil {
			t.Fatal(err)
		}
		return s
	}
	now, random := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), rand.New(rand.NewPCG(3, 4))
	quick, slow := New(nil, FromCluster, Refusals{}), New(nil, FromCluster, Refusals{})
	quick.live.Endpoints = map[snapshots.ServicePort][]snapshots.Endpoint{}
	slow.live.Endpoints = quick.live.Endpoints
	known, secret, bound := false, false, 0
	have := map[snapshots.ID]snapshots.Snapshot{}
	for step := range 1000 {
		now = now.Add(time.Duration(random.IntN(40)) * time.Second)
		if random.IntN(3) == 0 {
			port := httpPort([]string{"a", "bb", "ccc"}[random.IntN(3)])
			var endpoints []snapshots.Endpoint
			for range random.IntN(4) {
				endpoints = append(endpoints, snapshots.Endpoint{Address: fmt.Sprintf("10.0.0.%d", 1+random.IntN(9)), Port: 80})
			}
			quick.live.Endpoints[port], quick.changed[port] = endpoints, true
		}
		switch one := all[random.IntN(len(all))]; random.IntN(3) {
		case 0:
			have[one.ID()] = one
		case 1:
			delete(have, one.ID())
		}
		known, secret = known != (random.IntN(12) == 0), secret != (random.IntN(6) == 0)
		for _, b := range []*Bindings{quick, slow} {
			b.use(have)
			b.learn(status(known, secret))
		}
		slow.stale = true
		for id, p := range slow.prepared { // it takes nothing from other snapshots
			p.Servers = nil
			slow.prepared[id] = p
		}
		quick.Assign(now, time.Minute)
		slow.Assign(now, time.Minute)
		if diff := cmp.Diff(slow.slots, quick.slots); diff != "" && known {
			t.Fatalf("step %d: slots (-all +some):\n%s", step, diff)
		}
		for id, p := range quick.prepared {
			directives, err := bind.Directives(p.Snapshot.Config())
			if err != nil || !slices.Equal(directives, p.Directives) {
				t.Fatalf("step %d: %v, %s has directives %v, want %v", step, err, id, p.Directives, directives)
			}
			want, err := bind.Servers(directives, quick.slots)
			if diff := cmp.Diff(want, p.Servers); (p.Known || p.Servers != nil) && diff != "" || err != nil || p.Err != nil {
				t.Fatalf("step %d: %v, %v, servers of %s, known: %t (-want +got):\n%s", step, err, p.Err, id, p.Known, diff)
			}
			if len(p.Servers) > 0 {
				bound++
			}
		}
	}
	if bound < 500 {
		t.Errorf("only %d were bound", bound)
	}
}

// Services whose endpoints are not known keep their slots, however old those are.
func TestUnreadNamespaceKeepsItsSlots(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := numbered(1, []string{"a"}, []string{"bb"})
	before := New(nil, FromDirectory, Refusals{})
	before.use(map[snapshots.ID]snapshots.Snapshot{s.ID(): s})
	before.live.Endpoints = map[snapshots.ServicePort][]snapshots.Endpoint{httpPort("a"): {{Address: "10.0.0.1", Port: 80}}}
	before.stale = true
	before.Assign(now, time.Minute)
	delete(before.live.Endpoints, httpPort("a"))
	before.stale = true
	before.Assign(now, time.Minute) // it drains

	after := New(before.slots, FromCluster, Refusals{})
	after.use(map[snapshots.ID]snapshots.Snapshot{s.ID(): s})
	after.learn(cluster.Status{})
	if _, ok := after.binding(s.ID(), bind.Layout{}); ok {
		t.Error("a snapshot is bound before its endpoints are known")
	}
	later := now.Add(time.Hour)
	if after.Assign(later, time.Minute) || !slices.Equal(after.slots[bind.SlotKey{Backend: "b0", Service: httpPort("a")}], before.slots[bind.SlotKey{Backend: "b0", Service: httpPort("a")}]) {
		t.Errorf("slots changed: %v", after.slots)
	}
	if !after.due.After(later) {
		t.Errorf("due at %s, which is over, again and again", after.due)
	}
}

// After a restart, instances keep a certificate from a Secret that may not be read. They still should run what
// they ran. When the Secret may be read again, they get its content.
func TestUnreadSecretIsHeld(t *testing.T) {
	t.Parallel()
	secret := snapshots.SecretName{Namespace: "shop", Name: "tls"}
	d := snapshots.Draft{
		Files:        []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("frontend f\n    bind :443 ssl crt certs/default.pem crt-list files/https.crtlist\n")}, {Path: "files/https.crtlist", Content: []byte("certs/a.pem a.example\n")}},
		Certificates: []snapshots.CertificateRef{{File: "certs/a.pem", Secret: secret}, {File: "certs/default.pem"}},
	}
	s := d.Number(1, snapshots.ID{})
	layout := bind.Layout{Maps: "/maps", Certificates: "/ssl", General: "/general"}
	fallback := pemtest.SelfSigned(t, "fallback", pemtest.ECKey2())
	statusOf := func(denied ...kubewatch.Query) (status cluster.Status) {
		t.Helper()
		text, err := json.Marshal(map[string]any{"denied": denied, "secrets": []snapshots.SecretName{secret}})
		if err == nil {
			err = json.Unmarshal(text, &status)
		}
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	started := func(live bind.Live, denied ...kubewatch.Query) (*Bindings, Node) {
		t.Helper()
		b := New(nil, FromCluster, Refusals{})
		b.use(map[snapshots.ID]snapshots.Snapshot{s.ID(): s})
		live.Fallback = fallback
		b.setLive(live, noon)
		b.learn(statusOf(denied...))
		n, ok := b.Node(s.ID(), layout)
		if !ok || n.Err != nil {
			t.Fatalf("not bound: %v", n.Err)
		}
		return b, n
	}
	of := kubewatch.Query{APIVersion: "v1", Kind: "Secret", Namespace: secret.Namespace, Name: secret.Name}
	certificate := map[snapshots.SecretName][]byte{secret: pemtest.SelfSigned(t, "a.example", pemtest.ECKey())}
	_, before := started(bind.Live{Certificates: certificate})
	if _, gone := started(bind.Live{}); gone.Name == before.Name {
		t.Error("a Secret that is gone makes no difference")
	}
	b, after := started(bind.Live{}, of)
	if after.Name != before.Name || !after.Certificates.In(before.Certificates) || len(after.Missing) != 1 {
		t.Errorf("it is %s, before %s; missing %v", after.Name, before.Name, after.Missing)
	}
	b.learn(statusOf())
	b.setLive(bind.Live{Certificates: certificate, Fallback: fallback}, noon)
	if again, _ := b.Node(s.ID(), layout); again.Name != before.Name || len(again.Missing) > 0 || len(again.Certificates) <= len(after.Certificates) {
		t.Errorf("read again: %+v", again)
	}
}

// From a cluster, the pusher needs what a snapshot joins, and not what it carries itself.
func TestWantedOfACluster(t *testing.T) {
	t.Parallel()
	name := func(s string) snapshots.SecretName { return snapshots.SecretName{Namespace: "shop", Name: s} }
	d := snapshots.Draft{
		Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("backend b\n    #hapsnap servers shop/a:http\n    #hapsnap servers blog/b:http\n    #hapsnap servers shop/c:http\n")}},
		Certificates: []snapshots.CertificateRef{
			{File: "certs/a.pem", Secret: name("live")}, {File: "certs/b.pem", Secret: name("exact"), Mode: snapshots.ModeExact, Version: "1"},
			{File: "certs/c.pem", Secret: name("sealed"), Mode: snapshots.ModeSealed, Version: "2"}, {File: "certs/fallback.pem"},
			// There was no certificate to seal.
			{File: "certs/d.pem", Secret: name("missing"), Mode: snapshots.ModeSealed},
		},
	}
	secrets := []snapshots.SecretName{name("exact"), name("live")}
	for _, recorded := range []bool{false, true} {
		want := cluster.Wanted{Secrets: secrets, Namespaces: []string{"blog", "shop"}}
		if recorded {
			want.Namespaces = nil
		}
		s := d.Number(1, snapshots.ID{})
		if diff := cmp.Diff(want, prepare(s, readConfig(s.Config()), recorded, &Refusals{}).wants); diff != "" {
			t.Errorf("recorded %v (-want +got):\n%s", recorded, diff)
		}
	}
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// sp is a Service port, such as "shop/web:http".
func sp(text string) snapshots.ServicePort {
	port, err := snapshots.ParseServicePort(text)
	if err != nil {
		panic(err)
	}
	return port
}

func httpPort(service string) snapshots.ServicePort {
	return snapshots.ServicePort{Namespace: "shop", Service: service, Port: "http"}
}
