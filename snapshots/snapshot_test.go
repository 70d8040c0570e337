package snapshots

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func digestN(n int) Digest { return Digest(fmt.Sprintf("sha256:%010x%054d", n, 0)) }
func idN(n int) ID         { return NewID(uint64(n), digestN(n)) }

func sampleDraft() Draft {
	return Draft{
		Files:        []File{{"maps/host.map", []byte("a b\n")}, {ConfigFile, []byte("global\n")}},
		Certificates: []CertificateRef{{File: "certs/b.pem", Secret: SecretName{"shop", "b"}}, {File: "certs/a.pem"}},
		Time:         noon.In(time.FixedZone("CET", 3600)).Add(time.Millisecond),
		Subject:      "+1 backend",
	}
}

func TestSealedSnapshotVerifies(t *testing.T) {
	s := sampleDraft().Number(123, idN(7))
	if err := s.Verify(); err != nil {
		t.Fatal(err)
	}
	data, err := s.Manifest.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	m, err := ParseManifest(data)
	if diff := cmp.Diff(s.Manifest, m); diff != "" || err != nil {
		t.Errorf("manifest read back, %v (-want +got):\n%s", err, diff)
	}
	if s.ID().Revision != 123 || !s.ID().Names(sampleDraft().Digest()) || m.Spec.Parent != idN(7) || !m.Provenance.Time.Equal(noon) {
		t.Errorf("%s of %s at %s", s.ID(), m.Spec.Parent, m.Provenance.Time)
	}
	if string(s.Config()) != "global\n" {
		t.Errorf("config is %q", s.Config())
	}
	if _, ok := s.File("maps/none.map"); ok {
		t.Error("there is a file that is not there")
	}
}

func TestDigestIsOfTheContent(t *testing.T) {
	base := sampleDraft().Digest()
	for name, same := range map[string]func(*Draft){
		"the order of files":   func(d *Draft) { d.Files[0], d.Files[1] = d.Files[1], d.Files[0] },
		"what was observed":    func(d *Draft) { d.Certificates[0].Observed = &ObservedCertificate{Fingerprint: "x"} },
		"provenance":           func(d *Draft) { d.Provenance.CompilerVersion = "2"; d.Time = noon.AddDate(1, 0, 0); d.Subject = "" },
		"what was quarantined": func(d *Draft) { d.Quarantined = []Quarantined{{Kind: "Ingress"}} },
	} {
		d := sampleDraft()
		if same(&d); d.Digest() != base {
			t.Errorf("%s changes the digest", name)
		}
	}
	for name, other := range map[string]func(*Draft){
		"a content": func(d *Draft) { d.Files[0].Content = []byte("a c\n") },
		"a path":    func(d *Draft) { d.Files[0].Path = "maps/host2.map" },
		"a file":    func(d *Draft) { d.Files = d.Files[:1] },
		"a Secret":  func(d *Draft) { d.Certificates[0].Secret.Name = "c" },
		"a use":     func(d *Draft) { d.Certificates[0].Use = UseCA },
	} {
		d := sampleDraft()
		if other(&d); d.Digest() == base {
			t.Errorf("%s does not change the digest", name)
		}
	}
}

func TestVerifyFindsCorruption(t *testing.T) {
	for name, tt := range map[string]struct {
		harm func(*Snapshot)
		want string
	}{
		"a changed file":       {func(s *Snapshot) { s.Files[1].Content = []byte("x") }, "maps/host.map has sha256"},
		"a missing file":       {func(s *Snapshot) { s.Files = s.Files[1:] }, "haproxy.cfg is missing"},
		"a missing last file":  {func(s *Snapshot) { s.Files = s.Files[:1] }, "maps/host.map is missing"},
		"a foreign file":       {func(s *Snapshot) { s.Files = append(s.Files, File{"z", nil}) }, "z is not in the manifest"},
		"a foreign first file": {func(s *Snapshot) { s.Files = append([]File{{"a", nil}}, s.Files...) }, "a is not in the manifest"},
		"another certificate":  {func(s *Snapshot) { s.Manifest.Spec.Certificates[0].Secret.Name = "x" }, "the manifest says"},
		"another digest":       {func(s *Snapshot) { s.Manifest.Spec.Digest = digestN(1) }, "the manifest says"},
		"another name":         {func(s *Snapshot) { s.Manifest.Metadata.Name = "r000001-0000000001" }, `named "r000001-0000000001"`},
	} {
		s := sampleDraft().Number(1, ID{})
		tt.harm(&s)
		if err := s.Verify(); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ParseManifest([]byte("kind: Snapshot\nextra: 1\n")); !errors.Is(err, ErrCorrupt) {
		t.Errorf("an unknown field: %v", err)
	}
	if _, err := ParseManifest([]byte("kind: Snapshot\n")); !errors.Is(err, ErrCorrupt) {
		t.Errorf("no version: %v", err)
	}
}

func TestIDs(t *testing.T) {
	for _, id := range []ID{idN(1), idN(999_999), NewID(1_234_567, digestN(3))} {
		if got, err := ParseID(id.String()); err != nil || got != id {
			t.Errorf("%s is read as %s, %v", id, got, err)
		}
	}
	for _, bad := range []string{"", "r1", "r1-0000000001", "r000000-0000000001", "000001-0000000001", "r000001-000000000", "r000001-000000000G", "r+00001-0000000001", "r000001-00000000011"} {
		if id, err := ParseID(bad); !errors.Is(err, ErrBadID) {
			t.Errorf("%q is read as %s, %v", bad, id, err)
		}
	}
	if idN(2).Compare(idN(10)) >= 0 || (ID{}).String() != "" || (ID{}).Names("") || idN(1).Names(digestN(2)) {
		t.Error("IDs do not order or name as they should")
	}
	var id ID
	if err := id.UnmarshalText(nil); err != nil || !id.IsZero() {
		t.Errorf("the empty text: %s, %v", id, err)
	}
}

func TestFindID(t *testing.T) {
	ids := []ID{idN(1), idN(2), idN(12)}
	for name, want := range map[string]ID{
		"r12": idN(12), "2": idN(2), idN(1).String(): idN(1), "head": idN(12),
		"r3": {}, idN(3).String(): {}, "": {}, "r": {}, "HEAD": {},
	} {
		if got, ok := FindID(ids, name); ok == want.IsZero() || (ok && got != want) {
			t.Errorf("%q is %s, %v, want %s", name, got, ok, want)
		}
	}
	if id, ok := FindID(nil, Newest); ok {
		t.Errorf("the newest of none is %s", id)
	}
}

func TestServicePorts(t *testing.T) {
	for _, p := range []ServicePort{{"shop", "web", ""}, {"shop", "web", "http"}} {
		if got, err := ParseServicePort(p.String()); err != nil || got != p {
			t.Errorf("%s is read as %s, %v", p, got, err)
		}
	}
	for _, bad := range []string{"", "web", "/web", "shop/", "shop/web:", "shop/web:a:b", "a/b/c", ":http"} {
		if p, err := ParseServicePort(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, p)
		}
	}
}
