package configmapstore

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// verbs are all acts of people and programs on a channel.
var verbs = []channel.Verb{
	channel.VerbPin, channel.VerbUnpin, channel.VerbRollback, channel.VerbOverride, channel.VerbOverrideEnd, channel.VerbPause, channel.VerbResume,
	channel.VerbApprove, channel.VerbReject, channel.VerbRetry, channel.VerbPromote, channel.VerbAbort, channel.VerbConfirmEndpoints, channel.VerbAcceptRewind,
}

// perform writes an act into the channel, which is different after each.
func perform(t *testing.T, s *Store, id snapshots.ID, verb channel.Verb) {
	t.Helper()
	err := s.UpdateChannel(t.Context(), string(verb)+" "+id.String()+": slow", time.Now(), func(c *channel.Channel) error {
		*c = c.WithApproval(!c.Spec.RequireApproval)
		c.Act = channel.Act{Verb: verb, Snapshot: id, By: "ann", Reason: "slow", From: "desk"}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", verb, err)
	}
}

// events returns the Events on the store's channel as sorted lines.
func (p *place) events() []string {
	p.Helper()
	var list eventsv1.EventList
	if err := p.client.List(p.Context(), &list, client.InNamespace(p.namespace)); err != nil {
		p.Fatal(err)
	}
	uid := p.object(ChannelName("edge")).UID
	var out []string
	for _, e := range list.Items {
		if e.Regarding.UID != uid || e.ReportingInstance != "desk" || e.ReportingController != "hapsnap.dev/channel" {
			p.Errorf("%s tells of %s %s from %s and %s", e.Name, e.Regarding.Kind, e.Regarding.UID, e.ReportingController, e.ReportingInstance)
		}
		out = append(out, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Note))
	}
	slices.Sort(out)
	return out
}

// Each act on the channel has one Event on its ConfigMap, also a repeated act. A signature, and an act that
// changes nothing, have none.
func TestEachActIsAnEvent(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.open()
	id, _, err := s.Publish(t.Context(), storetest.Draft("web"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, verb := range append(slices.Clone(verbs), channel.VerbPin) {
		perform(t, s, id, verb)
		want = append(want, fmt.Sprintf("Normal %s: %s %s, by ann from desk: slow", reasons[verb], verb, id))
	}
	slices.Sort(want)
	if err := s.UpdateChannel(t.Context(), "nothing", noon, func(*channel.Channel) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want, p.events()); diff != "" {
		t.Errorf("Events differ (-want +got):\n%s", diff)
	}
}

// Without permission to write Events, acts still succeed. The journal has them, and the log says why there are
// no Events. With exactly the permission of the roles, there is one.
func TestWithoutTheRightToWriteEvents(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	id, _, err := p.open().Publish(t.Context(), storetest.Draft("web"))
	if err != nil {
		t.Fatal(err)
	}
	acting := slices.Concat(Reading(p.namespace), ChannelByHand("edge"))
	for name, test := range map[string]struct {
		verb  channel.Verb
		rules []rbacv1.PolicyRule
		says  bool
	}{"operator": {channel.VerbPin, slices.Concat(acting, Saying()), true}, "without": {channel.VerbUnpin, acting, false}} {
		config := p.configOf(name, test.rules)
		var log bytes.Buffer
		s := p.open(func(o *Options) {
			o.Config = config
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		before := len(p.events())
		perform(t, s, id, test.verb)
		if said := len(p.events()) - before; (said == 1) != test.says || strings.Contains(log.String(), "cannot write an Event") == test.says {
			t.Errorf("%s: %d Events, and the log says %q", name, said, log.String())
		}
	}
	journal, err := p.open().Journal(t.Context())
	if err != nil || len(journal) != 2 {
		t.Errorf("the journal has %d acts: %v, %v", len(journal), journal, err)
	}
}

// The API server accepts the names and notes of the Events, whatever the names of people.
func TestEventsOfStrangeActs(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.open()
	id, _, err := s.Publish(t.Context(), storetest.Draft("web"))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	written := p.object(ChannelName("edge"))
	for n, e := range []channel.Entry{
		{}, {Verb: "dance"}, {Verb: channel.VerbPin, By: strings.Repeat("ü", 3000), Reason: strings.Repeat("long ", 1000), From: strings.Repeat("ß", 300)},
		{Verb: channel.VerbPin, By: "\xff", From: "\xff"},
	} {
		written.ResourceVersion = fmt.Sprint(n)
		s.say(t.Context(), written, e)
	}
	long := written.DeepCopy()
	long.Name = strings.Repeat("a.", 120) + "channel"
	s.say(t.Context(), long, channel.Entry{At: time.Now(), Snapshot: id})
	if log.Len() > 0 {
		t.Error(log.String())
	}
	var list eventsv1.EventList
	if err := p.client.List(p.Context(), &list, client.InNamespace(p.namespace)); err != nil || len(list.Items) != 5 {
		t.Errorf("%d Events, %v", len(list.Items), err)
	}
}
