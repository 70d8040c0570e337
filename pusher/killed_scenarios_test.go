package pusher

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// killScenario is something that happens to a fleet of three, a, b and c.
type killScenario struct {
	ran []string // the revisions that the fleet ran; nil: the first
	api string   // "" is 3.4
	// terms is set where each pusher has a later term, which it writes on the instances.
	terms bool
	// change has it happen, and returns what the fleet is to run in the end.
	change func(p *play) snapshots.ID
	// missing says what else is not as it should be in the end.
	missing func(p *play) string
}

var killScenarios = map[string]killScenario{
	"first push":                 {ran: []string{}, change: func(p *play) snapshots.ID { return p.publish("1") }, missing: nothing},
	"rollout in waves":           {change: func(p *play) snapshots.ID { return p.publish("2") }, missing: oldFiles},
	"rollout in waves, in terms": {terms: true, change: func(p *play) snapshots.ID { return p.publish("2") }, missing: oldFiles},
	"last wave fails":            {change: func(p *play) snapshots.ID { return p.refusedBy("b", "c") }, missing: notRejected},
	"canary fails":               {change: func(p *play) snapshots.ID { return p.refusedBy("a") }, missing: notRejected},
	"pin":                        {ran: []string{"1", "2"}, change: pinned, missing: nothing},
	"endpoints, API 3.4":         {change: moved, missing: otherEndpoints},
	"endpoints, API 3.2":         {api: "v3.2.5", change: moved, missing: otherEndpoints},
	"more endpoints than slots":  {change: crowded, missing: otherEndpoints},
	"certificate renewed":        {change: renewed, missing: otherCertificate},
	"certificate no longer used": {change: unused, missing: oldCertificates},
	"other routes":               {change: func(p *play) snapshots.ID { return p.route(routes) }, missing: otherRoutes},
	"file edited by hand":        {change: edited, missing: drift},
	"map removed by hand":        {change: removed, missing: drift},
}

func nothing(*play) string { return "" }

// publish publishes a snapshot that says which it is.
func (p *play) publish(revision string) snapshots.ID {
	p.t.Helper()
	d := draftTLS(revision)
	d.Files[1].Content = []byte("shop.example.com shop_" + revision + "\n")
	id, published, err := p.store().Publish(p.t.Context(), d)
	if err != nil || !published {
		p.t.Fatalf("publish: %v, published %v", err, published)
	}
	return id
}

// routes differ from those of the first snapshot in everything that a map can.
const routes = "shop.example.com shop_web\nblog.example.com shop_1\n"

// route publishes other routes, and nothing else that is new.
func (p *play) route(entries string) snapshots.ID {
	p.t.Helper()
	d := draftTLS("1")
	d.Files[1].Content = []byte(entries)
	id, published, err := p.store().Publish(p.t.Context(), d)
	if err != nil || !published {
		p.t.Fatalf("publish: %v, published %v", err, published)
	}
	return id
}

// otherRoutes compares the routes of the workers, none of which is reloaded for them.
func otherRoutes(p *play) string {
	for name, i := range p.instances {
		w := i.state().worker
		for file, m := range w.maps {
			slices.SortFunc(m, func(a, b dataplane.MapEntry) int { return cmp.Compare(b.Key, a.Key) })
			if got := fmt.Sprintf("%v", m); got != "[{shop.example.com shop_web} {blog.example.com shop_1}]" {
				return fmt.Sprintf("%s of %s has %s", file, name, got)
			}
		}
		if len(w.maps) != 1 || !strings.HasPrefix(w.node, p.newest(1).String()) {
			return fmt.Sprintf("%s loaded %s, with %v", name, w.node, w.maps)
		}
	}
	return ""
}

// newest returns a snapshot of the store, by how many are newer.
func (p *play) newest(n int) snapshots.ID {
	p.t.Helper()
	view, err := p.store().View(p.t.Context())
	if err != nil || len(view.IDs) <= n {
		p.t.Fatalf("view: %v, %v", view.IDs, err)
	}
	return view.IDs[len(view.IDs)-1-n]
}

// oldFiles finds maps that no snapshot in use needs.
func oldFiles(p *play) string {
	for name, i := range p.instances {
		for key, content := range i.state().files {
			if strings.HasPrefix(key, "maps/") && !strings.Contains(content, "shop_2") {
				return fmt.Sprintf("%s still has %s", name, key)
			}
		}
	}
	return ""
}

// refusedBy publishes what does not start on some instances.
func (p *play) refusedBy(names ...string) snapshots.ID {
	for _, name := range names {
		p.instances[name].refuses = "x-revision 2"
	}
	p.publish("2")
	return p.newest(1)
}

func notRejected(p *play) string {
	view, err := p.store().View(p.t.Context())
	if _, rejected := view.Channel.Rejection(p.newest(0)); !rejected || err != nil {
		return fmt.Sprintf("the channel does not reject the newest: %v", err)
	}
	return ""
}

// pinned pins what ran before.
func pinned(p *play) snapshots.ID {
	p.t.Helper()
	first := p.newest(1)
	err := p.store().UpdateChannel(p.t.Context(), "pin", time.Now(), func(c *channel.Channel) error {
		*c = c.Pinned(channel.Pin{Snapshot: first, At: time.Now()})
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return first
}

// moved gives the Service other endpoints.
func moved(p *play) snapshots.ID {
	p.take(liveWith(p.live, "10.0.0.2", "10.0.0.3"))
	return p.newest(0)
}

// crowded gives it more than there are slots for.
func crowded(p *play) snapshots.ID {
	var addresses []string
	for n := range 40 {
		addresses = append(addresses, fmt.Sprintf("10.0.1.%d", n+1))
	}
	p.take(liveWith(p.live, addresses...))
	return p.newest(0)
}

func liveWith(live binding.Objects, addresses ...string) binding.Objects {
	var list []snapshots.Endpoint
	for _, address := range addresses {
		list = append(list, snapshots.Endpoint{Address: address, Port: 80})
	}
	live.Endpoints = map[snapshots.ServicePort][]snapshots.Endpoint{httpPort("web"): list}
	return live
}

// otherEndpoints compares the servers with the endpoints, in the workers and on disk.
func otherEndpoints(p *play) string {
	var want []string
	for _, e := range p.live.Endpoints[httpPort("web")] {
		want = append(want, e.Address)
	}
	slices.Sort(want)
	for name, i := range p.instances {
		is := i.state()
		disk := fakeState{disk: is.disk}
		disk.load()
		for where, w := range map[string]fakeWorker{"worker": is.worker, "disk": disk.worker} {
			if got := w.ready("shop_web"); !slices.Equal(got, want) {
				return fmt.Sprintf("the %s of %s has %q, want %q", where, name, got, want)
			}
		}
		for _, s := range is.worker.servers["shop_web"] {
			if s.AdminState == "drain" {
				return fmt.Sprintf("%s of %s is drained", s.Address, name)
			}
		}
	}
	return ""
}

// renewed renews the certificate.
func renewed(p *play) snapshots.ID {
	live := p.live
	live.Certificates = map[snapshots.SecretName][]byte{webTLS: newPEM(p.t)}
	p.take(live)
	return p.newest(0)
}

var webTLS = snapshots.SecretName{Namespace: "shop", Name: "web-tls"}

func newPEM(t *testing.T) []byte {
	t.Helper()
	crt, key, _ := newCertificate(t, time.Now().AddDate(1, 0, 0))
	return slices.Concat(crt, key)
}

// unused publishes a snapshot without the certificate of shop/web-tls. Beside it lies one
// that somebody else put there.
func unused(p *play) snapshots.ID {
	p.t.Helper()
	for _, i := range p.instances {
		i.mu.Lock()
		i.files["ssl/stranger.pem"] = "of somebody else"
		i.mu.Unlock()
	}
	d := draftTLS("2")
	d.Files[2].Content = []byte("certs/fallback.pem\n")
	d.Certificates = d.Certificates[:1]
	id, published, err := p.store().Publish(p.t.Context(), d)
	if err != nil || !published {
		p.t.Fatalf("publish: %v, published %v", err, published)
	}
	return id
}

func oldCertificates(p *play) string {
	for name, i := range p.instances {
		var got []string
		for key := range i.state().files {
			if strings.HasPrefix(key, "ssl/") {
				got = append(got, key)
			}
		}
		slices.Sort(got)
		if fmt.Sprint(got) != "[ssl/fallback.pem ssl/stranger.pem]" {
			return fmt.Sprintf("%s has %q", name, got)
		}
	}
	return ""
}

func otherCertificate(p *play) string {
	for name, i := range p.instances {
		is, want := i.state(), string(p.live.Certificates[webTLS])
		if is.files["ssl/shop_web-tls.pem"] != want || is.worker.certificates["/etc/haproxy/ssl/shop_web-tls.pem"] != want {
			return name + " has another certificate"
		}
	}
	return ""
}

// edited has somebody else edit a file, which the API takes for a version more.
func edited(p *play) snapshots.ID {
	b := p.instances["b"]
	b.mu.Lock()
	defer b.mu.Unlock()
	b.disk = strings.Replace(b.disk, "maxconn 100", "maxconn 5", 1)
	b.memory++
	return p.newest(0)
}

func removed(p *play) snapshots.ID {
	c := p.instances["c"]
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.files, func(key, _ string) bool { return strings.HasPrefix(key, "maps/") })
	return p.newest(0)
}

func drift(p *play) string {
	for name, i := range p.instances {
		is := i.state()
		if !strings.Contains(is.disk, "maxconn 100") || !strings.HasPrefix(is.disk, fmt.Sprintf("# _version=%d\n", is.memory)) {
			return name + " has another file"
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(is.files)), func(key string) bool { return strings.HasPrefix(key, "maps/") }) {
			return name + " has no map"
		}
	}
	return ""
}

// before returns a fleet that runs a first snapshot, or nothing yet.
func (s killScenario) before(t *testing.T) *settling {
	t.Helper()
	soak := 6 * time.Second
	out := &settling{dir: t.TempDir(), instances: map[string]*fakeInstance{}, terms: s.terms}
	out.options = Options{
		Soak: &soak, PollInterval: 2 * time.Second, DrainTime: 3 * time.Second, PersistInterval: 3 * time.Second,
		InspectInterval: 5 * time.Second, CollectAfter: 8 * time.Second,
	}
	synctest.Test(t, func(t *testing.T) {
		out.live = liveWith(binding.Objects{Slices: 1}, "10.0.0.1")
		out.live.Certificates = map[snapshots.SecretName][]byte{webTLS: newPEM(t)}
		s.prepare(t, out)
		p := &play{settling: out, t: t}
		p.begin(filepath.Join(out.dir, "pusher"))
		for _, revision := range s.revisions() {
			p.settle(p.publish(revision), nothing)
		}
		p.life.end()
		for name, i := range out.instances {
			out.instances[name] = i.clone()
		}
		out.at = time.Now()
	})
	return out
}

func (s killScenario) revisions() []string {
	if s.ran == nil {
		return []string{"1"}
	}
	return s.ran
}

// prepare makes the instances and the folders.
func (s killScenario) prepare(t *testing.T, out *settling) {
	t.Helper()
	file := "apiVersion: hapsnap.dev/v1alpha1\nkind: Fleet\nmetadata: {name: edge}\nspec:\n  rollout: {waves: ['1', 100%]}\n  instances:\n"
	for _, name := range []string{"a", "b", "c"} {
		out.instances[name] = newFakeInstance(name, cmp.Or(s.api, "v3.4.2"))
		file += fmt.Sprintf("  - {name: %s, url: 'http://%s.test', username: u, password: p, "+
			"directories: {maps: /etc/haproxy/maps, certificates: /etc/haproxy/ssl, general: /etc/haproxy/general}}\n", name, name)
	}
	for _, folder := range []string{"store", "pusher"} {
		if err := os.MkdirAll(filepath.Join(out.dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(out.dir, "fleet.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
}
