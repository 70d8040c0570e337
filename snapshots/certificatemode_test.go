package snapshots

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"testing"
)

// someSealed looks like what age wrote.
func someSealed(payload string) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: sealedBlock, Bytes: []byte(sealedMagic + payload)})
}

const (
	someRecipient  = "age1xk8h73n8eqwjwjmxkdpyj0jrl4ue4jlvdqqdn4hxrxzm3ad4uaxq5p2fay"
	otherRecipient = "age1yk8h73n8eqwjwjmxkdpyj0jrl4ue4jlvdqqdn4hxrxzm3ad4uaxq5p2fay"
)

var someVersion, otherVersion = strings.Repeat("1", 64), strings.Repeat("2", 64)

// sealedDraft has one certificate that is sealed.
func sealedDraft() Draft {
	d := sampleDraft()
	d.Certificates[0].Mode, d.Certificates[0].Version = ModeSealed, someVersion
	d.Files = append(d.Files, File{"certs/b.pem.age", someSealed("one")})
	d.Recipients = []string{someRecipient}
	return d
}

func TestDigestIsOfVersions(t *testing.T) {
	t.Parallel()
	base := sealedDraft().Digest()
	other := sealedDraft()
	other.Files[2].Content = someSealed("two")
	if other.Digest() != base {
		t.Error("the ciphertext changes the digest")
	}
	seen := map[Digest]string{base: "the first", sampleDraft().Digest(): "a reference"}
	for name, change := range map[string]func(*Draft){
		"another version":   func(d *Draft) { d.Certificates[0].Version = otherVersion },
		"no version":        func(d *Draft) { d.Certificates[0].Version = "" },
		"the mode":          func(d *Draft) { d.Certificates[0].Mode = ModeExact },
		"another mode":      func(d *Draft) { d.Certificates[0].Mode = ModeCompanion },
		"one more to read":  func(d *Draft) { d.Recipients = append(d.Recipients, otherRecipient) },
		"another to read":   func(d *Draft) { d.Recipients = []string{otherRecipient} },
		"nobody to read":    func(d *Draft) { d.Recipients = nil },
		"another Secret":    func(d *Draft) { d.Certificates[0].Secret.Name = "c" },
		"a file beside it":  func(d *Draft) { d.Files = append(d.Files, File{"files/b.pem.age", nil}) },
		"another reference": func(d *Draft) { d.Certificates[0].File = "certs/c.pem" },
	} {
		d := sealedDraft()
		change(&d)
		if was, known := seen[d.Digest()]; known {
			t.Errorf("%s has the digest of %s", name, was)
		}
		seen[d.Digest()] = name
	}
}

// What is sealed is verified against the manifest like any other file, and has to be
// there, encrypted, and alone.
func TestSealedFilesAreChecked(t *testing.T) {
	t.Parallel()
	if err := sealedDraft().Check(); err != nil {
		t.Fatal(err)
	}
	s := sealedDraft().Seal(1, ID{})
	if err := s.Verify(); err != nil {
		t.Fatal(err)
	}
	s.Files[0].Content = someSealed("two")
	if err := s.Verify(); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "certs/b.pem.age has sha256") {
		t.Errorf("another ciphertext: %v", err)
	}
	key := string(keyPEM(t, ecKey()))
	inside := pem.EncodeToMemory(&pem.Block{Type: sealedBlock, Bytes: []byte(key)})
	hidden := pem.EncodeToMemory(&pem.Block{Type: sealedBlock, Bytes: []byte(sealedMagic + key)})
	for name, content := range map[string][]byte{
		"the certificate in the clear": selfSigned(t, "b.example", ecKey()),
		"a key":                        []byte(key),
		"a key before it":              append([]byte(key), someSealed("x")...),
		"a key after it":               append(someSealed("x"), key...),
		"a key in the armour":          inside,
		"a key behind the header":      hidden,
		"a key among its headers":      pem.EncodeToMemory(&pem.Block{Type: sealedBlock, Headers: map[string]string{"Key": "x"}, Bytes: []byte(sealedMagic)}),
		"base64 of a key":              []byte(base64.StdEncoding.EncodeToString([]byte(key))),
		"age's other form":             []byte(sealedMagic),
		"nothing":                      nil,
	} {
		d := sealedDraft()
		d.Files[2].Content = content
		if err := d.Check(); !errors.Is(err, ErrNotSealed) || strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("%s: %v", name, err)
		}
		if err := d.Seal(1, ID{}).Verify(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s is verified: %v", name, err)
		}
	}
}

func TestReferencesThatCannotBeFollowed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Draft){
		"a mode from the future": func(d *Draft) { d.Certificates[0].Mode = "lent" },
		"a version that is none": func(d *Draft) { d.Certificates[0].Version = "1" },
		"a version of whatever is there": func(d *Draft) {
			d.Certificates[0].Mode, d.Files, d.Recipients = ModeReference, d.Files[:2], nil
		},
		"the fallback certificate": func(d *Draft) { d.Certificates[1].Mode = ModeExact },
		"authorities":              func(d *Draft) { d.Certificates[0].Use = UseCA },
		"a file that is missing":   func(d *Draft) { d.Files = d.Files[:2] },
		"a file of no certificate": func(d *Draft) { d.Files = append(d.Files, File{"certs/c.pem.age", someSealed("x")}) },
		"a name of no certificate": func(d *Draft) { d.Files = append(d.Files, File{"certs/x/y.pem.age", someSealed("x")}) },
		"nobody to read it":        func(d *Draft) { d.Recipients = nil },
		"a recipient that is none": func(d *Draft) { d.Recipients = []string{"alice"} },
	} {
		d := sealedDraft()
		if change(&d); d.Check() == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestCertificateVersion(t *testing.T) {
	t.Parallel()
	leaf, chain := certify(t, "a.example", ecKey(), ecKey2()), certify(t, "issuer", ecKey2(), nil)
	version := func(parts ...[]byte) string {
		v, err := CertificateVersion(slices.Concat(parts...))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	first := version(leaf, keyPEM(t, ecKey()))
	if len(first) != 64 || version(keyPEM(t, ecKey()), []byte("# text\n"), leaf) != first {
		t.Error("the version is not of the certificate alone")
	}
	if version(leaf, chain, keyPEM(t, ecKey())) == first {
		t.Error("the chain is no part of the version")
	}
	if _, err := CertificateVersion(leaf); !errors.Is(err, ErrNoKey) {
		t.Errorf("without a key: %v", err)
	}
}

func TestWithSealedKeepsWhatIsUnchanged(t *testing.T) {
	t.Parallel()
	old := sealedDraft().Seal(1, ID{})
	for name, tt := range map[string]struct {
		change func(*Draft)
		same   bool
	}{
		"nothing changed":  {func(*Draft) {}, true},
		"a map changed":    {func(d *Draft) { d.Files[0].Content = []byte("c d\n") }, true},
		"renewed":          {func(d *Draft) { d.Certificates[0].Version = otherVersion }, false},
		"another Secret":   {func(d *Draft) { d.Certificates[0].Secret.Name = "c" }, false},
		"other recipients": {func(d *Draft) { d.Recipients = []string{otherRecipient} }, false},
	} {
		d := sealedDraft()
		d.Files[2].Content = someSealed("two")
		tt.change(&d)
		got := d.WithSealed(old)
		if same := string(got.Files[2].Content) == string(old.Files[0].Content); same != tt.same {
			t.Errorf("%s: the ciphertext is the same: %v", name, same)
		}
		if string(d.Files[2].Content) != string(someSealed("two")) {
			t.Errorf("%s: the draft itself was changed", name)
		}
		if got.Digest() != d.Digest() {
			t.Errorf("%s: the digest is another", name)
		}
	}
	if got := sealedDraft().WithSealed(Snapshot{}); len(got.Files) != 3 {
		t.Error("without a snapshot, something is lost")
	}
}

// A reference to a version is bound to that one, whatever the Secret holds by now.
// Without it the configuration is the same, but for the file that is absent.
func TestBindVersions(t *testing.T) {
	t.Parallel()
	wanted, renewed := selfSigned(t, "a.example", ecKey()), selfSigned(t, "a.example", ecKey2())
	secret := SecretName{"shop", "a"}
	bind := func(mode CertificateMode, version string, change func(*Live)) Bound {
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
	there := bind(ModeExact, someVersion, have)
	if content(there) != string(wanted) || len(there.Absent)+len(there.Missing) > 0 {
		t.Errorf("absent %v, missing %v, content\n%s", there.Absent, there.Missing, content(there))
	}
	absent := bind(ModeExact, someVersion, func(*Live) {})
	if content(absent) != "" || len(absent.Missing) > 0 || !slices.Equal(absent.Absent, []string{testLayout.Certificates + "/a.pem"}) {
		t.Errorf("absent %v, missing %v, content\n%s", absent.Absent, absent.Missing, content(absent))
	}
	if absent.Node != there.Node || string(absent.Config) != string(there.Config) {
		t.Errorf("what is absent changes the configuration:\n%s\n%s", there.Config, absent.Config)
	}
	expired := bind(ModeExact, someVersion, func(l *Live) {
		have(l)
		l.ExpiredVersions = map[string]bool{someVersion: true}
	})
	if content(expired) == string(wanted) || expired.Node != there.Node || len(expired.Missing) != 1 {
		t.Errorf("expired, and still served; missing %v", expired.Missing)
	}
	if none := bind(ModeExact, "", have); len(none.Missing) != 1 || len(none.Absent) > 0 || content(none) != "" {
		t.Errorf("of no version: missing %v, absent %v", none.Missing, none.Absent)
	}
	if reference := bind(ModeReference, "", have); content(reference) != string(renewed) {
		t.Error("a mere reference is not to what is in the Secret")
	}
}
