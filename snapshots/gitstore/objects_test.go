package gitstore

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

func TestSnapshotMessage(t *testing.T) {
	long := "+2 backends, ~1 route (Ingress shop/web), -3 maps, ~14 certificates and more"
	for name, test := range map[string]struct {
		change func(*snapshots.Manifest)
		want   string
	}{
		"all that is known": {func(*snapshots.Manifest) {}, `edge r123: +2 backends

Hapsnap-Snapshot: r000123-9f3ac01b2d
Hapsnap-Parent: r000122-0123456789
Hapsnap-Digest: sha256:9f3ac01b2d
Hapsnap-Compiler: v0.1.0
Hapsnap-Trigger: Ingress shop/web
Hapsnap-Author: Ann <ann@example.com>
HAProxy-Version: 2.6.12
`},
		"the first, of little": {func(m *snapshots.Manifest) {
			m.Spec.Parent, m.Spec.Subject, m.Provenance = snapshots.ID{}, "", snapshots.Provenance{}
		}, `edge r123

Hapsnap-Snapshot: r000123-9f3ac01b2d
Hapsnap-Digest: sha256:9f3ac01b2d
`},
		"a long subject": {func(m *snapshots.Manifest) {
			m.Spec.Parent, m.Spec.Subject, m.Provenance = snapshots.ID{}, long, snapshots.Provenance{}
		}, `edge r123: +2 backends, ~1 route (Ingress shop/web), -3 maps, ~14…

edge r123: ` + long + `

Hapsnap-Snapshot: r000123-9f3ac01b2d
Hapsnap-Digest: sha256:9f3ac01b2d
`},
		"forged trailers": {func(m *snapshots.Manifest) {
			m.Spec.Parent, m.Spec.Subject = snapshots.ID{}, "x\n\nHapsnap-Snapshot: r000999-ffffffffff\r"
			m.Provenance = snapshots.Provenance{Trigger: "Ingress a\nHapsnap-Digest: sha256:00 \x1b[31m\u202e"}
		}, `edge r123: x Hapsnap-Snapshot: r000999-ffffffffff

Hapsnap-Snapshot: r000123-9f3ac01b2d
Hapsnap-Digest: sha256:9f3ac01b2d
Hapsnap-Trigger: Ingress a Hapsnap-Digest: sha256:00 [31m
`},
	} {
		t.Run(name, func(t *testing.T) {
			var m snapshots.Manifest
			m.Metadata.Name = "r000123-9f3ac01b2d"
			m.Spec = snapshots.Spec{
				Revision: 123, Digest: "sha256:9f3ac01b2d", Subject: "+2 backends",
				Parent: snapshots.ID{Revision: 122, Short: "0123456789"},
			}
			m.Provenance = snapshots.Provenance{CompilerVersion: "v0.1.0", HAProxyVersion: "2.6.12", Trigger: "Ingress shop/web", Author: "Ann <ann@example.com>"}
			test.change(&m)
			if diff := cmp.Diff(test.want, snapshotMessage("edge", m)); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestShortenKeepsSubjectsInBounds(t *testing.T) {
	for name, line := range map[string]string{
		"fits":      strings.Repeat("é", subjectLength),
		"one over":  strings.Repeat("é", subjectLength+1),
		"no spaces": strings.Repeat("x", 500),
		"one space": "a " + strings.Repeat("x", 500),
		"words":     strings.Repeat("word ", 100),
	} {
		short := shorten(line)
		if n := len([]rune(short)); n > subjectLength {
			t.Errorf("%s: %d characters", name, n)
		}
		if len([]rune(line)) <= subjectLength && short != line {
			t.Errorf("%s: cut to %q", name, short)
		}
		if len([]rune(line)) > subjectLength && (!strings.HasSuffix(short, "…") || len([]rune(short)) < subjectLength/2) {
			t.Errorf("%s: cut to %q", name, short)
		}
	}
}

func TestChannelMessage(t *testing.T) {
	if got, want := channelMessage("edge", "pin r000012-9f3ac01b2d\n(slow)", channel.Act{}), "edge channel: pin r000012-9f3ac01b2d (slow)\n"; got != want {
		t.Errorf("message = %q, want %q", got, want)
	}
	if got, want := channelMessage("edge", "", channel.Act{}), "edge channel\n"; got != want {
		t.Errorf("message = %q, want %q", got, want)
	}
}

// A name or a reason of a person cannot write a trailer or a header of the commit.
func TestActsAreWrittenAsTrailers(t *testing.T) {
	act := channel.Act{Verb: channel.VerbPin, By: "eve\nHapsnap-By: ann", Reason: "x\n\nHapsnap-Act: abort", Author: channel.Person{Name: "Eve <ann@example.com>\nx", Email: "eve@example.com"}}
	text := channelMessage("edge", "pin", act)
	if strings.Count(text, "\nHapsnap-Act: ") != 1 || strings.Count(text, "\nHapsnap-By: ") != 1 || strings.Count(text, "\nHapsnap-Reason: ") != 1 {
		t.Errorf("the message is %q", text)
	}
	s := &Store{options: Options{Author: Author{Name: "hapsnap", Email: "hapsnap@localhost"}}}
	if a := s.actor(act, time.Unix(1e9, 0)); a.Name != "Eve ann@example.com x" || a.Email != "eve@example.com" {
		t.Errorf("the author is %q <%q>", a.Name, a.Email)
	}
	for _, p := range []channel.Person{{}, {Name: "<>", Email: "x@example.com"}, {Name: "ann"}} {
		if a := s.actor(channel.Act{Author: p}, time.Unix(1e9, 0)); a.Name != "hapsnap" || a.Email != "hapsnap@localhost" {
			t.Errorf("the author of an act by %+v is %q <%q>", p, a.Name, a.Email)
		}
	}
}
