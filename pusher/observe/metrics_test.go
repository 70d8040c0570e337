package observe

import (
	"bytes"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// A pin without a time, such as one that somebody wrote with kubectl, has an age all the same.
func TestPinAge(t *testing.T) {
	t.Parallel()
	var h held
	unsaid, before, after := &time.Time{}, noon.Add(-time.Hour), noon.Add(time.Hour)
	for i, step := range []struct {
		since *time.Time
		want  time.Duration
	}{{nil, 0}, {unsaid, 0}, {unsaid, time.Minute}, {nil, 0}, {unsaid, 0}, {nil, 0}, {&before, time.Hour + 6*time.Minute}, {&after, 0}} {
		if h = h.next(step.since, noon.Add(time.Duration(i)*time.Minute)); h.age != step.want {
			t.Errorf("minute %d: %s, want %s", i, h.age, step.want)
		}
	}
}

// When an instance leaves, its gauges disappear. Without a limit, there is no gauge of what is left.
func TestGauges(t *testing.T) {
	t.Parallel()
	var g gauges
	g.set(View{Budget: rollout.Left{Limited: true, Fleet: 1, Instances: map[string]int{"gone": 1}}, KeptPorts: 9}, report.Status{Instances: []report.Instance{{Name: "gone", InSync: true}}})
	pinned := channel.Channel{}.Pinned(channel.Pin{At: noon.Add(-90 * time.Second)})
	g.set(View{Now: noon, Channel: pinned, Budget: rollout.Left{Instances: map[string]int{"a": 2, "b": 0}}, Lacking: 1, KeptPorts: 2, Expiries: SoonestExpiries(map[snapshots.SecretName]time.Time{
		{Namespace: "shop", Name: "tls"}: time.Unix(2000, 0), {Namespace: "blog", Name: "tls"}: time.Unix(1000, 0), {Namespace: "blog", Name: "broken"}: {},
	})}, report.Status{
		Instances: []report.Instance{{Name: "a", InSync: true}, {Name: "b"}}, Backends: &report.Backends{Empty: 7, Failing: 4},
		Conditions: []metav1.Condition{{Type: report.TypeDegraded, Status: metav1.ConditionTrue, Reason: report.ReasonSnapshotFailed}},
	})
	const want = `
# HELP hapsnap_pusher_backends_without_servers Backends of what should run that have no server up, by why: endpoints (there are none), checks (no server passes its checks on an instance).
# TYPE hapsnap_pusher_backends_without_servers gauge
hapsnap_pusher_backends_without_servers{why="checks"} 4
hapsnap_pusher_backends_without_servers{why="endpoints"} 3
# HELP hapsnap_pusher_certificate_expiry_timestamp_seconds When a certificate that is served expires, as Unix time, by its Secret; of the 100 that expire first.
# TYPE hapsnap_pusher_certificate_expiry_timestamp_seconds gauge
hapsnap_pusher_certificate_expiry_timestamp_seconds{secret="tls",secret_namespace="blog"} 1000
hapsnap_pusher_certificate_expiry_timestamp_seconds{secret="tls",secret_namespace="shop"} 2000
# HELP hapsnap_pusher_endpoints_kept Service ports whose endpoints are kept though their source has none of them any more, until they are seen again or a person confirms the loss.
# TYPE hapsnap_pusher_endpoints_kept gauge
hapsnap_pusher_endpoints_kept 2
# HELP hapsnap_pusher_needs_lacking Lists of EndpointSlices, Secrets and sources that snapshots in use need and the pusher cannot have, such as what it may not read.
# TYPE hapsnap_pusher_needs_lacking gauge
hapsnap_pusher_needs_lacking 1
# HELP hapsnap_pusher_instance_in_sync 1 while the instance runs what is wanted, with today's servers and certificates, else 0.
# TYPE hapsnap_pusher_instance_in_sync gauge
hapsnap_pusher_instance_in_sync{name="a"} 1
hapsnap_pusher_instance_in_sync{name="b"} 0
# HELP hapsnap_pusher_instance_reload_budget Reloads that the instance may have now, by the limits for each; none where there is no limit.
# TYPE hapsnap_pusher_instance_reload_budget gauge
hapsnap_pusher_instance_reload_budget{name="a"} 2
hapsnap_pusher_instance_reload_budget{name="b"} 0
# HELP hapsnap_pusher_degraded 1 while a person must act, by the reason of the condition Degraded, such as SnapshotFailed; none while nobody must.
# TYPE hapsnap_pusher_degraded gauge
hapsnap_pusher_degraded{reason="SnapshotFailed"} 1
# HELP hapsnap_pusher_pause_age_seconds For how long the fleet has been paused; 0 while it is not. Where the pause does not say, since this process saw it.
# TYPE hapsnap_pusher_pause_age_seconds gauge
hapsnap_pusher_pause_age_seconds 0
# HELP hapsnap_pusher_pin_age_seconds For how long a snapshot has been pinned; 0 while none is. Where the pin does not say, since this process saw it.
# TYPE hapsnap_pusher_pin_age_seconds gauge
hapsnap_pusher_pin_age_seconds 90
`
	if err := testutil.CollectAndCompare(&g, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// The metrics show a limited number of certificates: those that expire first.
func TestSoonestExpiriesAreBounded(t *testing.T) {
	t.Parallel()
	ends := map[snapshots.SecretName]time.Time{}
	for n := range 3 * MostExpiries {
		ends[snapshots.SecretName{Namespace: "team", Name: strconv.Itoa(n)}] = time.Unix(int64(10_000-n), 0)
	}
	got := SoonestExpiries(ends)
	if len(got) != MostExpiries || got[0].Secret.Name != strconv.Itoa(3*MostExpiries-1) || got[MostExpiries-1].At.Unix() != int64(10_000-2*MostExpiries) {
		t.Errorf("%d, from %v to %v", len(got), got[0], got[len(got)-1])
	}
}

// All changes of endpoints within ten seconds are one log line.
func TestEndpointChangesAreSummed(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	web, api := snapshots.ServicePort{Namespace: "shop", Service: "web"}, snapshots.ServicePort{Namespace: "shop", Service: "api"}
	at := func(last ...string) (list []snapshots.Endpoint) {
		for _, l := range last {
			name, draining := strings.CutSuffix(l, " drains")
			list = append(list, snapshots.Endpoint{Address: "10.0.0." + name, Port: 80, Draining: draining})
		}
		return list
	}
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	var s tally
	s.changed("edge-1") // nothing has changed yet
	s.log(log, begin)
	if s.change(web, at("1"), at("1"), begin); !s.since.IsZero() {
		t.Error("the same counts as a change")
	}
	s.change(web, at("1"), at("1", "2"), begin)
	s.change(web, at("1", "2"), at("1 drains", "2"), begin.Add(time.Second))
	s.change(web, at("1 drains", "2"), at("2"), begin.Add(2*time.Second))
	s.change(api, nil, at("7", "8"), begin.Add(3*time.Second))
	s.changed("edge-1")
	s.changed("edge-1")
	s.changed("edge-2")
	s.log(log, begin.Add(9*time.Second))
	s.log(log, begin.Add(10*time.Second))
	s.log(log, begin.Add(60*time.Second))
	want := "level=INFO msg=\"endpoints changed\" services=2 added=3 removed=1 instances=2 within=10s\n"
	if got := out.String(); !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 1 {
		t.Errorf("logged\n%s, want\n%s", got, want)
	}
}
