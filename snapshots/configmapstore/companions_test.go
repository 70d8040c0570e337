package configmapstore

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	stdpem "encoding/pem"
	"errors"
	"maps"
	"math/big"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// withCompanion returns a draft with a new certificate that is kept beside it.
func withCompanion(t *testing.T, backend string) snapshots.Draft {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"shop.example"}, NotAfter: noon.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	content := append(stdpem.EncodeToMemory(&stdpem.Block{Type: "CERTIFICATE", Bytes: der}), stdpem.EncodeToMemory(&stdpem.Block{Type: "PRIVATE KEY", Bytes: encoded})...)
	d := storetest.Draft(backend)
	d.Certificates[0].Mode = snapshots.ModeCompanion
	if d.Certificates[0].Version, err = pem.Version(content); err != nil {
		t.Fatal(err)
	}
	d.Companions = []snapshots.Companion{{Version: d.Certificates[0].Version, Content: content}}
	return d
}

func (p *place) secrets() []corev1.Secret {
	p.Helper()
	var list corev1.SecretList
	if err := p.client.List(p.Context(), &list, client.InNamespace(p.namespace)); err != nil {
		p.Fatal(err)
	}
	return list.Items
}

// A key is in an immutable Secret that is deleted with its snapshot. No ConfigMap has it.
func TestCompanions(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s, d := p.open(), withCompanion(t, "web")
	id := publish(t, s, d)
	secrets := p.secrets()
	if len(secrets) != 1 || secrets[0].Immutable == nil || !*secrets[0].Immutable || len(secrets[0].OwnerReferences) != 1 ||
		secrets[0].OwnerReferences[0].Name != "edge-r000001" || secrets[0].Annotations["argocd.argoproj.io/sync-options"] == "" {
		t.Fatalf("Secrets are %+v", secrets)
	}
	for _, o := range append(p.objects(partManifest), p.objects(partChunk)...) {
		if text := o.String(); bytes.Contains([]byte(text), []byte("PRIVATE KEY")) {
			t.Errorf("ConfigMap %s holds a key", o.Name)
		}
	}
	found, err := p.open().Companions(t.Context(), id)
	if err != nil || len(found) != 1 || !bytes.Equal(found[d.Companions[0].Version], d.Companions[0].Content) {
		t.Errorf("%d certificates, %v", len(found), err)
	}
	publish(t, s, storetest.Draft("next"))
	if err := s.Delete(t.Context(), id); err != nil || len(p.secrets()) != 0 {
		t.Errorf("deleted (%v), and %d Secrets are left", err, len(p.secrets()))
	}
	if _, err := s.Companions(t.Context(), id); !errors.Is(err, snapshots.ErrNotFound) {
		t.Errorf("of what was deleted: %v", err)
	}
}

// A Secret with another certificate, or a missing one, does not count.
func TestCompanionsAreVerified(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	id := publish(t, p.open(), withCompanion(t, "web"))
	secret := p.secrets()[0]
	if err := p.client.Delete(t.Context(), &secret); err != nil {
		t.Fatal(err)
	}
	if _, err := p.open().Companions(t.Context(), id); !errors.Is(err, snapshots.ErrCorrupt) {
		t.Errorf("without its Secret: %v", err)
	}
	other := withCompanion(t, "web").Companions[0]
	for key := range secret.Data {
		secret.Data[key] = other.Content
	}
	secret.ResourceVersion, secret.UID = "", ""
	if err := p.client.Create(t.Context(), &secret); err != nil {
		t.Fatal(err)
	}
	if _, err := p.open().Companions(t.Context(), id); !errors.Is(err, snapshots.ErrCorrupt) {
		t.Errorf("with another certificate: %v", err)
	}
}

// Wherever a writer is killed, every existing snapshot has its certificates, the next writer can continue, and
// nothing is left over.
func TestKilledWithCompanions(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	d := withCompanion(t, "web")
	for n, killed := 1, true; killed; n++ {
		s, steps := p.open(), 0
		s.step = func(string) error {
			if steps++; steps >= n {
				return errKilled
			}
			return nil
		}
		d.Files[0].Content = append(d.Files[0].Content, '#')
		_, _, err := s.Publish(t.Context(), d)
		if killed = errors.Is(err, errKilled); !killed && err != nil {
			t.Fatal(err)
		}
		next := p.open()
		if _, _, err := next.Publish(t.Context(), d); err != nil {
			t.Fatalf("killed at step %d, the next: %v", n, err)
		}
		ids, err := next.IDs(t.Context())
		if err != nil || len(ids) != n {
			t.Fatalf("killed at step %d: %d snapshots, %v", n, len(ids), err)
		}
		for _, id := range ids {
			if found, err := next.Companions(t.Context(), id); err != nil || len(found) != 1 {
				t.Errorf("killed at step %d, %s has %d certificates: %v", n, id, len(found), err)
			}
		}
		if got := len(p.secrets()); got != n {
			t.Errorf("killed at step %d: %d Secrets for %d snapshots", n, got, n)
		}
	}
}

// A user who may only create ConfigMaps cannot have a Secret read or deleted, whatever a manifest says: neither
// a Secret of another program, nor a certificate beside another snapshot.
func TestForeignManifestsReachNoSecret(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.open()
	id := publish(t, s, withCompanion(t, "web"))
	theirs := p.secrets()[0]
	own := corev1.Secret{Data: map[string][]byte{"password": []byte("t3st")}}
	own.Namespace, own.Name = p.namespace, "dataplane"
	// This Secret is named like those of the store.
	lookalike := corev1.Secret{Data: map[string][]byte{"password": []byte("t3st")}}
	lookalike.Namespace, lookalike.Name = p.namespace, "edge-r000002-x-certificates-000"
	for _, o := range []*corev1.Secret{&own, &lookalike} {
		if err := p.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	staged := part("edge", "edge-r000002", partManifest)
	staged.Namespace = p.namespace
	staged.Labels[snapshotLabel], staged.Labels[stateLabel] = "r000002-0123456789", stateStaged
	staged.Annotations[secretsAnnotation] = own.Name + " " + theirs.Name + " " + lookalike.Name
	if err := p.client.Create(t.Context(), staged); err != nil {
		t.Fatal(err)
	}
	next := p.open()
	next.patience = 0
	publish(t, next, storetest.Draft("next"))
	for _, m := range p.objects(partManifest) {
		if m.UID == staged.UID {
			t.Fatal("what was half-written is still there, so that nothing was tried")
		}
	}
	if n := len(p.secrets()); n != 3 {
		t.Errorf("%d Secrets are left of 3", n)
	}
	if found, err := next.Companions(t.Context(), id); err != nil || len(found) != 1 {
		t.Errorf("%d certificates of the first snapshot, %v", len(found), err)
	}
}

// If two readers write their status to the same place, the second is refused until the first has written
// nothing for a while. The permissions of the role are enough.
func TestStatusOfTwo(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	publish(t, p.open(), storetest.Draft("a"))
	reader := p.as("reporter", append(Status("edge"), Creating()...))
	set := func(by string, at time.Time, refused string) {
		t.Helper()
		err := reader.SetStatus(t.Context(), Report{By: by, At: at, Fields: map[string]string{"phase": by}})
		other, is := errors.AsType[OtherWriterError](err)
		if err != nil && !is || other.By != refused {
			t.Fatalf("%s at %s: %v", by, at, err)
		}
		want := by
		if refused != "" {
			want = refused
		}
		if o := p.object("edge-status"); o.Data["phase"] != want || o.Annotations[writerAnnotation] != want {
			t.Fatalf("the status is %v, %v", o.Data, o.Annotations)
		}
	}
	set("a", noon, "")
	set("b", noon.Add(time.Minute), "a")
	set("b", noon.Add(-time.Minute), "a") // its clock is slow
	set("a", noon.Add(2*time.Minute), "")
	set("b", noon.Add(4*time.Minute), "a")
	set("b", noon.Add(6*time.Minute), "")
	set("a", noon.Add(6*time.Minute), "b")
}

// A reader that may not write its status is told so, also where there is none yet. One that may write it, and may not make it, waits
// for the compiler to make it.
func TestStatusThatMayNotBeWritten(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	of := func(account string, rules []rbacv1.PolicyRule) error {
		return p.as(account, rules).SetStatus(t.Context(), Report{By: account, At: noon, Fields: map[string]string{"phase": "Healthy"}})
	}
	for _, when := range []string{"before", "after"} {
		if err := of("denied-"+when, Creating()); !errors.Is(err, ErrStatusDenied) {
			t.Errorf("%s the first snapshot, without the role: %v", when, err)
		}
		if err := of("reader-"+when, Status("edge")); errors.Is(err, ErrStatusDenied) || (err == nil) != (when == "after") {
			t.Errorf("%s the first snapshot: %v", when, err)
		}
		publish(t, p.open(), storetest.Draft(when))
	}
}

// The status is written by whoever reads the store, and is not in the way of what is
// delivered, nor the other way around. It takes no more than the role for it.
func TestStatus(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	reader := p.as("reporter", append(Status("edge"), Creating()...)) // nothing exists yet
	set := func(fields map[string]string) {
		t.Helper()
		if err := reader.SetStatus(t.Context(), Report{Fields: fields, Packed: []byte("packed")}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want map[string]string) {
		t.Helper()
		if o := p.object("edge-status"); !maps.Equal(o.Data, want) || string(o.BinaryData[StatusKey]) != "packed" || o.Labels[partLabel] != partStatus {
			t.Errorf("the status is %v, %v, not %v", o.Data, o.Labels, want)
		}
	}
	set(map[string]string{"phase": "Progressing", "message": "wave 1"})
	check(map[string]string{"phase": "Progressing", "message": "wave 1"})
	o := p.object("edge-status")
	o.Data[deliveredKey] = "r000001-0123456789"
	if err := p.client.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	set(map[string]string{"phase": "Healthy"})
	check(map[string]string{"phase": "Healthy", deliveredKey: "r000001-0123456789"})
	if v, err := p.open().View(t.Context()); err != nil || len(v.IDs) != 0 {
		t.Errorf("the store has %v, %v", v, err)
	}
	if id := publish(t, p.open(), storetest.Draft("a")); id != snapshots.NewID(1, storetest.Draft("a").Digest()) {
		t.Errorf("published %s", id)
	}
}
