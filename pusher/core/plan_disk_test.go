package core

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// A backend that the worker serves is soon served from the disk too, whatever else happens. So a HAProxy that
// starts from the file after the pusher was killed serves it. In a model of one instance whose jobs take time,
// endpoints come, go and are replaced at random. At each moment, each such backend is served from the disk, or
// has not been for no longer than the window.
func TestWhatServesIsSoonOnDisk(t *testing.T) {
	longest := map[bool]time.Duration{}
	for seed := range uint64(300) {
		m := newDiskModel(seed)
		for range 2000 {
			m.step(t)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		longest[m.fileFirst] = max(longest[m.fileFirst], m.longest)
	}
	t.Logf("the longest windows: file first %v, worker first %v", longest[true], longest[false])
	if longest[false] == 0 {
		t.Error("no backend was served by the worker before it was on disk: the model shows nothing")
	}
}

// diskModel is an instance with a worker and a disk, and a pusher that does one job at a time. A step is a
// millisecond.
type diskModel struct {
	rand         *rand.Rand
	now          time.Time
	want         []bind.Server
	worker, disk []bind.Server
	persistAfter time.Time
	urgentAfter  time.Time
	post         time.Duration
	fileFirst    bool
	churn        float64 // the probability that an endpoint changes in a step
	job          work
	jobWants     []bind.Server
	jobPosts     bool // the job also posts the file
	jobEnds      time.Time
	last         work
	since        map[string]time.Time // since when only the worker serves a backend
	longest      time.Duration
}

const (
	modelSlots   = 3
	modelUpdate  = 5 * time.Millisecond
	modelPersist = 5 * time.Second
)

func newDiskModel(seed uint64) *diskModel {
	m := &diskModel{rand: rand.New(rand.NewPCG(seed, 1)), now: noon, since: map[string]time.Time{}, job: workNothing}
	m.fileFirst = seed%2 == 0
	m.post = time.Duration(1+m.rand.IntN(30)) * time.Millisecond
	if !m.fileFirst {
		m.post *= 30
	}
	m.churn = []float64{0.01, 0.1, 0.7}[m.rand.IntN(3)]
	for b := range 1 + m.rand.IntN(4) {
		for n := range modelSlots {
			m.want = append(m.want, spareServer(fmt.Sprintf("b%d", b), n))
		}
	}
	m.worker, m.disk = m.want, m.want
	return m
}

func spareServer(backend string, n int) bind.Server {
	return bind.Server{
		Backend: backend, Name: fmt.Sprintf("s%d", n+1), Address: bind.SpareAddress, Port: bind.SparePort,
		Weight: 1, State: bind.SlotSpare,
	}
}

func (m *diskModel) step(t *testing.T) {
	t.Helper()
	m.now = m.now.Add(time.Millisecond)
	if m.rand.Float64() < m.churn {
		m.change()
	}
	if m.job != workNothing && !m.now.Before(m.jobEnds) {
		m.end()
	}
	if m.job == workNothing {
		m.begin()
	}
	m.check(t)
}

// change adds, drains or removes an endpoint, or replaces all endpoints of a backend.
func (m *diskModel) change() {
	next := append([]bind.Server(nil), m.want...)
	at := m.rand.IntN(len(next))
	fresh := func(n int) {
		next[n].Address, next[n].Port, next[n].State = fmt.Sprintf("10.0.%d.%d", m.rand.IntN(250), m.rand.IntN(250)), 80, bind.SlotReady
	}
	switch m.rand.IntN(4) {
	case 0:
		fresh(at)
	case 1:
		if next[at].State == bind.SlotReady {
			next[at].State = bind.SlotDrain
		}
	case 2:
		next[at] = spareServer(next[at].Backend, at%modelSlots)
	case 3:
		from := at - at%modelSlots
		for n := from; n < from+modelSlots; n++ {
			next[n] = spareServer(next[n].Backend, n%modelSlots)
		}
		fresh(from + m.rand.IntN(modelSlots))
	}
	m.want = next
}

func (m *diskModel) begin() {
	same := sameServers(m.worker, m.want)
	w := classify(instanceNeeds{
		Reachable: true, Bound: true, SameNode: true, SameServers: same, SameMaps: true, SameCertificates: true,
		Persisted: sameServers(m.disk, m.worker), PersistAfter: m.persistAfter,
		Unserved: push.Unserved(m.disk, m.want), UrgentAfter: m.urgentAfter, Updated: m.last == workUpdate,
		InspectAfter: m.now.Add(time.Hour),
	}, m.now)
	m.job, m.jobWants, m.jobPosts = w, m.want, false
	switch w {
	case workUpdate:
		m.jobEnds = m.now.Add(modelUpdate)
		if m.jobPosts = m.fileFirst && push.Unserved(m.disk, m.want); m.jobPosts {
			m.jobEnds = m.now.Add(m.post)
		}
	case workPersist:
		m.jobEnds = m.now.Add(m.post)
	}
}

func (m *diskModel) end() {
	m.worker, m.last = m.jobWants, m.job
	if m.jobPosts {
		m.disk = m.jobWants
	}
	if m.job == workPersist {
		m.disk, m.persistAfter, m.urgentAfter = m.jobWants, m.now.Add(modelPersist), m.now.Add(m.post)
	}
	m.job = workNothing
}

// check checks each backend for the case that everything ends now.
func (m *diskModel) check(t *testing.T) {
	t.Helper()
	window := 3*m.post + 2*modelUpdate + 2*time.Millisecond
	for at := 0; at < len(m.want); at += modelSlots {
		to := at + modelSlots
		backend, want := m.want[at].Backend, m.want[at:to]
		if push.Unserved(m.worker[at:to], want) || !push.Unserved(m.disk[at:to], want) {
			delete(m.since, backend)
			continue
		}
		if _, ok := m.since[backend]; !ok {
			m.since[backend] = m.now
		}
		open := m.now.Sub(m.since[backend])
		m.longest = max(m.longest, open)
		if open > window {
			t.Errorf("%s is served by the worker for %v, and would not be from the disk; a post takes %v", backend, open, m.post)
		}
	}
}

func sameServers(a, b []bind.Server) bool {
	for n := range a {
		if a[n] != b[n] {
			return false
		}
	}
	return true
}
