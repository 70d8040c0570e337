package snapshots

import (
	"encoding/base64"
	"encoding/json"
	stdpem "encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

// someSealed looks like what age wrote.
func someSealed(payload string) []byte {
	return stdpem.EncodeToMemory(&stdpem.Block{Type: sealedBlock, Bytes: []byte(sealedMagic + payload)})
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

// A sealed certificate is verified against the manifest like any other file. It must be there, encrypted, and
// alone in its file.
func TestSealedFilesAreChecked(t *testing.T) {
	t.Parallel()
	if err := sealedDraft().Check(); err != nil {
		t.Fatal(err)
	}
	s := sealedDraft().Number(1, ID{})
	if err := s.Verify(); err != nil {
		t.Fatal(err)
	}
	s.Files[0].Content = someSealed("two")
	if err := s.Verify(); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "certs/b.pem.age has sha256") {
		t.Errorf("another ciphertext: %v", err)
	}
	key := string(pemtest.KeyPEM(t, pemtest.ECKey()))
	inside := stdpem.EncodeToMemory(&stdpem.Block{Type: sealedBlock, Bytes: []byte(key)})
	hidden := stdpem.EncodeToMemory(&stdpem.Block{Type: sealedBlock, Bytes: []byte(sealedMagic + key)})
	for name, content := range map[string][]byte{
		"the certificate in the clear": pemtest.SelfSigned(t, "b.example", pemtest.ECKey()),
		"a key":                        []byte(key),
		"a key before it":              append([]byte(key), someSealed("x")...),
		"a key after it":               append(someSealed("x"), key...),
		"a key in the armour":          inside,
		"a key behind the header":      hidden,
		"a key among its headers":      stdpem.EncodeToMemory(&stdpem.Block{Type: sealedBlock, Headers: map[string]string{"Key": "x"}, Bytes: []byte(sealedMagic)}),
		"base64 of a key":              []byte(base64.StdEncoding.EncodeToString([]byte(key))),
		"age's other form":             []byte(sealedMagic),
		"nothing":                      nil,
	} {
		d := sealedDraft()
		d.Files[2].Content = content
		if err := d.Check(); !errors.Is(err, ErrNotSealed) || strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("%s: %v", name, err)
		}
		if err := d.Number(1, ID{}).Verify(); !errors.Is(err, ErrCorrupt) {
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
	leaf, chain := pemtest.Certify(t, "a.example", pemtest.ECKey(), pemtest.ECKey2()), pemtest.Certify(t, "issuer", pemtest.ECKey2(), nil)
	version := func(parts ...[]byte) string {
		v, err := pem.Version(slices.Concat(parts...))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	first := version(leaf, pemtest.KeyPEM(t, pemtest.ECKey()))
	if len(first) != 64 || version(pemtest.KeyPEM(t, pemtest.ECKey()), []byte("# text\n"), leaf) != first {
		t.Error("the version is not of the certificate alone")
	}
	if version(leaf, chain, pemtest.KeyPEM(t, pemtest.ECKey())) == first {
		t.Error("the chain is no part of the version")
	}
	if _, err := pem.Version(leaf); !errors.Is(err, pem.ErrNoKey) {
		t.Errorf("without a key: %v", err)
	}
}

func TestWithSealedKeepsWhatIsUnchanged(t *testing.T) {
	t.Parallel()
	old := sealedDraft().Number(1, ID{})
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

// Nothing that prints a draft prints a key.
func TestPrivateContentIsHidden(t *testing.T) {
	t.Parallel()
	d := Draft{Companions: []Companion{{Version: someVersion, Content: Private("secret")}}}
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []string{fmt.Sprint(d), fmt.Sprintf("%+v %#v", d, d), fmt.Sprintf("%x", d.Companions[0].Content), string(text)} {
		if strings.Contains(got, "secret") || strings.Contains(got, "736563") || strings.Contains(got, "115 101") {
			t.Errorf("it shows: %s", got)
		}
	}
}

func TestCompanionsAreChecked(t *testing.T) {
	t.Parallel()
	data, other := pemtest.SelfSigned(t, "a.example", pemtest.ECKey()), pemtest.SelfSigned(t, "a.example", pemtest.ECKey2())
	version, err := pem.Version(data)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		companions []Companion
		ok         bool
	}{
		"one":          {[]Companion{{version, data}}, true},
		"none":         {nil, false},
		"another":      {[]Companion{{version, other}}, false},
		"twice":        {[]Companion{{version, data}, {version, data}}, false},
		"of no use":    {[]Companion{{version, data}, {someVersion, other}}, false},
		"another name": {[]Companion{{someVersion, data}}, false},
	} {
		d := sampleDraft()
		d.Certificates[0].Mode, d.Certificates[0].Version, d.Companions = ModeCompanion, version, tt.companions
		if err := d.Check(); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
