package configmapstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

func TestPackingIsReproducible(t *testing.T) {
	t.Parallel()
	s := storetest.Draft("web").Number(1, snapshots.ID{})
	one, err := pack(s)
	if err != nil {
		t.Fatal(err)
	}
	if two, err := pack(s); err != nil || !reflect.DeepEqual(one, two) {
		t.Errorf("packed again it differs: %v", err)
	}
	files, err := unpackFiles(s.Manifest, one.pieces)
	if err != nil || !reflect.DeepEqual(files, s.Files) {
		t.Errorf("unpacked: %v, %v", files, err)
	}
}

// A snapshot that is too large for ConfigMaps is refused, and the ten largest files are named.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	d := storetest.Draft("web")
	random := rand.NewChaCha8([32]byte{1})
	for i := range 12 {
		content := make([]byte, 2_600_000+i)
		_, _ = random.Read(content)
		d.Files = append(d.Files, snapshots.File{Path: fmt.Sprintf("files/%02d.bin", i), Content: content})
	}
	_, err := pack(d.Number(1, snapshots.ID{}))
	if !errors.Is(err, sequence.ErrRefused) {
		t.Fatal(err)
	}
	_, listed, _ := strings.Cut(err.Error(), "the largest files: ")
	if names := strings.Split(listed, ", "); len(names) != 10 || names[0] != "files/11.bin 2600011" || names[9] != "files/02.bin 2600002" {
		t.Errorf("%q", names)
	}
	d.Files = d.Files[:len(d.Files)-2]
	if p, err := pack(d.Number(1, snapshots.ID{})); err != nil || len(p.pieces) != 29 {
		t.Errorf("%d pieces, %v", len(p.pieces), err)
	}
}

// A manifest with more objects than fit into a ConfigMap is compressed.
func TestLargeManifest(t *testing.T) {
	t.Parallel()
	d := storetest.Draft("web")
	for i := range 20_000 {
		d.Quarantined = append(d.Quarantined, snapshots.Quarantined{Kind: "Ingress", Namespace: "shop", Name: fmt.Sprint(i), Reason: "it has no host"})
	}
	s := d.Number(1, snapshots.ID{})
	p, err := pack(s)
	if err != nil {
		t.Fatal(err)
	}
	o := newDraft("edge", s, p, "0").manifest
	if len(p.manifest) <= maxPiece || o.Data[manifestKey] != "" || len(o.BinaryData[manifestGzKey]) > maxPiece {
		t.Errorf("the manifest has %d bytes: %d and %d in the ConfigMap", len(p.manifest), len(o.Data[manifestKey]), len(o.BinaryData[manifestGzKey]))
	}
	if got, err := unpackManifest(o.Data, o.BinaryData); err != nil || len(got.Spec.Quarantined) != 20_000 {
		t.Errorf("%d objects, %v", len(got.Spec.Quarantined), err)
	}
	if _, err := unpackManifest(o.Data, nil); !errors.Is(err, snapshots.ErrCorrupt) {
		t.Errorf("no manifest: %v", err)
	}
}

// Wrong pieces are reported as corruption.
func TestUnpackingWhatIsNotIt(t *testing.T) {
	t.Parallel()
	s := storetest.Draft("web").Number(1, snapshots.ID{})
	p, err := pack(s)
	if err != nil {
		t.Fatal(err)
	}
	whole := p.pieces[0]
	more, err := tarGz(append(s.Files, snapshots.File{Path: "files/zz", Content: []byte("x")}))
	if err != nil {
		t.Fatal(err)
	}
	fewer, err := tarGz(s.Files[:1])
	if err != nil {
		t.Fatal(err)
	}
	checksum := append([]byte(nil), whole...)
	checksum[len(checksum)-6]++
	for name, pieces := range map[string][][]byte{
		"nothing": nil, "no archive": {[]byte("hello")}, "cut short": {whole[:len(whole)-20]}, "another checksum": {checksum},
		"another order": {whole[50:], whole[:50]}, "one more file": {more}, "one file less": {fewer},
	} {
		if files, err := unpackFiles(s.Manifest, pieces); !errors.Is(err, snapshots.ErrCorrupt) {
			t.Errorf("%s: %d files, %v", name, len(files), err)
		}
	}
}
