package observe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// Log lines, posts and Events of a step come from the same facts.
func TestRolloutEvents(t *testing.T) {
	t.Parallel()
	one, two := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}
	good := rollout.State{Good: one}
	of := func(phase rollout.Phase, paused string) rollout.State {
		return rollout.State{Good: one, Rollout: &rollout.Rollout{Target: two, Phase: phase, Paused: paused, Members: []string{"a"}}}
	}
	failed := func(phase rollout.Phase, recorded bool) rollout.State {
		s := of(phase, "")
		s.Failed = []rollout.Failure{{Snapshot: two, Reason: "a: refused", Recorded: recorded}}
		return s
	}
	undone := failed(rollout.Undoing, true)
	undone.Rollout = nil
	fought := rollout.State{
		Good:    one,
		Repairs: map[string]rollout.Repairs{"b": {Snapshot: one, Stopped: time.Unix(1, 0), Found: "theirs"}, "a": {Snapshot: one, Stopped: time.Unix(1, 0), Found: "theirs"}, "c": {Snapshot: one}},
	}
	const undone3 = "somebody else keeps changing it, 3 repairs in 10 minutes were undone: what it runs: want r000001-aaaaaaaaaa, found theirs"
	for name, test := range map[string]struct {
		old, next rollout.State
		want      string
	}{
		"nothing":     {good, good, ""},
		"begins":      {good, of(rollout.Pushing, ""), "rollout begins | rollout_begins | RolloutBegins | rollout of r000002-bbbbbbbbbb begins\nrollout goes on |  | RolloutWave | wave 1: a (r000002-bbbbbbbbbb)\n"},
		"goes on":     {of(rollout.Pushing, ""), of(rollout.Soaking, ""), "rollout goes on |  |  | \n"},
		"done":        {of(rollout.Soaking, ""), rollout.State{Good: two}, "rollout done | rollout_done | RolloutDone | the fleet runs r000002-bbbbbbbbbb\n"},
		"is there":    {rollout.State{}, good, "fleet runs snapshot |  |  | \n"},
		"failed":      {of(rollout.Pushing, ""), failed(rollout.Pushing, false), "rollout failed | rollout_failed | RolloutFailed! | rollout of r000002-bbbbbbbbbb failed: a: refused\n"},
		"rejected":    {failed(rollout.Undoing, false), failed(rollout.Undoing, true), " |  | SnapshotRejected! | r000002-bbbbbbbbbb is rejected, until pusher retry\n"},
		"undone":      {failed(rollout.Undoing, true), undone, "rollout undone | rollout_undone | RolloutUndone | rollout of r000002-bbbbbbbbbb is undone, the fleet runs r000001-aaaaaaaaaa\n"},
		"first fails": {rollout.State{Rollout: of("", "").Rollout}, rollout.State{}, "rollout undone | rollout_undone | RolloutUndone | rollout of r000002-bbbbbbbbbb is undone\n"},
		"paused":      {of(rollout.Soaking, ""), of(rollout.Soaking, "b: 5xx"), "rollout paused | rollout_paused | RolloutPaused! | rollout of r000002-bbbbbbbbbb is paused: b: 5xx\n"},
		"resumes":     {of(rollout.Soaking, "b: 5xx"), of(rollout.Soaking, ""), "pause of rollout ends | rollout_goes_on | RolloutGoesOn | rollout of r000002-bbbbbbbbbb goes on after its pause\n"},
		"conflicts": {good, fought, "repairs stop | repairs_stop | RepairsStop! | a: " + undone3 + "\n" +
			"repairs stop | repairs_stop | RepairsStop! | b: " + undone3 + "\n"},
		"still in conflict": {fought, fought, ""},
		"conflicts end":     {fought, good, "repairs go on | repairs_go_on | RepairsGoOn | a: repairs go on\nrepairs go on | repairs_go_on | RepairsGoOn | b: repairs go on\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got strings.Builder
			for _, h := range RolloutEvents(test.old, test.next) {
				reason := h.Reason
				if h.Bad {
					reason += "!"
				}
				fmt.Fprintf(&got, "%s | %s | %s | %s\n", h.Log, h.Notice, reason, h.Text)
			}
			if diff := cmp.Diff(test.want, got.String()); diff != "" {
				t.Errorf("told differs (-want +got):\n%s", diff)
			}
		})
	}
}

// said is a cluster that keeps its Events.
type said struct {
	lasting []events.Event
	calls   int
}

func (s *said) Run(context.Context) {}

func (s *said) Say(lasting, _ []events.Event) { s.lasting, s.calls = lasting, s.calls+1 }

func (s *said) words() []string {
	var out []string
	for _, e := range s.lasting {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s %s: %s", e.Type, e.Reason, e.Regarding.Kind, e.Regarding.Name, e.Note)))
	}
	return out
}

// A lasting problem has Events on the pods and Secrets that it concerns. Their text stays the same while it
// lasts.
func TestTroubleOnObjects(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	tls, auth, gone := snapshots.SecretName{Namespace: "shop", Name: "tls"}, snapshots.SecretName{Namespace: "shop", Name: "auth"}, snapshots.SecretName{Namespace: "shop", Name: "gone"}
	s := &said{}
	o := New(Options{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Tracers: noop.NewTracerProvider(), Events: s})
	v := View{
		Now: now, Pods: true, PodNamespace: "edge", Instances: []Instance{{Name: "pod", UID: "u1"}, {Name: "listed"}},
		StoreRead: true, Decision: channel.Decision{Because: channel.BecausePin, Hold: true, Message: "r3 is pinned, but the store does not hold it"},
		Unusable: []Unusable{{tls, "u2", "Secret shop/tls: the key is another's"}, {auth, "u3", "nobody is let in"}, {gone, "", "the fallback certificate is served"}},
	}
	status := []report.Instance{
		{Name: "fine", Reachable: true}, {Name: "listed", Since: now.Add(-tellAfter)},
		{Name: "away for a moment", Since: now.Add(-tellAfter / 2)}, {Name: "not asked yet"},
		{Name: "pod", Refused: true, Error: "HAProxy 2.2 is too old", Since: now},
	}
	o.Show(v, report.Status{Instances: status})
	for n := range 3 { // nothing has changed
		status[1].Error = fmt.Sprintf("dial: port %d", n)
		v.Now = now.Add(time.Duration(n) * time.Second)
		o.Show(v, report.Status{Instances: status})
	}
	want := []string{
		"Warning InstanceUnreachable  : listed: it has been out of reach since 2026-01-01T11:59:00Z",
		"Warning InstanceRefused Pod pod: pod: nothing is pushed to it: HAProxy 2.2 is too old",
		"Warning Unusable Secret tls: Secret shop/tls: the key is another's",
		"Warning Unusable Secret auth: nobody is let in",
		"Warning NamedSnapshotHeld  : r3 is pinned, but the store does not hold it",
	}
	if diff := cmp.Diff(want, s.words()); diff != "" {
		t.Errorf("said differs (-want +got):\n%s", diff)
	}
	if s.calls != 1 {
		t.Errorf("said %d times", s.calls)
	}
	if got := v.pod("pod"); got != (corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "edge", Name: "pod", UID: types.UID("u1")}) {
		t.Errorf("the pod is %+v", got)
	}

	// A problem that is solved has no Event.
	v.Unusable, v.Decision = nil, channel.Decision{}
	o.Show(v, report.Status{Instances: []report.Instance{{Name: "listed", Reachable: true}}})
	if lasting := s.words(); len(lasting) > 0 {
		t.Errorf("still said: %v", lasting)
	}
}

func TestTroublesThatDifferInNumbersAreOneLine(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	o := New(Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Metrics: prometheus.NewRegistry(), Tracers: noop.NewTracerProvider()})
	troubles := Troubles{}
	trouble := func(about string, err error, now time.Time) {
		if changed, is := troubles.Set(about, err, now); is {
			o.Record(TimedFact{changed, now})
		}
	}
	now := noon
	say := func(text string) {
		now = now.Add(time.Second)
		trouble("store", errors.New(text), now)
		if troubles["store"].Error != text || !troubles["store"].Since.Equal(noon.Add(time.Second)) {
			t.Errorf("it says %+v, want %q", troubles["store"], text)
		}
	}
	for n := range 50 {
		say(fmt.Sprintf("write tmp-%d: no space left on device", n))
	}
	say("permission denied")
	say("permission denied")
	now = now.Add(2 * troubleRepeats)
	say("permission denied")
	trouble("store", nil, now)
	if n := strings.Count(log.String(), "\n"); n != 3 {
		t.Errorf("the log has %d lines, want 3:\n%s", n, log.String())
	}
	trouble("long", errors.New(strings.Repeat("z", 10*report.LongestError)), now)
	if n := len(troubles["long"].Error); n > report.LongestError+len("…") {
		t.Errorf("%d bytes are kept", n)
	}
}

// Events name a limited number of refused Services and addresses.
func TestRefusalEventsAreBounded(t *testing.T) {
	t.Parallel()
	refused := Refused{}
	for n := range mostRefusalsSaid + 1 {
		var list []live.Refused
		for i := range 1000 {
			list = append(list, live.Refused{Endpoint: snapshots.Endpoint{Address: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).String(), Port: 80}})
		}
		refused[snapshots.ServicePort{Namespace: "bad", Service: fmt.Sprint("s", n)}] = list
	}
	all := refused.Events()
	if len(all) != mostRefusalsSaid || len(all[0].Note) > 1000 || !strings.Contains(all[0].Note, "and 980 more") {
		t.Errorf("%d Events, the first %v", len(all), all[:1])
	}
}
