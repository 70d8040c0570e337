package bind

import (
	"slices"
	"strings"
	"testing"

	"github.com/haproxytech/client-native/v6/misc"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

// The Dataplane API does not change names that pass the check.
func TestNamesSurviveTheDataplaneAPI(t *testing.T) {
	for _, name := range []string{"host.map", "Host_1-x.map", "https.crtlist", "shop_web-tls.pem"} {
		for _, kept := range []string{name, hashedName(name, []byte("x"))} {
			if got := misc.SanitizeFilename(kept); got != kept {
				t.Errorf("%s becomes %s", kept, got)
			}
		}
	}
	if got := hashedName("host.map", nil); got != "host-e3b0c442.map" {
		t.Errorf("an empty file is named %s", got)
	}
}

var someVersion, otherVersion = strings.Repeat("1", 64), strings.Repeat("2", 64)

// A reference to a version is bound to that version, whatever the Secret holds by now. If the version is not
// known, the configuration is the same and the file is absent.
func TestBindVersions(t *testing.T) {
	t.Parallel()
	wanted, renewed := pemtest.SelfSigned(t, "a.example", pemtest.ECKey()), pemtest.SelfSigned(t, "a.example", pemtest.ECKey2())
	secret := snapshots.SecretName{Namespace: "shop", Name: "a"}
	joined := func(mode snapshots.CertificateMode, version string, change func(*Live)) Bound {
		d := snapshots.Draft{
			Files: []snapshots.File{
				{Path: snapshots.ConfigFile, Content: []byte("frontend f\n    bind :443 ssl crt certs/default.pem crt-list files/https.crtlist\n")},
				{Path: "files/https.crtlist", Content: []byte("certs/a.pem a.example\n")},
			},
			Certificates: []snapshots.CertificateRef{{File: "certs/a.pem", Secret: secret, Mode: mode, Version: version}, {File: "certs/default.pem"}},
		}
		live := Live{Certificates: map[snapshots.SecretName][]byte{secret: renewed}, Fallback: pemtest.SelfSigned(t, "fallback", pemtest.ECKey())}
		change(&live)
		b, err := Bind(d.Number(1, snapshots.ID{}), Inputs{Live: live, Layout: testLayout})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	content := func(b Bound) string {
		for _, f := range b.Files {
			if f.Source == "certs/a.pem" {
				return string(f.Content)
			}
		}
		return ""
	}
	have := func(l *Live) { l.Versions = map[string][]byte{someVersion: wanted, otherVersion: renewed} }
	there := joined(snapshots.ModeExact, someVersion, have)
	if content(there) != string(wanted) || len(there.Absent)+len(there.Missing) > 0 {
		t.Errorf("absent %v, missing %v, content\n%s", there.Absent, there.Missing, content(there))
	}
	absent := joined(snapshots.ModeExact, someVersion, func(*Live) {})
	if content(absent) != "" || len(absent.Missing) > 0 || !slices.Equal(absent.Absent, []string{testLayout.Certificates + "/a.pem"}) {
		t.Errorf("absent %v, missing %v, content\n%s", absent.Absent, absent.Missing, content(absent))
	}
	if absent.Node != there.Node || string(absent.Config) != string(there.Config) {
		t.Errorf("what is absent changes the configuration:\n%s\n%s", there.Config, absent.Config)
	}
	expired := joined(snapshots.ModeExact, someVersion, func(l *Live) {
		have(l)
		l.ExpiredVersions = map[string]bool{someVersion: true}
	})
	if content(expired) == string(wanted) || expired.Node != there.Node || len(expired.Missing) != 1 {
		t.Errorf("expired, and still served; missing %v", expired.Missing)
	}
	if none := joined(snapshots.ModeExact, "", have); len(none.Missing) != 1 || len(none.Absent) > 0 || content(none) != "" {
		t.Errorf("of no version: missing %v, absent %v", none.Missing, none.Absent)
	}
	if reference := joined(snapshots.ModeReference, "", have); content(reference) != string(renewed) {
		t.Error("a mere reference is not to what is in the Secret")
	}
}

// A certificate of a Secret that may not be read keeps its place and shape. An instance that does not have the
// file gets the fallback certificate. A certificate of a Secret that does not exist keeps neither.
func TestBindUnread(t *testing.T) {
	t.Parallel()
	secret := snapshots.SecretName{Namespace: "shop", Name: "a"}
	there, fallback := pemtest.SelfSigned(t, "a.example", pemtest.ECKey()), pemtest.SelfSigned(t, "fallback", pemtest.ECKey2())
	d := snapshots.Draft{
		Files: []snapshots.File{
			{Path: snapshots.ConfigFile, Content: []byte("frontend f\n    bind :443 ssl crt certs/default.pem crt-list files/https.crtlist\n")},
			{Path: "files/https.crtlist", Content: []byte("certs/a.pem a.example\n")},
		},
		Certificates: []snapshots.CertificateRef{{File: "certs/a.pem", Secret: secret}, {File: "certs/default.pem"}},
	}
	bound := func(certificate []byte, unread bool) (Bound, *File) {
		live := Live{Fallback: fallback, Unread: map[snapshots.SecretName]bool{secret: unread}, Certificates: map[snapshots.SecretName][]byte{}}
		if certificate != nil {
			live.Certificates[secret] = certificate
		}
		b, err := Bind(d.Number(1, snapshots.ID{}), Inputs{Live: live, Layout: testLayout})
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range b.Files {
			if f.Source == "certs/a.pem" {
				return b, &b.Files[i]
			}
		}
		return b, nil
	}
	before, was := bound(there, false)
	after, is := bound(nil, true)
	if is == nil || !is.Held || string(is.Content) != string(fallback) || is.Path != was.Path || after.Node != before.Node || len(after.Missing) != 1 {
		t.Errorf("not read: %+v, missing %v, node %s and %s", is, after.Missing, after.Node, before.Node)
	}
	if _, is := bound(there, true); is == nil || is.Held || string(is.Content) != string(there) {
		t.Errorf("read before: %+v", is)
	}
	if gone, is := bound(nil, false); is != nil || gone.Node == before.Node {
		t.Errorf("gone: %+v", is)
	}
}
