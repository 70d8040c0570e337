package core

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// churn is a pusher whose HAProxies run a snapshot with many backends. The test decides when it takes a turn.
type churn struct {
	*driven
	edges map[string]*dataplanetest.Instance
	came  int // how many endpoints came
}

// newChurn starts a pusher. A commit to its instances takes as long as with a real API.
func newChurn(tb testing.TB, api dataplanetest.API, backends int, names ...string) *churn {
	tb.Helper()
	dir := tb.TempDir()
	soak := time.Duration(0)
	store := dirstore.Open(filepath.Join(dir, "store"), dirstore.Options{})
	c := &churn{edges: map[string]*dataplanetest.Instance{}, driven: newDriven(tb, Settings{
		Source: binding.FromDirectory, Soak: &soak, PollInterval: time.Hour, DrainTime: time.Hour, PersistInterval: 5 * time.Second, InspectInterval: time.Hour,
		CollectAfter: time.Hour,
	}, store)}
	config := strings.Builder{}
	config.WriteString(edgeConfig(map[string]string{"bare": "server s1 192.0.2.1:80"}))
	read := binding.Objects{Live: bind.Live{Endpoints: map[snapshots.ServicePort][]snapshots.Endpoint{}}}
	for n := range backends {
		port := churnPort(n)
		fmt.Fprintf(&config, "\nbackend shop_web-%d\n    balance roundrobin\n    http-request set-header X-Backend web-%d\n    #hapsnap servers %s -- maxconn 100\n", n, n, port)
		read.Endpoints[port] = []snapshots.Endpoint{{Address: churnAddress(n, 0), Port: 8080}}
	}
	draft := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config.String())}}, Time: time.Now()}
	if _, _, err := store.Publish(tb.Context(), draft); err != nil {
		tb.Fatal(err)
	}
	var f fleet.Fleet
	for _, name := range names {
		edge := dataplanetest.Start(tb, dataplanetest.Options{
			API: api, Cost: dataplanetest.MeasuredCost, Env: []string{"WEB=unix@" + filepath.Join(dir, name+".sock")},
		})
		c.edges[name] = edge
		f.Instances = append(f.Instances, fleet.Instance{
			Name: name, URL: edge.URL(), Username: "admin", Password: "secret",
			Layout: bind.Layout{Maps: edge.Dirs.Maps, Certificates: edge.Dirs.Certificates, General: edge.Dirs.General},
		})
	}
	view, err := store.View(tb.Context())
	c.waiting = []Event{ViewRead{view, err}, LiveRead{read, nil}, FleetRead{f, nil}}
	c.until(tb, func() bool { s := c.status(); return s.InSync() == len(names) && s.Rollout == nil })
	return c
}

func churnPort(n int) snapshots.ServicePort { return httpPort(fmt.Sprintf("web-%d", n)) }

// churnAddress returns a unique address for an endpoint of a backend.
func churnAddress(backend, number int) string {
	return fmt.Sprintf("10.%d.%d.%d", backend>>8, backend&255, 1+number%250)
}

// replace replaces an endpoint of a backend by a new one.
func (c *churn) replace(backend int) {
	c.came++
	port := churnPort(backend)
	c.live.TakeCluster(cluster.Change{Endpoints: map[snapshots.ServicePort][]snapshots.Endpoint{port: {{Address: churnAddress(backend, c.came), Port: 8080}}}}, time.Now())
}

// served reports whether all workers are known to serve what is wanted.
func (c *churn) served() bool {
	for _, i := range c.instances {
		if i.busy == workUpdate || i.busy == workPersist || !i.hasServers(c.servers(i)) {
			return false
		}
	}
	return true
}

// arrival is a new endpoint.
type arrival struct {
	backend, address string
	at               time.Time
}

// takes reports whether all workers are known to send requests to an endpoint.
func (c *churn) takes(a arrival) bool {
	for _, i := range c.instances {
		slot := slices.ContainsFunc(i.running.Servers, func(s bind.Server) bool {
			return s.Backend == a.backend && s.Address == a.address && s.State == bind.SlotReady
		})
		if !slot && !slices.ContainsFunc(i.running.Dynamic, func(d push.Dynamic) bool {
			return d.Backend == a.backend && d.Address == a.address && d.State == bind.SlotReady
		}) {
			return false
		}
	}
	return true
}

// settled reports whether slots have all addresses, and the disk has the same.
func (c *churn) settled() bool {
	for _, i := range c.instances {
		if i.busy != "" || !i.running.Persisted || i.running.Deferred || len(i.running.Dynamic) > 0 {
			return false
		}
	}
	return c.served()
}

// calls counts the requests of each kind to an instance since the last count.
func (c *churn) calls(name string, since int) (posts, adds, sets, deletes, all int) {
	list := c.edges[name].Requests()
	for _, q := range list[since:] {
		switch {
		case strings.HasSuffix(q.Path, "/configuration/raw") && q.Method == http.MethodPost:
			posts++
		case strings.Contains(q.Path, "/runtime/backends/") && q.Method == http.MethodPost:
			adds++
		case strings.Contains(q.Path, "/runtime/backends/") && q.Method == http.MethodPut:
			sets++
		case strings.Contains(q.Path, "/runtime/backends/") && q.Method == http.MethodDelete:
			deletes++
		}
	}
	return posts, adds, sets, deletes, len(list)
}

// With the Dataplane API 3.2 and many backends, a new endpoint serves after three calls, without a post. Then
// one post gives slots to all new endpoints together.
func TestEndpointOfALargeConfigurationServesBeforeThePost(t *testing.T) {
	t.Parallel()
	c := newChurn(t, dataplanetest.V32, 150, "a")
	i := c.instances["a"]
	worker, err := c.edges["a"].WorkerPID()
	if err != nil {
		t.Fatal(err)
	}
	// The post is not due for a while: the disk has everything that serves, except the next endpoint.
	i.persisted, i.persistTook = time.Now().Add(time.Hour), 0
	_, _, _, _, before := c.calls("a", 0)
	c.replace(7)
	c.until(t, c.served)
	posts, adds, sets, deletes, after := c.calls("a", before)
	if posts != 0 || adds != 1 || sets != 2 || deletes != 0 {
		t.Errorf("before it served there were %d posts, %d additions, %d changes of servers and %d deletions", posts, adds, sets, deletes)
	}
	for n := range 10 {
		c.replace(20 + n)
	}
	c.until(t, c.served)
	i.persisted = time.Time{}
	c.until(t, c.settled)
	if posts, adds, _, deletes, _ = c.calls("a", after); posts != 1 || adds != 10 || deletes != 11 {
		t.Errorf("for ten more there were %d posts, %d additions and %d deletions", posts, adds, deletes)
	}
	if now, err := c.edges["a"].WorkerPID(); err != nil || now != worker {
		t.Errorf("the worker is %d, was %d, %v", now, worker, err)
	}
	text, err := c.edges["a"].Config()
	if err != nil || !strings.Contains(text, churnAddress(7, 1)+":8080 maxconn 100\n") || strings.Contains(text, "server hapsnap-") {
		t.Errorf("the endpoint is not on disk, or a dynamic server is: %v", err)
	}
}

// Many endpoints change at once. Calls give them all to the worker, and a post is not needed for it.
func TestManyEndpointsChangeByCalls(t *testing.T) {
	t.Parallel()
	const backends = 150
	c := newChurn(t, dataplanetest.V34, backends, "a")
	c.instances["a"].persisted = time.Now().Add(time.Hour) // the file is not due
	_, _, _, _, before := c.calls("a", 0)
	var all []arrival
	for n := range backends {
		c.replace(n)
		all = append(all, arrival{fmt.Sprintf("shop_web-%d", n), churnAddress(n, c.came), time.Now()})
	}
	c.until(t, c.served)
	if posts, adds, sets, deletes, _ := c.calls("a", before); posts+adds+deletes > 0 || sets != 3*backends {
		t.Errorf("there were %d posts, %d additions, %d changes of servers and %d deletions", posts, adds, sets, deletes)
	}
	for _, a := range all {
		if !c.takes(a) {
			t.Errorf("%s of %s takes nothing", a.address, a.backend)
		}
	}
}

// writing returns a pusher that writes the servers of a large configuration to disk. It does not hear of the end of the write,
// nor of that of updates if these are held too.
func writing(t *testing.T, updatesToo bool) (*churn, *instanceState) {
	t.Helper()
	c := newChurn(t, dataplanetest.V34, 150, "a")
	i := c.instances["a"]
	c.replace(1) // now it is known that the API sets addresses
	c.until(t, c.served)
	c.holds = func(ev instance.Event) bool {
		_, persist := ev.(instance.PersistEnded)
		_, update := ev.(instance.UpdateEnded)
		return persist || update && updatesToo
	}
	i.running.Persisted, i.persisted = false, time.Time{}
	c.until(t, func() bool { return i.writing })
	return c, i
}

// onDisk reports whether the file on disk has an endpoint that a backend has in its place.
func (c *churn) onDisk(t *testing.T, backend, number int) bool {
	t.Helper()
	text, err := c.edges["a"].Config()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(text, churnAddress(backend, number)+":8080 maxconn 100\n")
}

// While the file of a large configuration is written, an endpoint that comes does not wait. Then it is written too.
func TestEndpointComesWhileTheFileIsWritten(t *testing.T) {
	t.Parallel()
	c, i := writing(t, false)
	_, _, _, _, before := c.calls("a", 0)
	c.replace(7)
	c.until(t, c.served)
	if !i.writing || !c.takes(arrival{"shop_web-7", churnAddress(7, c.came), time.Now()}) {
		t.Fatalf("writing: %t, servers %+v", i.writing, i.running.Servers)
	}
	c.until(t, func() bool { return len(c.held) == 1 }) // the write is over, and the machine does not know
	if posts, _, sets, _, _ := c.calls("a", before); posts > 1 || sets != 3 || c.onDisk(t, 7, c.came) {
		t.Errorf("%d posts, %d changes of servers, on disk: %t", posts, sets, c.onDisk(t, 7, c.came))
	}
	c.release(nil)
	c.until(t, func() bool { return !i.writing })
	if i.running.Persisted {
		t.Error("the file counts as written, and lacks the endpoint")
	}
	i.persisted = time.Time{}
	c.until(t, c.settled)
	if !c.onDisk(t, 7, c.came) {
		t.Error("the endpoint is not on disk")
	}
	if c.inspected(t, i) {
		t.Error("the file counts as changed by somebody")
	}
}

// The write ends before the update that began meanwhile, and what each knows counts.
func TestWriteEndsBeforeTheUpdate(t *testing.T) {
	t.Parallel()
	c, i := writing(t, true)
	c.replace(7)
	c.until(t, func() bool { return len(c.held) == 2 && i.busy == workUpdate })
	c.release(func(ev instance.Event) bool { _, update := ev.(instance.UpdateEnded); return update })
	c.until(t, func() bool { return !i.writing })
	if i.busy != workUpdate || i.running.Written == nil {
		t.Errorf("the update counts as ended: busy %q, %d servers on disk", i.busy, len(i.running.Written))
	}
	written, disk := i.running.Written, i.running.Disk
	c.release(nil)
	c.until(t, c.served)
	if i.running.Persisted || &i.running.Written[0] != &written[0] || i.running.Disk != disk {
		t.Errorf("persisted %t, the file is forgotten: %t, %t", i.running.Persisted, &i.running.Written[0] != &written[0], i.running.Disk != disk)
	}
	i.persisted = time.Time{}
	c.until(t, c.settled)
	if !c.onDisk(t, 7, c.came) {
		t.Error("the endpoint is not on disk")
	}
}

// A push waits for the end of the write, and so does everything else that writes to the disk.
func TestPushWaitsForTheWrite(t *testing.T) {
	t.Parallel()
	c, i := writing(t, false)
	c.until(t, func() bool { return len(c.held) == 1 })
	s, err := c.store.Get(t.Context(), i.snapshot())
	if err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(string(s.Config()), "X-Backend web-3", "X-Backend other", 1)
	if _, _, err := c.store.Publish(t.Context(), snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config)}}, Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	view, err := c.store.View(t.Context())
	c.waiting = append(c.waiting, ViewRead{view, err})
	c.until(t, func() bool { return c.status().Rollout != nil })
	c.replace(9) // it does not wait, though the push does
	c.until(t, c.served)
	if !i.writing || !c.takes(arrival{"shop_web-9", churnAddress(9, c.came), time.Now()}) {
		t.Error("an endpoint waits for the write, since a push does")
	}
	i.garbage, i.inspectAfter = []push.Stored{{Kind: bind.MapFile, Name: "old"}}, time.Time{}
	for range 30 {
		if c.step(t.Context()); i.busy != "" || !i.writing {
			t.Fatalf("busy with %q, writing %t", i.busy, i.writing)
		}
	}
	c.release(nil)
	c.until(t, func() bool { return i.snapshot().Revision == 2 && c.status().InSync() == 1 })
}

// An instance joins again while its file is written: its state goes on waiting for that, and not for ever.
func TestInstanceJoinsAgainWhileItsFileIsWritten(t *testing.T) {
	t.Parallel()
	e := newMachine(State{}, noon)
	e.membership.join(fleet.Instance{Name: "a", URL: "http://127.0.0.1:1"}, noon)
	former := e.instances["a"].ref()
	e.instances["a"].busy, e.instances["a"].writing = workUpdate, true
	e.membership.join(fleet.Instance{Name: "a", URL: "http://127.0.0.1:2"}, noon)
	i := e.instances["a"]
	if i.busy != workUpdate || !i.writing {
		t.Errorf("what goes on is forgotten: busy %q, writing %t", i.busy, i.writing)
	}
	OfInstance{instance.UpdateEnded{About: instance.About{Ref: former}}}.apply(e, noon)
	if i.busy != "" || !i.writing {
		t.Errorf("after the update: busy %q, writing %t", i.busy, i.writing)
	}
	i.busy = workUpdate // of the new connection
	written := push.Running{Disk: push.Digest{1}}
	OfInstance{instance.PersistEnded{About: instance.About{Ref: former}, Have: written, Alone: true}}.apply(e, noon)
	if i.running.Disk != written.Disk {
		t.Error("the file counts as changed by somebody")
	}
	if i.busy != workUpdate || i.writing {
		t.Errorf("after the write: busy %q, writing %t", i.busy, i.writing)
	}
	written.Disk = push.Digest{2}
	i.busy = workPersist
	OfInstance{instance.PersistEnded{About: instance.About{Ref: former}, Have: written}}.apply(e, noon)
	if i.running.Disk != written.Disk || i.busy != "" {
		t.Error("the file counts as changed by somebody, which another write changed")
	}
}

// The error of an update stands while the next one makes its changes in parts, and goes when all are made.
func TestErrorStandsUntilTheLastPart(t *testing.T) {
	t.Parallel()
	c := newChurn(t, dataplanetest.V34, 3, "a")
	i := c.instances["a"]
	i.jobError, i.stuck, i.running.Servers = "a server cannot be changed", &liveWants{}, nil
	ended := instance.UpdateEnded{Have: i.running}
	ended.Have.Unfinished = true
	if c.Machine.jobs.updateEnded(i, ended, time.Now()); i.jobError == "" || i.stuck == nil {
		t.Errorf("after a part: %q, stuck: %t", i.jobError, i.stuck != nil)
	}
	ended.Have.Unfinished = false
	if c.Machine.jobs.updateEnded(i, ended, time.Now()); i.jobError != "" || i.stuck != nil {
		t.Errorf("after the last one: %q, stuck: %t", i.jobError, i.stuck != nil)
	}
}

// The file was written with a change that the worker did not get, and that is no longer wanted: the file is written again.
func TestFileHasWhatIsNoLongerWanted(t *testing.T) {
	t.Parallel()
	c := newChurn(t, dataplanetest.V34, 150, "a")
	i := c.instances["a"]
	i.running.Written = slices.Clone(i.running.Written)
	i.running.Written[0].State = bind.SlotSpare
	if !i.running.Persisted || c.needsOf(i).Persisted {
		t.Errorf("the file counts as written")
	}
	i.conflict = &report.Conflict{Faults: []push.Fault{{What: "haproxy.cfg on disk"}}}
	if !c.needsOf(i).Persisted {
		t.Errorf("a file that somebody else keeps changing is written")
	}
	i.conflict = nil
	_, _, _, _, before := c.calls("a", 0)
	i.persisted = time.Time{}
	c.until(t, func() bool { return c.needsOf(i).Persisted && c.settled() })
	if posts, _, _, _, _ := c.calls("a", before); posts != 1 {
		t.Errorf("there were %d posts", posts)
	}
}

// A part of the changes waits for the end of a write, since it takes a post. Newer ones do not wait.
func TestOthersWaitForTheWrite(t *testing.T) {
	t.Parallel()
	c, i := writing(t, false)
	c.until(t, func() bool { return i.busy == "" })
	p, n := c.Machine.jobs.wanted(i), c.needsOf(i)
	i.attempted, i.waits = wantsOf(p.Servers, p.Entries, p.Certificates), true
	if !n.Writing || !c.needsOf(i).Waits {
		t.Errorf("writing %t, waits %t", n.Writing, c.needsOf(i).Waits)
	}
	c.replace(7)
	c.until(t, c.served)
	if !i.writing || !c.takes(arrival{"shop_web-7", churnAddress(7, c.came), time.Now()}) {
		t.Errorf("writing: %t", i.writing)
	}
	c.release(nil)
	i.persisted = time.Time{}
	c.until(t, c.settled)
}

// The disk of an instance is full, so that its file cannot be written. An endpoint that comes then does not wait for the next
// try, whatever has failed.
func TestEndpointComesAfterAFailedWrite(t *testing.T) {
	t.Parallel()
	c := newChurn(t, dataplanetest.V34, 150, "a")
	i := c.instances["a"]
	c.replace(1) // now it is known that the API sets addresses
	c.until(t, c.served)
	c.edges["a"].Inject(dataplanetest.DiskFull().On(http.MethodPost, "/configuration/raw"))
	i.persisted = time.Time{}
	c.until(t, func() bool { return i.jobError != "" && i.doing() == "" })
	for n, failed := range []work{workPersist, workMend, workInspect, workTidy} {
		c.until(t, func() bool { return i.doing() == "" })
		next := time.Now().Add(time.Minute)
		i.lastWork, i.jobNotBefore = failed, next
		c.replace(7 + n)
		c.until(t, func() bool {
			return c.takes(arrival{fmt.Sprintf("shop_web-%d", 7+n), churnAddress(7+n, c.came), time.Now()})
		})
		if !time.Now().Before(next) {
			t.Errorf("after a failure to %s, the endpoint waited for the next try", failed)
		}
	}
}

// While a disk is full, endpoints come all the time, and workers get them. That does not hide the failure, nor has it the file
// written again before that is due.
func TestFullDiskIsReportedWhileEndpointsCome(t *testing.T) {
	t.Parallel()
	for name, api := range map[string]dataplanetest.API{"calls set addresses": dataplanetest.V34, "dynamic servers stand in": dataplanetest.V32} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChurn(t, api, 150, "a")
			i := c.instances["a"]
			c.replace(1)
			c.until(t, c.served)
			c.edges["a"].Inject(dataplanetest.DiskFull().On(http.MethodPost, "/configuration/raw"))
			c.replace(2)
			i.persisted = time.Time{}
			c.until(t, func() bool { return i.jobError != "" && i.doing() == "" })
			failed, next, worker := i.jobError, i.jobNotBefore, i.info.PID
			_, _, _, _, before := c.calls("a", 0)
			for n := range 5 {
				c.replace(7 + n)
				c.until(t, func() bool {
					return c.takes(arrival{fmt.Sprintf("shop_web-%d", 7+n), churnAddress(7+n, c.came), time.Now()}) && i.doing() == ""
				})
				i.persisted = time.Time{}
				c.step(t.Context())
				if i.jobError != failed || i.jobNotBefore != next || i.jobFailures != 1 {
					t.Fatalf("after %d endpoints the status has the error %q of %d failures, and the next try is at %v", n+1, i.jobError, i.jobFailures, i.jobNotBefore)
				}
			}
			if posts, _, _, _, _ := c.calls("a", before); posts > 0 {
				t.Errorf("the file was written %d times meanwhile", posts)
			}
			c.edges["a"].ClearFaults()
			i.jobNotBefore = time.Time{}
			c.until(t, c.settled)
			if i.jobError != "" || i.jobFailures != 0 || i.info.PID != worker {
				t.Errorf("after the write: %q, %d failures", i.jobError, i.jobFailures)
			}
		})
	}
}

// An endpoint comes and goes before the pusher hears that a dynamic server has it. The pusher sees that its worker has what is
// wanted, and goes on with what else there is to do.
func TestEndpointGoesWhileItsDynamicServerComes(t *testing.T) {
	t.Parallel()
	c := newChurn(t, dataplanetest.V32, 150, "a")
	c.DrainTime = 0
	i := c.instances["a"]
	i.persisted = time.Now().Add(time.Hour)
	has := func(numbers ...int) {
		list := make([]snapshots.Endpoint, 0, len(numbers))
		for _, n := range numbers {
			list = append(list, snapshots.Endpoint{Address: churnAddress(7, n), Port: 8080})
		}
		c.live.TakeCluster(cluster.Change{Endpoints: map[snapshots.ServicePort][]snapshots.Endpoint{churnPort(7): list}}, time.Now())
	}
	c.holds = func(ev instance.Event) bool { _, update := ev.(instance.UpdateEnded); return update }
	has(0, 1)
	c.until(t, func() bool { return len(c.held) == 1 })
	has(0)
	c.step(t.Context())
	c.release(nil)
	c.until(t, c.served)
	i.persisted = time.Time{}
	c.until(t, c.settled)
}

// BenchmarkChurn measures how long a replacing endpoint takes to serve on all of three instances. 20 endpoints
// are replaced each second among 1,000 backends.
func BenchmarkChurn(b *testing.B) {
	for _, api := range []dataplanetest.API{dataplanetest.V32, dataplanetest.V34} {
		b.Run(string(api), func(b *testing.B) {
			c := newChurn(b, api, benchBackends, "a", "b", "c")
			var took []time.Duration
			var pending []arrival
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			n := 0
			for b.Loop() {
				for len(took) <= n && b.Context().Err() == nil {
					select {
					case ev := <-c.events:
						c.waiting = append(c.waiting, ev)
					case <-tick.C:
						backend := (c.came * 7) % benchBackends
						c.replace(backend)
						pending = append(pending, arrival{fmt.Sprintf("shop_web-%d", backend), churnAddress(backend, c.came), time.Now()})
					}
					c.step(b.Context())
					pending = slices.DeleteFunc(pending, func(a arrival) bool {
						if c.takes(a) {
							took = append(took, time.Since(a.at))
						}
						return c.takes(a)
					})
				}
				n++
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "ms-p50")
			b.ReportMetric(float64(took[len(took)*99/100].Milliseconds()), "ms-p99")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// servers returns the wanted servers of an instance's worker.
func (c *churn) servers(i *instanceState) []bind.Server {
	p, _ := c.bindings.Of(i.snapshot())
	return p.Servers
}

// Instances that have the same servers share one list of them, whether a reload, changes at run time, a write to disk
// or reading their workers found that out. With 50,000 servers a list takes 4 MB.
func TestInstancesShareOneListOfServers(t *testing.T) {
	t.Parallel()
	c := newChurn(t, dataplanetest.V34, 3, "a", "b")
	shared := func(when string, written bool) {
		t.Helper()
		for name, i := range c.instances {
			want := c.servers(i)
			if have := i.running.Servers; len(have) == 0 || &have[0] != &want[0] {
				t.Errorf("%s, the servers of %s are another list", when, name)
			}
			if disk := i.running.Written; written && (len(disk) == 0 || &disk[0] != &want[0]) {
				t.Errorf("%s, the servers on the disk of %s are another list", when, name)
			}
		}
	}
	shared("after a reload", true)
	c.replace(1)
	c.until(t, c.served)
	shared("after a change at run time", false)
	for _, i := range c.instances {
		i.persisted = time.Time{}
	}
	c.until(t, c.settled)
	shared("after a write to disk", true)
	for _, i := range c.instances {
		i.running.Servers, i.running.Written = nil, nil
	}
	c.until(t, c.settled)
	shared("after reading the workers", true)
}
