package snapshots

import (
	"slices"
	"testing"
)

// A reference to a version is bound to that one, whatever the Secret holds by now.
// Without it the configuration is the same, but for the file that is absent.
func TestBindVersions(t *testing.T) {
	t.Parallel()
	wanted, renewed := selfSigned(t, "a.example", ecKey()), selfSigned(t, "a.example", ecKey2())
	secret := SecretName{"shop", "a"}
	joined := func(mode CertificateMode, version string, change func(*Live)) Bound {
		d := Draft{
			Files: []File{
				{ConfigFile, []byte("frontend f\n    bind :443 ssl crt certs/default.pem crt-list files/https.crtlist\n")},
				{"files/https.crtlist", []byte("certs/a.pem a.example\n")},
			},
			Certificates: []CertificateRef{{File: "certs/a.pem", Secret: secret, Mode: mode, Version: version}, {File: "certs/default.pem"}},
		}
		live := Live{Certificates: map[SecretName][]byte{secret: renewed}, Fallback: selfSigned(t, "fallback", ecKey())}
		change(&live)
		b, err := Bind(d.Seal(1, ID{}), Binding{Live: live, Layout: testLayout})
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
	there := joined(ModeExact, someVersion, have)
	if content(there) != string(wanted) || len(there.Absent)+len(there.Missing) > 0 {
		t.Errorf("absent %v, missing %v, content\n%s", there.Absent, there.Missing, content(there))
	}
	absent := joined(ModeExact, someVersion, func(*Live) {})
	if content(absent) != "" || len(absent.Missing) > 0 || !slices.Equal(absent.Absent, []string{testLayout.Certificates + "/a.pem"}) {
		t.Errorf("absent %v, missing %v, content\n%s", absent.Absent, absent.Missing, content(absent))
	}
	if absent.Node != there.Node || string(absent.Config) != string(there.Config) {
		t.Errorf("what is absent changes the configuration:\n%s\n%s", there.Config, absent.Config)
	}
	expired := joined(ModeExact, someVersion, func(l *Live) {
		have(l)
		l.ExpiredVersions = map[string]bool{someVersion: true}
	})
	if content(expired) == string(wanted) || expired.Node != there.Node || len(expired.Missing) != 1 {
		t.Errorf("expired, and still served; missing %v", expired.Missing)
	}
	if none := joined(ModeExact, "", have); len(none.Missing) != 1 || len(none.Absent) > 0 || content(none) != "" {
		t.Errorf("of no version: missing %v, absent %v", none.Missing, none.Absent)
	}
	if reference := joined(ModeReference, "", have); content(reference) != string(renewed) {
		t.Error("a mere reference is not to what is in the Secret")
	}
}
