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
	one, err := new(compressor).pack(s)
	if err != nil {
		t.Fatal(err)
	}
	if two, err := new(compressor).pack(s); err != nil || !reflect.DeepEqual(one, two) {
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
	var c compressor
	_, err := c.pack(d.Number(1, snapshots.ID{}))
	if !errors.Is(err, sequence.ErrRefused) {
		t.Fatal(err)
	}
	if len(c.known) > 0 {
		t.Errorf("%d blocks of what is refused are kept in memory", len(c.known))
	}
	_, listed, _ := strings.Cut(err.Error(), "the largest files: ")
	if names := strings.Split(listed, ", "); len(names) != 10 || names[0] != "files/11.bin 2600011" || names[9] != "files/02.bin 2600002" {
		t.Errorf("%q", names)
	}
	d.Files = d.Files[:len(d.Files)-2]
	if p, err := new(compressor).pack(d.Number(1, snapshots.ID{})); err != nil || len(p.pieces) != 29 {
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
	p, err := new(compressor).pack(s)
	if err != nil {
		t.Fatal(err)
	}
	o := newDraft("edge", s, p, "0").manifest
	if len(p.manifest) <= maxPiece || o.Data[manifestKey] != "" || len(o.BinaryData[manifestGzKey]) > maxPiece {
		t.Errorf("the manifest has %d bytes: %d and %d in the ConfigMap", len(p.manifest), len(o.Data[manifestKey]), len(o.BinaryData[manifestGzKey]))
	}
	if text, err := unpackManifest([][]byte{o.BinaryData[manifestGzKey]}); err != nil || string(text) != string(p.manifest) {
		t.Errorf("it is read as %d bytes, %v", len(text), err)
	}
	if _, err := unpackManifest(nil); !errors.Is(err, snapshots.ErrCorrupt) {
		t.Errorf("no manifest: %v", err)
	}
}

// incompressible returns a draft whose manifest has more than a megabyte, compressed: its names are made up.
func incompressible(backend string) snapshots.Draft {
	d := storetest.Draft(backend)
	random := rand.New(rand.NewPCG(1, 2))
	for range 6500 {
		name := make([]byte, 250)
		for i := range name {
			name[i] = "abcdefghijklmnopqrstuvwxyz0123456789"[random.IntN(36)]
		}
		d.Certificates = append(d.Certificates, snapshots.CertificateRef{
			File: fmt.Sprintf("certs/%s.pem", name[:230]), Secret: snapshots.SecretName{Namespace: "evil", Name: string(name)}, Mode: snapshots.ModeReference,
		})
	}
	return d
}

// A manifest that hardly compresses is in several ConfigMaps. A writer that is killed at any moment leaves all of it, or
// nothing that a reader sees. It is deleted with all of its pieces, and is corrupt if one is missing.
func TestManifestInSeveralConfigMaps(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	d := incompressible("web")
	want, err := d.Number(1, snapshots.ID{}).Manifest.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	readable := func() []snapshots.ID {
		t.Helper()
		ids, err := p.open().IDs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			s, err := p.open().Get(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := s.Manifest.Marshal(); err != nil || string(got) != string(want) {
				t.Errorf("%s has a manifest of %d bytes, want %d: %v", id, len(got), len(want), err)
			}
		}
		return ids
	}
	killed, errKilled := 0, errors.New("killed")
	for ; len(readable()) == 0; killed++ {
		left := killed
		s := p.open()
		s.step = func(what string) error {
			if strings.Contains(what, "delete") { // of what the writer before left
				return nil
			}
			if left--; left < 0 {
				return errKilled
			}
			return nil
		}
		if _, _, err := s.Publish(t.Context(), d); err != nil && !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
	}
	if killed < 10 {
		t.Errorf("it is published after %d steps", killed)
	}
	id := d.Number(1, snapshots.ID{}).ID()
	next := publish(t, p.open(), storetest.Draft("b"))
	chunks := p.objects(partChunk)
	if len(chunks) != 4 {
		t.Errorf("there are %d chunks", len(chunks))
	}
	names := strings.Fields(p.object(manifestName("edge", 1)).Data[manifestChunksKey])
	if err := p.client.Delete(t.Context(), p.object(names[1])); err != nil {
		t.Fatal(err)
	}
	if _, err := p.open().Manifest(t.Context(), id); !errors.Is(err, snapshots.ErrCorrupt) || !strings.Contains(err.Error(), names[1]) {
		t.Errorf("without a piece: %v", err)
	}
	if err := p.open().Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if left := p.objects(partChunk); len(left) != 1 || left[0].Labels[snapshotLabel] != next.String() {
		t.Errorf("%d chunks are left", len(left))
	}
	if _, err := p.open().Manifest(t.Context(), id); !errors.Is(err, snapshots.ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
}

// Such a manifest can be delivered too, and is a snapshot when all of it has arrived.
func TestManifestInSeveralConfigMapsDelivered(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := incompressible("web").Number(1, snapshots.ID{})
	objects := p.objectsOf(s)
	for _, o := range objects {
		size := 0
		for _, piece := range o.BinaryData {
			size += len(piece)
		}
		if size > deliveredPiece {
			t.Errorf("%s has %d bytes", o.Name, size)
		}
	}
	for _, o := range objects {
		if _, err := p.open().Manifest(t.Context(), s.ID()); !errors.Is(err, snapshots.ErrNotFound) && o.Labels[partLabel] != partStatus {
			t.Errorf("before %s arrives: %v", o.Name, err)
		}
		p.deliver(o)
	}
	if got, err := p.open().Get(t.Context(), s.ID()); err != nil || len(got.Manifest.Spec.Certificates) != len(s.Manifest.Spec.Certificates) {
		t.Errorf("delivered: %v", err)
	}
}

// Wrong pieces are reported as corruption.
func TestUnpackingWhatIsNotIt(t *testing.T) {
	t.Parallel()
	s := storetest.Draft("web").Number(1, snapshots.ID{})
	p, err := new(compressor).pack(s)
	if err != nil {
		t.Fatal(err)
	}
	whole := p.pieces[0]
	more, err := new(compressor).tarGz(append(s.Files, snapshots.File{Path: "files/zz", Content: []byte("x")}))
	if err != nil {
		t.Fatal(err)
	}
	fewer, err := new(compressor).tarGz(s.Files[:1])
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
