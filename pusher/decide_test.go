package pusher

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/snapshots"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

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
