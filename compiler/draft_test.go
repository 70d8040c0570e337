package compiler_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"golang.org/x/tools/txtar"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
	"github.com/hapsnap/hapsnap/snapshots/sealing"
)

// edge is a set of manifests with a Secret, and the mode of its certificates.
type edge struct {
	*testing.T
	check  *validate.Checker
	config config.Certificates
	secret string // a manifest, "" for none
	route  string
}

func newEdge(t *testing.T, c config.Certificates) *edge {
	t.Helper()
	e := &edge{T: t, check: haproxy(t), config: c, route: "/api"}
	e.renew()
	return e
}

// renew puts another certificate into the Secret.
func (e *edge) renew() {
	e.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		e.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"shop.example", "*.shop.example"}, NotAfter: now.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		e.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		e.Fatal(err)
	}
	text := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	e.secret = fmt.Sprintf("apiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {namespace: shop, name: web-tls}\ndata:\n  tls.crt: %s\n  tls.key: %s\n",
		text("CERTIFICATE", der), text("PRIVATE KEY", encoded))
}

func (e *edge) compile() compiler.Result {
	e.Helper()
	a := load(e.T, "shop.txtar")
	for i, f := range a.Files {
		a.Files[i].Data = bytes.ReplaceAll(f.Data, []byte("path: /api"), []byte("path: "+e.route))
	}
	if e.secret != "" {
		a.Files = append(a.Files, txtar.File{Name: "manifests/tls.yaml", Data: []byte(e.secret)})
	}
	s := source(e.T, a)
	s.Config.Certificates = e.config
	r, err := s.Once(e.Context(), e.check, now, "test")
	if err != nil {
		e.Fatal(err, r.Diagnostics)
	}
	return r
}

// publish compiles, and returns the newest snapshot, and whether it is new.
func (e *edge) publish(store *dirstore.Store) (snapshots.Snapshot, bool) {
	e.Helper()
	id, published, err := controller.Publish(e.Context(), store, e.compile(), config.ShrinkGuard{})
	if err != nil {
		e.Fatal(err)
	}
	s, err := store.Get(e.Context(), id)
	if err != nil {
		e.Fatal(err)
	}
	return s, published
}

func newIdentity(t *testing.T) *age.X25519Identity {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return identity
}

const sealedFile = "certs/shop_web-tls.pem.age"

// An unchanged certificate keeps its bytes in every later snapshot.
func TestSealedCertificates(t *testing.T) {
	t.Parallel()
	identity, next := newIdentity(t), newIdentity(t)
	e := newEdge(t, config.Certificates{Mode: config.SealedCertificates, Recipients: []string{identity.Recipient().String()}})
	store := dirstore.Open(filepath.Join(t.TempDir(), "store"), dirstore.Options{})
	first, _ := e.publish(store)
	if again, published := e.publish(store); published {
		t.Errorf("the same was published again, as %s", again.ID())
	}
	e.route = "/v2"
	routed, published := e.publish(store)
	if !published || content(routed, sealedFile) != content(first, sealedFile) {
		t.Error("another route: not published, or the certificate sealed anew")
	}
	e.renew()
	renewed, published := e.publish(store)
	if !published || content(renewed, sealedFile) == content(first, sealedFile) || renewed.Manifest.Spec.Subject != "~1 certificate" {
		t.Errorf("a renewed certificate: %q", renewed.Manifest.Spec.Subject)
	}
	e.config.Recipients = append(e.config.Recipients, next.Recipient().String())
	rotated, published := e.publish(store)
	if !published || content(rotated, sealedFile) == content(renewed, sealedFile) || rotated.Manifest.Spec.Subject != "sealed to other recipients" {
		t.Errorf("other recipients: %q", rotated.Manifest.Spec.Subject)
	}
	e.opens(first, identity)
	e.opens(rotated, next)
}

func content(s snapshots.Snapshot, path string) string {
	data, _ := s.File(path)
	return string(data)
}

// opens checks that an identity can decrypt the certificates of a snapshot, and that the snapshot shows nothing
// of them without it.
func (e *edge) opens(s snapshots.Snapshot, identity *age.X25519Identity) {
	e.Helper()
	file := filepath.Join(e.TempDir(), "identity.txt")
	if err := os.WriteFile(file, []byte(identity.String()+"\n"), 0o600); err != nil {
		e.Fatal(err)
	}
	identities, err := sealing.ReadIdentities(file)
	if err != nil {
		e.Fatal(err)
	}
	found, err := identities.Certificates(s)
	if err != nil || len(found) != 1 {
		e.Errorf("%s: %d certificates, %v", s.ID(), len(found), err)
	}
	manifest, err := s.Manifest.Marshal()
	if err != nil {
		e.Fatal(err)
	}
	for _, f := range append(s.Files, snapshots.File{Path: snapshots.ManifestFile, Content: manifest}) {
		if bytes.Contains(f.Content, []byte("PRIVATE KEY")) || bytes.Contains(f.Content, []byte(identity.String())) {
			e.Errorf("%s of %s holds a key", f.Path, s.ID())
		}
	}
}

// A directory that is rendered again does not change.
func TestSealedInADirectory(t *testing.T) {
	t.Parallel()
	e := newEdge(t, config.Certificates{Mode: config.SealedCertificates, Recipients: []string{newIdentity(t).Recipient().String()}})
	dir := filepath.Join(t.TempDir(), "out")
	var before []byte
	for range 2 {
		if err := compiler.WriteTree(dir, e.compile().Draft); err != nil {
			t.Fatal(err)
		}
		now, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(sealedFile)))
		if err != nil || (before != nil && !bytes.Equal(before, now)) {
			t.Errorf("rendered again, the certificate is sealed anew: %v", err)
		}
		before = now
	}
}

// With exact, a renewed certificate makes a new snapshot. With reference it does not.
func TestExactCertificates(t *testing.T) {
	t.Parallel()
	for mode, changes := range map[config.CertificateMode]bool{config.ExactCertificates: true, config.ReferenceCertificates: false} {
		e := newEdge(t, config.Certificates{Mode: mode})
		first := e.compile().Draft
		if len(first.Recipients) > 0 || e.compile().Draft.Digest() != first.Digest() {
			t.Errorf("%s: compiled again it differs", mode)
		}
		e.renew()
		if renewed := e.compile().Draft.Digest() != first.Digest(); renewed != changes {
			t.Errorf("%s: a renewed certificate is another snapshot: %v", mode, renewed)
		}
	}
}

// If a Secret is missing in the compile, it is missing for the snapshot too.
func TestVersionOfNothing(t *testing.T) {
	t.Parallel()
	e := newEdge(t, config.Certificates{Mode: config.SealedCertificates, Recipients: []string{newIdentity(t).Recipient().String()}})
	e.secret = ""
	r := e.compile()
	for _, ref := range r.Draft.Certificates {
		if ref.File == "certs/shop_web-tls.pem" && (ref.Mode != snapshots.ModeSealed || ref.Version != "") {
			t.Errorf("it is %+v", ref)
		}
	}
	if err := r.Draft.Check(); err != nil || len(r.Draft.Recipients) > 0 {
		t.Errorf("sealed to %v: %v", r.Draft.Recipients, err)
	}
	if len(r.Diagnostics) != 1 || strings.Contains(r.Diagnostics[0].Hint, "where snapshots are pushed") {
		t.Errorf("diagnostics are %v", r.Diagnostics)
	}
}
