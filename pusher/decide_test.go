package pusher

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

var (
	noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	r1   = snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}
	r2   = snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}
)

func TestDecide(t *testing.T) {
	pin := func(id snapshots.ID, at time.Time) channel.Channel {
		return channel.Channel{}.Pinned(channel.Pin{Snapshot: id, At: at})
	}
	failed := func(intent string, recorded bool) []rollout.Failure {
		return []rollout.Failure{{Snapshot: r2, Intent: intent, Recorded: recorded, At: noon, Good: r1}}
	}
	tests := map[string]struct {
		channel channel.Channel
		failed  []rollout.Failure
		want    snapshots.ID
		intent  string
		hold    bool
	}{
		"the newest": {want: r2, intent: "newest"},
		"not what failed, before the channel says": {failed: failed("newest", false), want: r1, intent: "newest"},
		"nothing, where nothing was good":          {failed: []rollout.Failure{{Snapshot: r2, Intent: "newest", At: noon}}, hold: true, intent: "none"},
		"again, when the channel was changed":      {failed: failed("newest", true), want: r2, intent: "newest"},
		"a pin":                                    {channel: pin(r1, noon), want: r1, intent: "pin 2026-11-21T12:00:00Z"},
		"a pin of what failed as the newest":       {channel: pin(r2, noon), failed: failed("newest", false), want: r2, intent: "pin 2026-11-21T12:00:00Z"},
		"not a pin that failed":                    {channel: pin(r2, noon), failed: failed("pin 2026-11-21T12:00:00Z", false), hold: true, intent: "pin 2026-11-21T12:00:00Z"},
		"a later pin of what failed":               {channel: pin(r2, noon.Add(time.Minute)), failed: failed("pin 2026-11-21T12:00:00Z", false), want: r2, intent: "pin 2026-11-21T12:01:00Z"},
		"not what failed under a pin":              {failed: failed("pin 2026-11-21T12:00:00Z", false), want: r1, intent: "newest"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := decide(channel.View{IDs: []snapshots.ID{r1, r2}, Channel: test.channel}, test.failed, noon)
			if got.ID != test.want || got.Intent != test.intent || got.Hold != test.hold {
				t.Errorf("decided for %s by %q, hold %v; want %s by %q, hold %v", got.ID, got.Intent, got.Hold, test.want, test.intent, test.hold)
			}
		})
	}
}

func TestLacks(t *testing.T) {
	t.Parallel()
	const slicesOf2, secretOf2 = "may not list EndpointSlices in team2", "may not read Secret team2/tls"
	for name, test := range map[string]struct {
		because      channel.Reason
		wanted, good []string
		unknown      bool // the wanted one cannot be bound at all
		want         []string
	}{
		"nothing is lacking":                         {because: channel.BecauseNewest},
		"a new namespace":                            {because: channel.BecauseNewest, wanted: []string{slicesOf2, secretOf2}, want: []string{slicesOf2, secretOf2}},
		"the last good one lacks it as well":         {because: channel.BecauseNewest, wanted: []string{slicesOf2}, good: []string{slicesOf2}},
		"and something more":                         {because: channel.BecauseNewest, wanted: []string{slicesOf2, secretOf2}, good: []string{slicesOf2}, want: []string{secretOf2}},
		"a person pinned it":                         {because: channel.BecausePin, wanted: []string{slicesOf2}},
		"a person overrode with it":                  {because: channel.BecauseOverride, wanted: []string{slicesOf2}},
		"a person pinned what cannot be bound":       {because: channel.BecausePin, wanted: []string{"no source"}, unknown: true, want: []string{"no source"}},
		"only the last good one lacks it, by a role": {because: channel.BecauseNewest, good: []string{slicesOf2}},
	} {
		wanted, good := binding.Prepared{Known: !test.unknown, Lacks: test.wanted}, binding.Prepared{Known: true, Lacks: test.good}
		if got := lacking(wanted, good, test.because); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// A fleet that runs a snapshot with live endpoints keeps its servers when the pusher is
// started without any source of them, also where that could not be known at the start.
func TestNoSourceOfLiveEndpointsEmptiesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.endpoints(echo(t, "one"))
	id := r.publish(config("1", ""))
	r.allRunAfter(id)
	r.kill()
	writes := r.writes("a")

	r.options.Live = ""
	r.run()
	r.until("it is said, and the fleet Degraded", func(s observe.Status) bool {
		return s.Condition().Phase == observe.Degraded && slices.ContainsFunc(s.Troubles, func(t observe.Trouble) bool {
			return t.About == observe.AboutNeeds && strings.Contains(t.Error, binding.ErrNoSource.Error()) && strings.Contains(t.Error, id.String())
		})
	})
	next := r.publish(config("2", ""))
	r.until("the next one is known, and waits", func(s observe.Status) bool {
		return s.Channel.Wanted == next && slices.ContainsFunc(s.Troubles, func(t observe.Trouble) bool {
			return t.About == observe.AboutNeeds && strings.Contains(t.Error, next.String()+" waits for it")
		})
	})
	if !r.answersOnly("a", "one") || r.writes("a") != writes {
		t.Errorf("a was changed without a source of endpoints")
	}
}

// A snapshot whose endpoints are recorded needs a source all the same if it takes anything of
// Secrets: without one its hosts would be served with the fallback certificate.
func TestNeedsSource(t *testing.T) {
	t.Parallel()
	const plain = "frontend web\n    bind :80\nbackend b\n"
	secret := snapshots.SecretName{Namespace: "shop", Name: "tls"}
	for name, test := range map[string]struct {
		config   string
		recorded bool
		refs     []snapshots.CertificateRef
		want     bool
	}{
		"nothing":                      {config: plain},
		"the fallback certificate":     {config: plain, refs: []snapshots.CertificateRef{{File: "certs/fallback.pem"}}},
		"live endpoints":               {config: plain + "    #hapsnap servers shop/web:http\n", want: true},
		"recorded endpoints":           {config: plain + "    #hapsnap servers shop/web:http\n", recorded: true},
		"a certificate":                {config: plain, refs: []snapshots.CertificateRef{{File: "certs/shop_tls.pem", Secret: secret}}, want: true},
		"recorded, and a certificate":  {config: plain, recorded: true, refs: []snapshots.CertificateRef{{File: "certs/shop_tls.pem", Secret: secret}}, want: true},
		"a certificate that is sealed": {config: plain, refs: []snapshots.CertificateRef{{File: "certs/shop_tls.pem", Secret: secret, Mode: snapshots.ModeSealed, Version: "x"}}},
		"users":                        {config: plain + "userlist u\n    #hapsnap users shop/basic\n", want: true},
	} {
		files := []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(test.config)}}
		if test.recorded {
			files = append(files, snapshots.File{Path: snapshots.EndpointsFile, Content: []byte("{}")})
		}
		if got := binding.NeedsSource(snapshots.Draft{Files: files, Certificates: test.refs}.Seal(1, snapshots.ID{})); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
