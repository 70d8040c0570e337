package channel

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hapsnap/hapsnap/snapshots"
)

// digestN is a digest, and idN the snapshot of that content at revision n.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func digestN(n int) snapshots.Digest { return snapshots.Digest(fmt.Sprintf("sha256:%010x%054d", n, 0)) }
func idN(n int) snapshots.ID         { return snapshots.NewID(uint64(n), digestN(n)) }

func TestChannelIsReadAsWritten(t *testing.T) {
	zone := time.FixedZone("CET", 3600)
	c := Channel{}.
		Reject(Rejection{Digest: digestN(2), Snapshot: idN(2), Reason: "canary edge-1: 5xx", At: noon.Add(time.Nanosecond)}).
		Pinned(Pin{Snapshot: idN(1), By: "ann", Reason: "as: it \"was\"\n", At: noon.In(zone)}).
		Overridden(Override{Snapshot: idN(3), By: "bob", Expires: noon.Add(time.Hour)}).
		Paused(Pause{By: "eve", At: noon}).
		WithApproval(true).Approve(idN(3)).Approve(idN(1)).Approve(idN(3))
	data, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	want := `apiVersion: hapsnap.dev/v1alpha1
kind: Channel
metadata:
  name: channel
spec:
  approved:
  - r000001-0000000001
  - r000003-0000000003
  override:
    by: bob
    expires: "2026-11-21T13:00:00Z"
    snapshot: r000003-0000000003
  pause:
    at: "2026-11-21T12:00:00Z"
    by: eve
  pin:
    at: "2026-11-21T12:00:00Z"
    by: ann
    reason: |
      as: it "was"
    snapshot: r000001-0000000001
  rejected:
  - at: "2026-11-21T12:00:00Z"
    digest: ` + string(digestN(2)) + `
    reason: 'canary edge-1: 5xx'
    snapshot: r000002-0000000002
  requireApproval: true
`
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
	read, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.Spec, read.Spec); diff != "" {
		t.Errorf("read (-written +read):\n%s", diff)
	}
}

func TestChannelRefuses(t *testing.T) {
	const head = "apiVersion: hapsnap.dev/v1alpha1\nkind: Channel\nspec:\n"
	for name, text := range map[string]string{
		"nothing":                     "",
		"another kind":                "apiVersion: hapsnap.dev/v1alpha1\nkind: Snapshot\n",
		"a later version":             "apiVersion: hapsnap.dev/v2\nkind: Channel\n",
		"no YAML":                     "{",
		"an unknown word":             head + "  pined: {}\n",
		"a pin of nothing":            head + "  pin: {by: ann}\n",
		"a pin of what is no ID":      head + "  pin: {snapshot: r1}\n",
		"an override of nothing":      head + "  override: {expires: \"2026-11-21T13:00:00Z\"}\n",
		"an override for ever":        head + "  override: {snapshot: r000001-0000000001}\n",
		"a rejection of half a hash":  head + "  rejected: [{digest: \"sha256:00\", snapshot: r000001-0000000001}]\n",
		"one word twice":              head + "  requireApproval: true\n  requireApproval: false\n",
		"a pin that is a list":        head + "  pin: []\n",
		"a file cut before its spec":  "apiVersion: hapsnap.dev/v1alpha1\nkind: Channel\nmetadata:\n",
		"a file cut after its spec":   head,
		"a file cut before the pin":   head + "  pin:\n",
		"a rejection without content": head + "  rejected: [{snapshot: r000001-0000000001}]\n",
	} {
		if c, err := Parse([]byte(text)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	if _, err := (Channel{}).Pinned(Pin{}).Marshal(); !errors.Is(err, ErrInvalid) {
		t.Errorf("a pin of nothing is written: %v", err)
	}
}

func TestChannelEdits(t *testing.T) {
	rejected := Channel{}.Reject(Rejection{Digest: digestN(1), Snapshot: idN(1), Reason: "first"})
	again := rejected.Reject(Rejection{Digest: digestN(2), Snapshot: idN(2)}).Reject(Rejection{Digest: digestN(1), Snapshot: snapshots.NewID(9, digestN(1)), Reason: "second"})
	retried, was := again.Retry(digestN(1))
	_, wasNot := retried.Retry(digestN(1))
	for _, tt := range []struct {
		name string
		got  Channel
		want Spec
	}{
		{"a rejection replaces that of the same content", again, Spec{Rejected: []Rejection{
			{Digest: digestN(2), Snapshot: idN(2)}, {Digest: digestN(1), Snapshot: snapshots.NewID(9, digestN(1)), Reason: "second"},
		}}},
		{"the first is as it was", rejected, Spec{Rejected: []Rejection{{Digest: digestN(1), Snapshot: idN(1), Reason: "first"}}}},
		{"retry withdraws a rejection", retried, Spec{Rejected: []Rejection{{Digest: digestN(2), Snapshot: idN(2)}}}},
		{"a pin withdraws the rejection of its content", rejected.Pinned(Pin{Snapshot: snapshots.NewID(5, digestN(1))}), Spec{Pin: &Pin{Snapshot: snapshots.NewID(5, digestN(1))}}},
		{"an override does too", rejected.Overridden(Override{Snapshot: idN(1)}), Spec{Override: &Override{Snapshot: idN(1)}}},
		{"what is set can be taken back", Channel{}.Pinned(Pin{Snapshot: idN(1)}).Overridden(Override{Snapshot: idN(1)}).Paused(Pause{}).WithApproval(true).
			Unpinned().NotOverridden().Resumed().WithApproval(false), Spec{}},
	} {
		// YAML cannot hold a zero time; everything else is compared.
		if diff := cmp.Diff(tt.want, tt.got.Spec, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	if !was || wasNot {
		t.Errorf("retried: %v, and again: %v", was, wasNot)
	}
	if r, ok := rejected.Rejection(snapshots.NewID(7, digestN(1))); !ok || r.Reason != "first" {
		t.Errorf("the same content at another revision: %v, %v", r, ok)
	}
}

func TestWant(t *testing.T) {
	ids := []snapshots.ID{idN(1), idN(2), idN(3)}
	pin := Channel{}.Pinned(Pin{Snapshot: idN(1), By: "ann", Reason: "slow"})
	override := pin.Overridden(Override{Snapshot: idN(2), By: "bob", Expires: noon.Add(time.Minute)})
	approval := Channel{}.WithApproval(true)
	reject := func(c Channel, n int) Channel {
		return c.Reject(Rejection{Digest: digestN(n), Snapshot: idN(n), Reason: "5xx"})
	}
	for _, tt := range []struct {
		name    string
		ids     []snapshots.ID
		channel Channel
		want    Decision
	}{
		{"an empty store holds", nil, Channel{}, hold(BecauseEmpty, "the store holds no snapshot")},
		{"an empty store holds whatever is said", nil, override, hold(BecauseEmpty, "the store holds no snapshot")},
		{"nothing said: the newest", ids, Channel{}, Decision{ID: idN(3), Because: BecauseNewest, Message: "r000003-0000000003 is the newest"}},
		{"a pin beats newer ones", ids, pin, Decision{ID: idN(1), Because: BecausePin, Message: "r000001-0000000001 is pinned by ann: slow"}},
		{"an override beats a pin", ids, override, Decision{ID: idN(2), Because: BecauseOverride, Message: "r000002-0000000002 is overridden until 2026-11-21T12:01:00Z by bob"}},
		{"an expired override does not", ids, pin.Overridden(Override{Snapshot: idN(2), Expires: noon}), Decision{ID: idN(1), Because: BecausePin, Message: "r000001-0000000001 is pinned by ann: slow"}},
		{"a pause holds all of it", ids, override.Paused(Pause{By: "eve", Reason: "freeze"}), hold(BecausePause, "paused by eve: freeze")},
		{"a pin that is missing holds", ids[1:], pin, hold(BecausePin, "r000001-0000000001 is pinned by ann: slow, but the store does not hold it")},
		{"a pin of another content of that revision is missing", []snapshots.ID{snapshots.NewID(1, digestN(7))}, pin, hold(BecausePin, "r000001-0000000001 is pinned by ann: slow, but the store does not hold it")},
		{"an override that is missing holds", ids[:1], override, hold(BecauseOverride, "r000002-0000000002 is overridden until 2026-11-21T12:01:00Z by bob, but the store does not hold it")},
		{"a pin that failed holds", ids, reject(pin, 1), hold(BecausePin, "r000001-0000000001 is pinned by ann: slow, but was rejected: 5xx")},
		{"a pin of what had failed runs", ids, reject(Channel{}, 2).Pinned(Pin{Snapshot: idN(2)}), Decision{ID: idN(2), Because: BecausePin, Message: "r000002-0000000002 is pinned"}},
		{"the rejected is passed over", ids, reject(Channel{}, 3), Decision{ID: idN(2), Because: BecauseNewest, Message: "r000002-0000000002 is the newest that is not rejected (1 rejected)"}},
		{"in all its revisions", []snapshots.ID{idN(1), idN(2), snapshots.NewID(3, digestN(2))}, reject(Channel{}, 2), Decision{ID: idN(1), Because: BecauseNewest, Message: "r000001-0000000001 is the newest that is not rejected (2 rejected)"}},
		{"all rejected holds", ids[:1], reject(Channel{}, 1), hold(BecauseNone, "no snapshot may run: 1 rejected")},
		{"nothing approved holds", ids, approval, hold(BecauseNone, "no snapshot may run: 3 waiting for approval")},
		{"the newest approved", ids, approval.Approve(idN(1)).Approve(idN(2)), Decision{ID: idN(2), Because: BecauseNewest, Message: "r000002-0000000002 is the newest that is approved (1 waiting for approval)"}},
		{"approved and rejected", ids, reject(approval.Approve(idN(1)).Approve(idN(2)), 2), Decision{ID: idN(1), Because: BecauseNewest, Message: "r000001-0000000001 is the newest that may run (1 rejected, 1 waiting for approval)"}},
		{"a pin needs no approval", ids, pin.WithApproval(true), Decision{ID: idN(1), Because: BecausePin, Message: "r000001-0000000001 is pinned by ann: slow"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			view := View{IDs: tt.ids, Channel: tt.channel}
			if diff := cmp.Diff(tt.want, Want(view, noon)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if head := view.Head(); len(tt.ids) > 0 && head != tt.ids[len(tt.ids)-1] || len(tt.ids) == 0 && !head.IsZero() {
				t.Errorf("head is %s", head)
			}
		})
	}
}

// No channel makes Want name a snapshot that the store does not hold.
func TestWantNeverInvents(t *testing.T) {
	for held := range 4 {
		for pinned := range 4 {
			for rejected := range 4 {
				view := View{Channel: Channel{}.Reject(Rejection{Digest: digestN(rejected)})}
				for n := 1; n <= held; n++ {
					view.IDs = append(view.IDs, idN(n))
				}
				if pinned > 0 {
					view.Channel.Spec.Pin = &Pin{Snapshot: idN(pinned)}
				}
				d := Want(view, noon)
				if d.Hold != d.ID.IsZero() || (!d.Hold && int(d.ID.Revision) > held) || d.ID == idN(rejected) {
					t.Errorf("held %d, pinned %d, rejected %d: %+v", held, pinned, rejected, d)
				}
				if !strings.Contains(d.Message, " ") {
					t.Errorf("says nothing: %+v", d)
				}
			}
		}
	}
}

// A rejection by a fleet counts for that fleet alone. The fleet then goes to the snapshot that was good, and
// tries nothing between.
func TestWantOfAFleet(t *testing.T) {
	ids := []snapshots.ID{idN(1), idN(2), idN(3), idN(4)}
	failed := func(c Channel, fleet string, n int, good snapshots.ID) Channel {
		return c.Reject(Rejection{Digest: digestN(n), Snapshot: idN(n), Fleet: fleet, Failed: true, Good: good, Reason: "it said no"})
	}
	byHand := func(c Channel, fleet string, n int) Channel {
		return c.Reject(Rejection{Digest: digestN(n), Snapshot: idN(n), Fleet: fleet})
	}
	shared := failed(Channel{}, "east", 4, idN(2))
	shared.Spec.ShareRejections = true
	for _, tt := range []struct {
		name    string
		channel Channel
		fleet   string
		want    snapshots.ID // none: it holds
		says    string
	}{
		{"another fleet's", failed(Channel{}, "east", 4, idN(2)), "west", idN(4), ""},
		{"its own: what was good, and nothing between", failed(Channel{}, "west", 4, idN(2)), "west", idN(2), "is the newest that is not rejected (1 rejected)"},
		{"asked by no fleet", failed(Channel{}, "west", 4, idN(2)), "", idN(2), ""},
		{"shared", shared, "west", idN(2), ""},
		{"two fleets, of which each has its own", failed(failed(Channel{}, "east", 4, idN(1)), "west", 4, idN(3)), "west", idN(3), ""},
		{"by hand, for all: the next older one", byHand(Channel{}, "", 4), "west", idN(3), ""},
		{"by hand, for a fleet", byHand(Channel{}, "west", 4), "west", idN(3), ""},
		{"by hand after it failed: the next older one", byHand(failed(Channel{}, "west", 4, idN(2)), "", 4), "west", idN(3), ""},
		{"nothing was good", failed(Channel{}, "west", 4, snapshots.ID{}), "west", snapshots.ID{}, "r000004-0000000004 failed, and no snapshot is known to be good: mend what it says, then pusher retry, or publish another: it said no"},
		{"what was good is gone", failed(Channel{}, "west", 4, idN(7)), "west", snapshots.ID{}, "and the store does not offer r000007-0000000007"},
		{"what was good failed since, too", failed(failed(Channel{}, "west", 3, idN(1)), "west", 4, idN(3)), "west", idN(1), ""},
		{"what was good is rejected by hand", byHand(failed(Channel{}, "west", 4, idN(3)), "", 3), "west", idN(2), ""},
		{"two failed in a row", failed(failed(Channel{}, "west", 3, idN(1)), "west", 4, idN(1)), "west", idN(1), "(2 rejected)"},
		{"a newer one than what failed", failed(Channel{}, "west", 3, idN(1)), "west", idN(4), ""},
	} {
		d := Want(View{IDs: ids, Channel: tt.channel, Fleet: tt.fleet}, noon)
		if d.ID != tt.want || d.Hold != tt.want.IsZero() || !strings.Contains(d.Message, tt.says) {
			t.Errorf("%s: %+v", tt.name, d)
		}
		text, err := tt.channel.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Parse(text); err != nil || cmp.Diff(tt.channel.Spec, again.Spec, cmpopts.EquateEmpty()) != "" {
			t.Errorf("%s: read back as %+v, %v", tt.name, again, err)
		}
	}
}

func TestRejectionsOfFleets(t *testing.T) {
	of := func(fleet string) Rejection { return Rejection{Digest: digestN(1), Snapshot: idN(1), Fleet: fleet} }
	c := Channel{}.Reject(of("east")).Reject(of("west")).Reject(of("east"))
	if n := len(c.Spec.Rejected); n != 2 {
		t.Errorf("there are %d rejections, want one for each fleet", n)
	}
	c, was := c.RetryFor(digestN(1), "east")
	if _, east := c.RejectionFor(idN(1), "east"); !was || east {
		t.Errorf("east is to retry (%v), and is rejected (%v)", was, east)
	}
	if _, west := c.RejectionFor(idN(1), "west"); !west {
		t.Error("west has lost its rejection")
	}
	if c, _ = c.Retry(digestN(1)); len(c.Spec.Rejected) > 0 {
		t.Errorf("retried, and there is %+v", c.Spec.Rejected)
	}
	if c = c.Reject(of("east")).Reject(of("")).Pinned(Pin{Snapshot: idN(1)}); len(c.Spec.Rejected) > 0 {
		t.Errorf("pinned, and there is %+v", c.Spec.Rejected)
	}
}

func TestAcceptedRewindNamesWhatIsGone(t *testing.T) {
	one, two, three := idN(1), idN(2), idN(3)
	c := Channel{}.RewindAccepted(AcceptedRewind{Snapshots: []snapshots.ID{three, two}, By: "ann", At: noon})
	c = c.RewindAccepted(AcceptedRewind{Snapshots: []snapshots.ID{two}, Channels: []string{"abc"}, By: "bob", At: noon})
	data, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if c, err = Parse(data); err != nil {
		t.Fatal(err)
	}
	if r := c.Spec.AcceptedRewind; len(r.Snapshots) != 2 || len(r.Channels) != 1 || r.By != "bob" {
		t.Errorf("accepted %+v", r)
	}
	for name, test := range map[string]struct {
		gone RewoundError
		want bool
	}{
		"a snapshot":          {RewoundError{Snapshots: []snapshots.ID{two}}, true},
		"all":                 {RewoundError{Snapshots: []snapshots.ID{two, three}, Channel: "abc"}, true},
		"the channel":         {RewoundError{Channel: "abc"}, true},
		"another snapshot":    {RewoundError{Snapshots: []snapshots.ID{one, two}}, false},
		"another channel":     {RewoundError{Channel: "abd"}, false},
		"a channel with more": {RewoundError{Snapshots: []snapshots.ID{two}, Channel: "abd"}, false},
	} {
		if got := c.AcceptsRewind(&test.gone); got != test.want {
			t.Errorf("%s: accepted %v", name, got)
		}
	}
	if (Channel{}).AcceptsRewind(&RewoundError{Channel: "abc"}) {
		t.Error("accepted by nobody")
	}
	for _, version := range []string{"", "a b", "a\nb", "a,b"} {
		if _, err := (Channel{}).RewindAccepted(AcceptedRewind{Channels: []string{version}}).Marshal(); err == nil {
			t.Errorf("the version %q was written", version)
		}
	}
}

// Failures of thousands of rollouts leave room for a pin: the oldest lose their reasons, and then are forgotten, except for
// the last one of each fleet. What people rejected stays, and takes no room from failures.
func TestFailuresLeaveRoom(t *testing.T) {
	c := Channel{}.Reject(Rejection{Digest: digestN(0), Snapshot: idN(0), Reason: "by a person"})
	c = c.Reject(Rejection{Digest: digestN(2000), Snapshot: idN(2000), Fleet: "other", Failed: true, Good: idN(0), At: noon})
	const n = 1500
	for i := 1; i <= n; i++ {
		c = c.Reject(Rejection{Digest: digestN(i), Snapshot: idN(i), Fleet: "edge", Failed: true, Good: idN(0), Reason: strings.Repeat("it said no\n", 30), At: noon})
	}
	data, err := c.Pinned(Pin{Snapshot: idN(1), By: "ann", At: noon}).Marshal()
	if err != nil || len(data) > MaxSize/2 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if _, kept := c.Rejection(idN(0)); !kept {
		t.Error("what a person rejected is forgotten")
	}
	for i := n - 900; i <= n; i++ {
		if r, kept := c.Rejection(idN(i)); !kept || i == n && r.Reason == "" {
			t.Errorf("the failure %d of %d is forgotten: %+v", i, n, r)
		}
	}
	if _, kept := c.RejectionFor(idN(2000), "other"); !kept {
		t.Error("the last failure of another fleet is forgotten, which tries it again")
	}
	for i := range 1000 {
		c = c.Reject(Rejection{Digest: digestN(3000 + i), Snapshot: idN(3000 + i), Reason: strings.Repeat("no ", 100)})
	}
	if r, kept := c.RejectionFor(idN(n), "edge"); !kept || r.Reason == "" {
		t.Error("what people rejected takes the room of failures")
	}
}
