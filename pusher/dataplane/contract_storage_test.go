//nolint:thelper // the checks are tests: a failure has to name their own lines
package dataplane_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

func checkMaps(t *testing.T, s *subject) {
	ctx := t.Context()
	if err := s.CreateFile(ctx, dataplane.Maps, "host.example.map", []byte("a b\n")); err != nil {
		t.Fatal(err)
	}
	wantError(t, s.CreateFile(ctx, dataplane.Maps, "host.example.map", nil), dataplane.ErrConflict)
	if err := s.CreateFile(ctx, dataplane.Maps, "empty", nil); err != nil {
		t.Fatal(err)
	}
	files, err := s.Files(ctx, dataplane.Maps)
	want := []dataplane.File{
		{Name: "empty.map", Path: filepath.Join(s.dirs.Maps, "empty.map")},
		{Name: "host_example.map", Path: filepath.Join(s.dirs.Maps, "host_example.map")},
	}
	if err != nil || len(files) != 2 || files[0] != want[0] || files[1] != want[1] {
		t.Errorf("the maps are %+v, %v", files, err)
	}
	for _, name := range []string{"host.example.map", "host_example.map"} {
		if content, err := s.ReadFile(ctx, dataplane.Maps, name); err != nil || string(content) != "a b\n" {
			t.Errorf("%s is %q, %v", name, content, err)
		}
	}
	if err := s.ReplaceFile(ctx, dataplane.Maps, "host_example.map", []byte("a c\n")); err != nil {
		t.Error(err)
	}
	if content, err := s.ReadFile(ctx, dataplane.Maps, "host_example.map"); err != nil || string(content) != "a c\n" {
		t.Errorf("the replaced map is %q, %v", content, err)
	}
	wantError(t, s.ReplaceFile(ctx, dataplane.Maps, "host_example.map", nil), dataplane.ErrRejected)
	wantError(t, s.ReplaceFile(ctx, dataplane.Maps, "none.map", []byte("a b\n")), dataplane.ErrNotFound)
	_, err = s.ReadFile(ctx, dataplane.Maps, "none.map")
	wantError(t, err, dataplane.ErrNotFound)
	if err := s.DeleteFile(ctx, dataplane.Maps, "host.example.map"); err != nil {
		t.Error(err)
	}
	wantError(t, s.DeleteFile(ctx, dataplane.Maps, "host.example.map"), dataplane.ErrNotFound)
	s.wantQuiet(t)
}

// wantQuiet checks that nothing was reloaded, no reload is due, and there is no new version.
func (s *subject) wantQuiet(t *testing.T) {
	t.Helper()
	if reloads, err := s.Reloads(t.Context()); err != nil || len(reloads) != 0 {
		t.Errorf("a change of files on disk reloaded: %v, %v", reloads, err)
	}
	if v := s.version(t); v != 1 {
		t.Errorf("a change of files on disk made version %d", v)
	}
}

func checkGeneral(t *testing.T, s *subject) {
	ctx := t.Context()
	if err := s.CreateFile(ctx, dataplane.General, "../up/list.crt-list", []byte("a\n")); err != nil {
		t.Fatal(err)
	}
	wantError(t, s.CreateFile(ctx, dataplane.General, "list.crt-list", []byte("b\n")), dataplane.ErrConflict)
	if err := s.ReplaceFile(ctx, dataplane.General, "list.crt-list", []byte("c\n")); err != nil {
		t.Error(err)
	}
	if content, err := s.ReadFile(ctx, dataplane.General, "list.crt-list"); err != nil || string(content) != "c\n" {
		t.Errorf("the file is %q, %v", content, err)
	}
	files, err := s.Files(ctx, dataplane.General)
	if err != nil || len(files) != 1 || files[0].Name != "list.crt-list" || files[0].Path != filepath.Join(s.dirs.General, "list.crt-list") {
		t.Errorf("the files are %+v, %v", files, err)
	}
	if err := s.ReplaceFile(ctx, dataplane.General, "list.crt-list", nil); err != nil {
		t.Errorf("emptying a file: %v", err)
	}
	wantError(t, s.ReplaceFile(ctx, dataplane.General, "none", []byte("x")), dataplane.ErrNotFound)
	if err := s.DeleteFile(ctx, dataplane.General, "list.crt-list"); err != nil {
		t.Error(err)
	}
	wantError(t, s.DeleteFile(ctx, dataplane.General, "list.crt-list"), dataplane.ErrNotFound)
	s.wantQuiet(t)
}

func checkCertificates(t *testing.T, s *subject) {
	ctx := t.Context()
	first := certificate(t, "a.example.com", 4711)
	if err := s.CreateFile(ctx, dataplane.Certificates, "a.example.com.pem", first); err != nil {
		t.Fatal(err)
	}
	wantError(t, s.CreateFile(ctx, dataplane.Certificates, "a.example.com.pem", first), dataplane.ErrConflict)
	info, err := s.Certificate(ctx, "a_example_com.pem")
	block, _ := pem.Decode(first)
	leaf, parseErr := x509.ParseCertificate(block.Bytes)
	if parseErr != nil {
		t.Fatal(parseErr)
	}
	want := dataplane.File{
		Name: "a_example_com.pem", Path: filepath.Join(s.dirs.Certificates, "a_example_com.pem"),
		Size: int64(len(first)), Serial: "4711", NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter,
	}
	info.NotBefore, info.NotAfter = info.NotBefore.UTC(), info.NotAfter.UTC()
	if err != nil || info != want {
		t.Errorf("the certificate is %+v, %v\nwant %+v", info, err, want)
	}
	if err := s.ReplaceFile(ctx, dataplane.Certificates, "a.example.com.pem", certificate(t, "a.example.com", 4712)); err != nil {
		t.Error(err)
	}
	if info, err := s.Certificate(ctx, "a_example_com.pem"); err != nil || info.Serial != "4712" {
		t.Errorf("the replaced certificate is %+v, %v", info, err)
	}
	if files, err := s.Files(ctx, dataplane.Certificates); err != nil || len(files) != 1 || files[0].Name != "a_example_com.pem" {
		t.Errorf("the certificates are %+v, %v", files, err)
	}
	wantError(t, s.CreateFile(ctx, dataplane.Certificates, "keyless.pem", pem.EncodeToMemory(block)), dataplane.ErrRejected)
	wantError(t, s.CreateFile(ctx, dataplane.Certificates, "certless.pem", bytes.TrimPrefix(first, pem.EncodeToMemory(block))), dataplane.ErrRejected)
	wantError(t, s.CreateFile(ctx, dataplane.Certificates, "ed25519.pem", ed25519Certificate(t)), dataplane.ErrRejected)
	_, err = s.Certificate(ctx, "none.pem")
	wantError(t, err, dataplane.ErrNotFound)
	s.checkChains(t)
	wantError(t, s.ReplaceFile(ctx, dataplane.Certificates, "none.pem", first), dataplane.ErrNotFound)
	if err := s.DeleteFile(ctx, dataplane.Certificates, "a.example.com.pem"); err != nil {
		t.Error(err)
	}
	wantError(t, s.DeleteFile(ctx, dataplane.Certificates, "a.example.com.pem"), dataplane.ErrNotFound)
	s.wantQuiet(t)
}

// checkChains checks certificates with chains. A chain in which the API finds no leaf has no serial number. A
// chain with an unreadable certificate is listed without a description.
func (s *subject) checkChains(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	by := pemtest.NewAuthority(t)
	leaf, key := pemtest.PEMOf(t, by.Sign(t, "", func(c *x509.Certificate) {
		c.DNSNames, c.NotAfter = []string{"a.example.com"}, c.NotAfter.Add(-time.Minute)
	}))
	chain := leaf + by.PEM + key
	if err := s.CreateFile(ctx, dataplane.Certificates, "chain.pem", []byte(chain)); err != nil {
		t.Fatal(err)
	}
	if info, err := s.Certificate(ctx, "chain.pem"); err != nil || info.Serial != "" || info.Size != int64(len(chain)) || !info.NotAfter.Equal(by.Certificate.NotAfter.Add(-time.Minute)) {
		t.Errorf("the chain is %+v, %v", info, err)
	}
	path := filepath.Join(s.dirs.Certificates, "chain.pem")
	if err := os.WriteFile(path, []byte(strings.Replace(chain, by.PEM[:32], by.PEM[:28]+"AAAA", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if files, err := s.Files(ctx, dataplane.Certificates); err != nil || !slices.ContainsFunc(files, func(f dataplane.File) bool { return f.Name == "chain.pem" }) {
		t.Errorf("the certificates are %+v, %v", files, err)
	}
	_, err := s.Certificate(ctx, "chain.pem")
	if e, ok := errors.AsType[*dataplane.Error](err); !ok || e.Status != http.StatusInternalServerError {
		t.Errorf("a damaged chain: %v", err)
	}
	if err := s.ReplaceFile(ctx, dataplane.Certificates, "chain.pem", []byte(chain)); err != nil {
		t.Error(err)
	}
	if err := s.DeleteFile(ctx, dataplane.Certificates, "chain.pem"); err != nil {
		t.Error(err)
	}
}

func checkRotation(t *testing.T, s *subject) {
	ctx := t.Context()
	for _, name := range []string{"used.pem", "unused.pem"} {
		if err := s.CreateFile(ctx, dataplane.Certificates, name, certificate(t, "a.example.com", 0x11)); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(s.dirs.Certificates, "used.pem")
	s.post(t, s.config("n1", "frontend tls", "  bind unix@"+s.run+"/tls.sock ssl crt "+path), dataplane.PostOptions{ForceReload: true})
	before := s.info(t)
	running, err := s.RuntimeCertificate(ctx, path)
	if err != nil || running.Serial != "11" || running.Fingerprint == "" {
		t.Fatalf("the running certificate is %+v, %v", running, err)
	}

	if loaded, err := s.RuntimeCertificates(ctx); err != nil || len(loaded) != 1 || filepath.Base(loaded[0]) != "used.pem" {
		t.Errorf("the worker has %q, %v", loaded, err)
	}

	live, id, err := s.RotateCertificate(ctx, "used.pem", certificate(t, "a.example.com", 0x12))
	if err != nil || !live || id != "" {
		t.Errorf("rotated live=%v reload=%q, %v", live, id, err)
	}
	rotated, err := s.RuntimeCertificate(ctx, path)
	if err != nil || rotated.Serial != "12" || rotated.Fingerprint == running.Fingerprint {
		t.Errorf("the rotated certificate is %+v, %v", rotated, err)
	}
	if after := s.info(t); after.PID != before.PID {
		t.Error("a live rotation reloaded")
	}
	if stored, err := s.Certificate(ctx, "used.pem"); err != nil || stored.Serial != "18" {
		t.Errorf("the stored certificate is %+v, %v", stored, err)
	}

	live, id, err = s.RotateCertificate(ctx, "unused.pem", certificate(t, "a.example.com", 0x12))
	if err != nil || live || id == "" {
		t.Errorf("rotated what the worker does not have: live=%v reload=%q, %v", live, id, err)
	}
	if r := s.reloaded(t, id); r.Status != dataplane.ReloadSucceeded {
		t.Errorf("the reload is %+v", r)
	}
	s.checkCertList(t, path)
	_, err = s.RuntimeCertificate(ctx, path+".none")
	wantError(t, err, dataplane.ErrNotFound)
}

// checkCertList adds to a certificate list that the worker uses. 3.2 can do so only without names.
func (s *subject) checkCertList(t *testing.T, cert string) {
	t.Helper()
	if err := s.CreateFile(t.Context(), dataplane.General, "list.txt", []byte(cert+" a.example.com\n")); err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(s.dirs.General, "list.txt")
	s.post(t, s.config("n2", "frontend tls", "  bind unix@"+s.run+"/tls.sock ssl crt-list "+list), dataplane.PostOptions{ForceReload: true})
	const entries = "/runtime/ssl_crt_lists/entries?name="
	s.call(t, http.MethodPost, entries+url.QueryEscape(list), `{"file":"`+cert+`"}`, 201)
	var lists []struct{ File string }
	s.callJSON(t, http.MethodGet, "/runtime/ssl_crt_lists", "", 200, &lists)
	if len(lists) != 1 || lists[0].File != list {
		t.Errorf("the lists are %+v", lists)
	}
	var got []struct {
		File string
		SNI  []string `json:"sni_filter"`
	}
	s.callJSON(t, http.MethodGet, entries+url.QueryEscape(list), "", 200, &got)
	if len(got) != 2 || got[0].File != cert || len(got[0].SNI) != 1 || got[1].File != cert || len(got[1].SNI) != 0 {
		t.Errorf("the entries are %+v", got)
	}
}

func checkFilesInUse(t *testing.T, s *subject) {
	ctx := t.Context()
	for _, name := range []string{"used.map", "free.map"} {
		if err := s.CreateFile(ctx, dataplane.Maps, name, []byte("/x ant\n")); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(s.dirs.Maps, "used.map")
	s.post(t, s.config("n1", "  use_backend %[path,map("+path+")] if { path /x }"), dataplane.PostOptions{ForceReload: true})
	err := s.DeleteFile(ctx, dataplane.Maps, "used.map")
	wantError(t, err, dataplane.ErrConflict)
	if err == nil || !strings.Contains(err.Error(), "referenced in haproxy conf") {
		t.Errorf("the reason is %v", err)
	}
	if err := s.DeleteFile(ctx, dataplane.Maps, "free.map"); err != nil {
		t.Error(err)
	}

	// The disk and the worker have different content.
	if err := s.ReplaceFile(ctx, dataplane.Maps, "used.map", []byte("/y ant\n")); err != nil {
		t.Error(err)
	}
	if got := s.mapEntries(t, "used.map"); got != "/x=ant" {
		t.Errorf("the running map is %s", got)
	}
	s.post(t, s.raw(t).Config.String(), dataplane.PostOptions{ForceReload: true})
	if got := s.mapEntries(t, "used.map"); got != "/y=ant" {
		t.Errorf("the reloaded map is %s", got)
	}
	s.checkMapCalls(t)
}

func (s *subject) mapEntries(t *testing.T, name string) string {
	t.Helper()
	var entries []struct{ Key, Value string }
	s.callJSON(t, http.MethodGet, "/runtime/maps/"+name+"/entries", "", 200, &entries)
	texts := make([]string, 0, len(entries))
	for _, e := range entries {
		texts = append(texts, e.Key+"="+e.Value)
	}
	return strings.Join(texts, " ")
}

// checkMapCalls makes the calls on a running map that has /y=ant.
func (s *subject) checkMapCalls(t *testing.T) {
	t.Helper()
	const entries = "/runtime/maps/used.map/entries"
	s.call(t, http.MethodPost, entries, `{"key":"/b","value":"ant"}`, 201)
	s.call(t, http.MethodPost, entries, `{"key":"/b","value":"ant"}`, 409)
	s.call(t, http.MethodPut, entries+"/%2Fb?force_sync=true", `{"value":"zebra"}`, 200)
	if content, err := s.ReadFile(t.Context(), dataplane.Maps, "used.map"); err != nil || string(content) != "/b zebra\n/y ant\n" {
		t.Errorf("the synced file is %q, %v", content, err)
	}
	s.call(t, http.MethodDelete, entries+"/%2Fb", "", 204)
	s.call(t, http.MethodGet, entries+"/%2Fb", "", 404)
	s.call(t, http.MethodPut, "/runtime/maps/used.map", `[{"key":"/c","value":"ant"},{"key":"/d","value":"ant"}]`, 201)
	if got := s.mapEntries(t, "used.map"); got != "/y=ant /c=ant /d=ant" {
		t.Errorf("the running map is %s", got)
	}
	s.call(t, http.MethodDelete, "/runtime/maps/used.map", "", 204)
	if got := s.mapEntries(t, "used.map"); got != "" {
		t.Errorf("the cleared map is %s", got)
	}
	s.call(t, http.MethodGet, "/runtime/maps/none.map/entries", "", 404)
	s.checkMapClient(t)
}

// checkMapClient makes the client's calls on a running map that is empty.
func (s *subject) checkMapClient(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	if n := s.countEntries(t, "used.map"); n != 0 {
		t.Errorf("HAProxy counts %d entries of an empty map", n)
	}
	if entries, err := s.MapEntries(ctx, "used.map"); err != nil || len(entries) > 0 {
		t.Errorf("the empty map has %v, %v", entries, err)
	}
	for _, err := range []error{
		s.AddMapEntries(ctx, "used.map", []dataplane.MapEntry{{Key: "a.example|/x/", Value: "ant"}, {Key: "b", Value: "ant"}, {Key: "c", Value: "ant"}}),
		s.SetMapEntry(ctx, "used.map", "a.example|/x/", "zebra"),
		s.DeleteMapEntry(ctx, "used.map", "b"),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if n := s.countEntries(t, "used.map"); n != 2 {
		t.Errorf("HAProxy counts %d entries", n)
	}
	if e, err := s.MapEntry(ctx, "used.map", "a.example|/x/"); err != nil || e != (dataplane.MapEntry{Key: "a.example|/x/", Value: "zebra"}) {
		t.Errorf("the entry is %v, %v", e, err)
	}
	want := []dataplane.MapEntry{{Key: "a.example|/x/", Value: "zebra"}, {Key: "c", Value: "ant"}}
	if entries, err := s.MapEntries(ctx, "used.map"); err != nil || !slices.Equal(entries, want) {
		t.Errorf("the map has %v, %v", entries, err)
	}
	wantError(t, s.SetMapEntry(ctx, "used.map", "none", "ant"), dataplane.ErrNotFound)
	wantError(t, s.DeleteMapEntry(ctx, "used.map", "none"), dataplane.ErrNotFound)
	_, err := s.MapEntries(ctx, "none.map")
	wantError(t, err, dataplane.ErrNotFound)
	for _, at := range [][2]string{{"used.map", "b"}, {"none.map", "c"}} {
		_, err = s.MapEntry(ctx, at[0], at[1])
		wantError(t, err, dataplane.ErrNotFound)
	}
}

// countEntries returns how many entries of a map HAProxy counts.
func (s *subject) countEntries(t *testing.T, name string) int {
	t.Helper()
	maps, err := s.RuntimeMaps(t.Context())
	at := slices.IndexFunc(maps, func(m dataplane.RuntimeMap) bool { return m.Name == name })
	if err != nil || at < 0 {
		t.Fatalf("the worker has loaded %v, %v", maps, err)
	}
	return maps[at].Entries
}

func certificate(t *testing.T, name string, serial int64) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signed(t, name, serial, &key.PublicKey, key)
}

func ed25519Certificate(t *testing.T) []byte {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signed(t, "ed.example.com", 1, public, key)
}

func signed(t *testing.T, name string, serial int64, public, key any) []byte {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})...)
}
