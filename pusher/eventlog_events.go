package pusher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/core"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/sealing"
)

// loggedEvent is an event in an event log: its kind, the instance that it is about, and data that
// depends on the kind. Nothing else of an event gets into a log.
type loggedEvent struct {
	Kind  string          `json:"kind"`
	About *instance.About `json:"about,omitempty"`
	Err   *loggedError    `json:"err,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
	// Text is the event's line of the pusher's log at the lowest level, for people.
	Text string `json:"text"`
}

// encode returns an event in the form of the log.
func (l *eventLog) encode(ev core.Event) (loggedEvent, error) {
	switch v := ev.(type) {
	case core.FleetRead:
		l.hide(v.Fleet.Instances)
	case core.PodsFound:
		l.hide(v.Found)
	}
	out := loggedEvent{Text: l.text(ev.String())}
	var data any
	switch v := ev.(type) {
	case core.ViewRead:
		out.Kind, out.Err, data = "view", l.error(v.Err), v.View
	case core.LiveRead:
		out.Kind, out.Err, data = "live", l.error(v.Err), v.Live.Record(l.digest)
	case core.FleetRead:
		out.Kind, out.Err, data = "fleet", l.error(v.Err), l.fleet(v.Fleet)
	case core.PodsFound:
		out.Kind, out.Err, data = "pods", l.error(v.Err), loggedPods{v.Of, l.members(v.Found), v.Found != nil}
	case core.CredentialsMade:
		out.Kind, out.Err, data = "credentials", l.error(v.Err), v.Of
	case core.StatusWritten:
		out.Kind, out.Err = "status", l.error(v.Err)
	case core.ClusterChanged:
		out.Kind, data = "cluster", binding.RecordChange(v.Change, l.digest)
	case core.SnapshotRead:
		out.Kind, out.Err, data = "snapshot", l.error(v.Err), v.ID
	case core.LeaderSeen:
		out.Kind, data = "leader", v.Holder
	case core.SnapshotsForgotten:
		out.Kind = "forgotten"
	case core.CertificatesOpened:
		found := map[string]string{}
		for version, content := range v.Found {
			found[version] = l.digest(content)
		}
		out.Kind, out.Err, data = "certificates", l.error(v.Err), loggedCertificates{v.ID, found}
	case core.RejectionWritten:
		out.Kind, out.Err, data = "rejection", l.error(v.Err), v.ID
	case core.SaveEnded:
		out.Kind, out.Err = "save", l.error(v.Err)
	case core.Raised:
		out.About = &instance.About{Ref: v.Of}
		out.Kind, out.Err, data = "raised", l.error(v.Err), loggedRaise{v.Above, v.Term}
	default:
		return out, fmt.Errorf("an event of type %T has no form in the event log", ev)
	case core.OfInstance:
		return l.encodeOfInstance(v.Event, out)
	}
	return out, out.set(data)
}

// encodeOfInstance is encode for an event of an instance.
func (l *eventLog) encodeOfInstance(ev instance.Event, out loggedEvent) (loggedEvent, error) {
	about := ev.From()
	out.About = &about
	var data any
	is := func(kind string, err error, of any) { out.Kind, out.Err, data = kind, l.error(err), of }
	switch v := ev.(type) {
	case instance.JoinFailed:
		is("join-failed", v.Err, nil)
	case instance.Renewed:
		is("renewed", v.Err, nil)
	case instance.Probed:
		is("probed", v.Err, loggedProbe{v.Info, v.Asked})
	case instance.Checked:
		found := slices.Clone(v.Found)
		for n := range found {
			found[n].Message, found[n].Hint = l.text(found[n].Message), l.text(found[n].Hint)
		}
		is("checked", v.Err, found)
	case instance.ClaimEnded:
		is("claim", v.Err, v.Term)
	case instance.PushEnded:
		is("push", v.Err, l.push(v))
	case instance.UpdateEnded:
		is("update", v.Err, loggedUpdate{v.Node, v.Began, v.Had.Servers != nil, l.running(about.Ref, v.Have)})
	case instance.PersistEnded:
		is("persist", v.Err, loggedPersist{l.running(about.Ref, v.Have), v.Took, v.Alone})
	case instance.TidyEnded:
		is("tidy", v.Err, l.running(about.Ref, v.Have))
	case instance.CollectEnded:
		is("collect", v.Err, loggedCollect{v.Garbage, v.Removed})
	case instance.InspectEnded:
		is("inspect", v.Err, loggedInspect{v.Inspect.Have.Info.PID, l.running(about.Ref, v.Found.Running), v.Found.Faults, v.Inspect.Want.ID})
	case instance.MendEnded:
		is("mend", v.Err, loggedMend{v.Disk, v.Servers})
	case instance.Sampled:
		is("sample", v.Err, v.Sample)
	default:
		return out, fmt.Errorf("an event of type %T has no form in the event log", ev)
	}
	return out, out.set(data)
}

func (v *loggedEvent) set(data any) (err error) {
	if data != nil {
		v.Data, err = json.Marshal(data)
	}
	return err
}

// The data of events.
type (
	loggedPods struct {
		Of    fleet.Pods     `json:"of"`
		Found []loggedMember `json:"found"`
		Known bool           `json:"known"`
	}
	loggedCertificates struct {
		Snapshot snapshots.ID      `json:"snapshot"`
		Found    map[string]string `json:"found,omitempty"`
	}
	loggedRaise struct {
		Above int64 `json:"above"`
		Term  int64 `json:"term"`
	}
	loggedProbe struct {
		Info  dataplane.RuntimeInfo `json:"info"`
		Asked time.Time             `json:"asked"`
	}
	loggedUpdate struct {
		Node  string        `json:"node"`
		Began time.Time     `json:"began"`
		Had   bool          `json:"had"`
		Have  loggedRunning `json:"have"`
	}
	loggedPersist struct {
		Have  loggedRunning `json:"have"`
		Took  time.Duration `json:"took"`
		Alone bool          `json:"alone,omitempty"`
	}
	loggedCollect struct {
		Garbage []push.Stored `json:"garbage"`
		Removed []push.Stored `json:"removed"`
	}
	loggedInspect struct {
		Had    int           `json:"had"` // the PID
		Found  loggedRunning `json:"found"`
		Faults []push.Fault  `json:"faults,omitempty"`
		Want   snapshots.ID  `json:"want"`
	}
	loggedMend struct {
		Disk    push.Digest   `json:"disk"`
		Servers []bind.Server `json:"servers"`
	}
	loggedPush struct {
		Push         rollout.Push           `json:"push"`
		Node         string                 `json:"node"`
		ID           snapshots.ID           `json:"id"`
		Servers      []bind.Server          `json:"servers"`
		Entries      snapshots.Digest       `json:"entries,omitempty"`
		Certificates push.CertificateHashes `json:"certificates,omitempty"`
		Wrote        []push.Stored          `json:"wrote,omitempty"`
		Change       report.Change          `json:"change"`
		Done         push.Done              `json:"done"`
		Running      loggedRunning          `json:"running"` // of done
		Took         time.Duration          `json:"took"`
	}
)

// loggedFleet is a fleet's file without passwords and keys.
type loggedFleet struct {
	Name      string         `json:"name"`
	Rollout   loggedRollout  `json:"rollout"`
	Instances []loggedMember `json:"instances,omitempty"`
	Pods      *fleet.Pods    `json:"pods,omitempty"`
}

// loggedRollout is the rollout section of the file, with the time zones of blackouts by name.
type loggedRollout struct {
	fleet.Rollout
	Blackouts []loggedBlackout
}

type loggedBlackout struct {
	rollout.Blackout
	Zone string
}

// loggedMember is an instance of a fleet, with a digest in place of its credentials.
type loggedMember struct {
	Name        string      `json:"name"`
	URL         string      `json:"url"`
	Zone        string      `json:"zone,omitempty"`
	UID         string      `json:"uid,omitempty"`
	Layout      bind.Layout `json:"layout"`
	Credentials string      `json:"credentials"`
	Draining    bool        `json:"draining,omitempty"`
	Also        string      `json:"also,omitempty"`
}

func (l *eventLog) fleet(f fleet.Fleet) loggedFleet {
	out := loggedFleet{Name: f.Name, Rollout: loggedRollout{Rollout: f.Rollout}, Instances: l.members(f.Instances), Pods: f.Pods}
	for _, b := range f.Rollout.Blackouts {
		logged := loggedBlackout{Blackout: b}
		if logged.Blackout.Zone = nil; b.Zone != nil {
			logged.Zone = b.Zone.String()
		}
		out.Rollout.Blackouts = append(out.Rollout.Blackouts, logged)
	}
	out.Rollout.Rollout.Blackouts = nil
	return out
}

func (l *eventLog) members(list []fleet.Instance) []loggedMember {
	var out []loggedMember
	for _, i := range list {
		address := i.URL
		if u, err := url.Parse(i.URL); err == nil {
			u.User = nil
			address = u.String()
		}
		credentials := fmt.Sprintf("%q %q %q", i.Username, i.Password, fmt.Sprint(i.TLS)+i.Unknown)
		out = append(out, loggedMember{i.Name, address, i.Zone, i.UID, i.Layout, l.digest([]byte(credentials)), i.Draining, i.Also})
	}
	return out
}

// hide removes the passwords of instances from all later texts.
func (l *eventLog) hide(list []fleet.Instance) {
	for _, i := range list {
		if len(i.Password) >= 4 && !slices.Contains(l.passwords, i.Password) { // a shorter one may be part of any text
			l.passwords = append(l.passwords, i.Password)
		}
	}
}

// text returns a text without passwords.
func (l *eventLog) text(s string) string {
	for _, password := range l.passwords {
		s = strings.ReplaceAll(s, password, "...")
	}
	return s
}

func (l *eventLog) push(v instance.PushEnded) loggedPush {
	out := loggedPush{
		Push: v.Push, Node: v.Want.Node, ID: v.Want.ID, Servers: v.Want.Servers, Entries: v.Want.Entries, Certificates: v.Certificates,
		Wrote: v.Written, Change: v.Change, Done: v.Done, Running: l.running(v.Ref, v.Done.Running), Took: v.Took,
	}
	out.Done.Running = push.Running{}
	return out
}

// loggedRunning is what a worker has. There may be thousands of servers, so it has only their
// differences to the previous lists of the instance in the log.
type loggedRunning struct {
	push.Running
	Servers serverChange
	Written serverChange
}

// serverChange is the difference between two lists of servers.
type serverChange struct {
	Unknown bool                `json:"unknown,omitempty"` // there is no list
	Changed map[int]bind.Server `json:"changed,omitempty"`
	All     []bind.Server       `json:"all,omitempty"` // if most differ
	New     bool                `json:"new,omitempty"` // All is the list
}

// serverLists are the last lists of an instance.
type serverLists struct{ servers, written []bind.Server }

func (l *eventLog) running(i instance.Ref, r push.Running) loggedRunning {
	out := loggedRunning{Running: r}
	last := l.servers[i.Name]
	out.Servers, out.Written = changeOfServers(last.servers, r.Servers), changeOfServers(last.written, r.Written)
	out.Running.Servers, out.Running.Written = nil, nil
	if r.Servers != nil {
		last.servers = r.Servers
	}
	if r.Written != nil {
		last.written = r.Written
	}
	l.servers[i.Name] = last
	return out
}

func changeOfServers(last, next []bind.Server) serverChange {
	if next == nil {
		return serverChange{Unknown: true}
	}
	if len(last) != len(next) || last == nil {
		return serverChange{All: next, New: true}
	}
	changed := map[int]bind.Server{}
	for n := range next {
		if last[n] != next[n] {
			changed[n] = next[n]
		}
	}
	if len(changed) > len(next)/2 {
		return serverChange{All: next, New: true}
	}
	return serverChange{Changed: changed}
}

// of applies the difference to the last list.
func (c serverChange) of(last []bind.Server) []bind.Server {
	switch {
	case c.Unknown:
		return nil
	case c.New:
		return append([]bind.Server{}, c.All...)
	case len(c.Changed) == 0:
		return last
	}
	next := slices.Clone(last)
	for n, s := range c.Changed {
		next[n] = s
	}
	return next
}

// loggedError is an error: its text, and the properties on which decisions depend.
type loggedError struct {
	Text  string   `json:"text"`
	Gist  string   `json:"gist,omitempty"`
	Kinds []string `json:"kinds,omitempty"`
	// Unkept is set if a snapshot was read and could not be kept, Term and By if a pusher of a later
	// term wrote the instance's file, LedBy if another pusher leads the instance.
	Unkept      bool         `json:"unkept,omitempty"`
	Unsupported bool         `json:"unsupported,omitempty"`
	Term        int64        `json:"term,omitempty"`
	By          int64        `json:"by,omitempty"`
	LedBy       *push.Pusher `json:"ledBy,omitempty"`
}

// errorKinds are the errors on which decisions depend.
var errorKinds = map[string]error{
	"canceled": context.Canceled, "rewound": channel.ErrRewound, "taken": statestore.ErrTaken,
	"instance": push.ErrInstance, "directory": push.ErrDirectory, "refused": push.ErrRefused, "reload": push.ErrNeedsReload,
	"tooLarge": core.ErrStateTooLarge, "unauthorized": dataplane.ErrUnauthorized, "runtime": dataplane.ErrRuntime,
	"notForUs": sealing.ErrNotForUs,
}

func (l *eventLog) error(err error) *loggedError {
	if err == nil {
		return nil
	}
	out := loggedError{Text: l.text(report.Brief(err)), Gist: l.text(push.Gist(err))}
	for kind, of := range errorKinds {
		if errors.Is(err, of) {
			out.Kinds = append(out.Kinds, kind)
		}
	}
	slices.Sort(out.Kinds)
	if by, ok := errors.AsType[push.OutrankedError](err); ok {
		out.Term, out.By = by.Term, by.By
	}
	if by, ok := errors.AsType[push.LedByOtherError](err); ok {
		out.LedBy = &by.By
	}
	_, out.Unkept = errors.AsType[*binding.NotKeptError](err)
	_, out.Unsupported = errors.AsType[dataplane.UnsupportedError](err)
	return &out
}
