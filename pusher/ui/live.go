package ui

import (
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Live is what only a running pusher knows, besides its status.
type Live struct {
	// Waves are those that a rollout takes, Soak how long each is watched, and Gate what it compares.
	Waves []rollout.WaveSize
	Soak  time.Duration
	Gate  *rollout.Figures
	// Budget is what is left of that of reloads.
	Budget rollout.Left
	// Instances are those of the fleet, by name.
	Instances map[string]LiveInstance
	// Endpoints are those that servers are made of, nil where they are not known.
	Endpoints map[snapshots.ServicePort][]snapshots.Endpoint
	// CertificateEnds are when the certificates in Secrets expire, and Issuers who issued them.
	CertificateEnds map[snapshots.SecretName]time.Time
	Issuers         map[snapshots.SecretName]string
	// Traffic is what backends serve, of those that do.
	Traffic map[string]observe.Traffic
	// Up says how many servers of each backend are up, on each instance that was asked.
	Up []rollout.ServersUp
}

// LiveInstance is what only a running pusher knows of an instance.
type LiveInstance struct {
	// HAProxy is the version of its worker, which began at a time.
	HAProxy string    `json:"haproxy,omitempty"`
	Started time.Time `json:"started,omitzero"`
	// ReloadsLeft is how many reloads its budget allows at once, nil where there is no limit.
	ReloadsLeft *int `json:"reloadsLeft,omitempty"`
	// Failures counts the pushes in a row that did not come through; the next may begin at NotBefore.
	Failures  int       `json:"failures,omitempty"`
	NotBefore time.Time `json:"notBefore,omitzero"`
	// Repairs are the last times that somebody else's change of what it runs was undone.
	Repairs []time.Time `json:"repairs,omitempty"`
	// Pushes are the last ones since this pusher leads, the newest first.
	Pushes []Push `json:"pushes,omitempty"`
}

// Push is a push that has ended.
type Push struct {
	At       time.Time    `json:"at"`
	Snapshot snapshots.ID `json:"snapshot"`
	Why      string       `json:"why"`
	// Outcome is applied, refused, faulty, trouble or not begun, and Class what it took: nothing, runtime
	// or reload, because of a line.
	Outcome rollout.Outcome `json:"outcome"`
	Class   string          `json:"class,omitempty"`
	Because string          `json:"because,omitempty"`
	// Took is how long it took, in seconds.
	Took  float64 `json:"took"`
	Error string  `json:"error,omitempty"`
}

// keptPushes is how many are kept of each instance.
const keptPushes = 10

// watchPace is how often what a pusher knows is copied for those who look, at most.
const watchPace = 200 * time.Millisecond

// Watcher makes values of what a running pusher knows, which nobody changes any more. One goroutine
// calls it, that of the pusher, and it waits for nobody.
type Watcher struct {
	to     *Latest
	pushes map[string][]Push
	made   time.Time

	endpoints map[snapshots.ServicePort][]snapshots.Endpoint // a copy
	copied    time.Time
}

// endpointsPace is how often endpoints are copied, at most: there may be many.
const endpointsPace = time.Second

// NewWatcher returns a watcher that leaves what it makes in to.
func NewWatcher(to *Latest) *Watcher { return &Watcher{to: to, pushes: map[string][]Push{}} }

// Watch takes what is known after a step.
func (w *Watcher) Watch(v observe.View, s report.Status, told []observe.Told) {
	for _, t := range told {
		if p, ok := t.Fact.(observe.Pushed); ok {
			w.pushed(p, t.At)
		}
	}
	if v.Now.Sub(w.made) < watchPace && v.Now.After(w.made) {
		return // there is a step at least once a second
	}
	w.made = v.Now
	live := w.live(v)
	maps.DeleteFunc(w.pushes, func(name string, _ []Push) bool {
		_, there := live.Instances[name]
		return !there
	})
	w.to.Set(Fleet{Status: s, Live: live, At: v.Now})
}

func (w *Watcher) pushed(p observe.Pushed, at time.Time) {
	made := Push{
		At: at.UTC().Truncate(time.Second), Snapshot: p.Snapshot, Why: p.Why, Outcome: p.Outcome, Class: string(p.Change.Class), Because: p.Change.Because(),
		Took: p.Took.Seconds(), Error: report.FirstLine(p.Error, report.LongestMessage),
	}
	list := append([]Push{made}, w.pushes[p.Instance]...) // another slice: the old one is somebody's by now
	w.pushes[p.Instance] = list[:min(len(list), keptPushes)]
}

func (w *Watcher) live(v observe.View) *Live {
	if v.Now.Sub(w.copied) >= endpointsPace || v.Now.Before(w.copied) || w.endpoints == nil {
		w.endpoints, w.copied = maps.Clone(v.Endpoints), v.Now
	}
	out := &Live{Endpoints: w.endpoints, Traffic: v.Traffic, Up: v.Up, CertificateEnds: v.CertificateEnds, Issuers: v.Issuers, Waves: v.Waves, Soak: v.Soak, Gate: v.Gate, Budget: v.Budget, Instances: make(map[string]LiveInstance, len(v.Instances))}
	for _, i := range v.Instances {
		known := v.Rollout.Instances[i.Name]
		l := LiveInstance{
			HAProxy: i.Info.Version, Started: i.Started, Failures: known.Failures, NotBefore: known.NotBefore, Pushes: w.pushes[i.Name],
			Repairs: slices.Clone(v.Rollout.Repairs[i.Name].At),
		}
		if left, ok := v.Budget.Instances[i.Name]; ok {
			l.ReloadsLeft = &left
		}
		out.Instances[i.Name] = l
	}
	return out
}
