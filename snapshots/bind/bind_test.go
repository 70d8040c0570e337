package bind

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/tools/txtar"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd/htpasswdtest"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var testLayout = Layout{Maps: "/etc/haproxy/maps", Certificates: "/etc/haproxy/ssl", General: "/etc/haproxy/general"}

// bindCase is a file of testdata/bind: the files of a snapshot; "certificates",
// lines of file, Secret and use; "secrets" and "authorities", lines of Secret and
// kind of key; "expired", Secrets; "users", lines of Secret and htpasswd; "values", lines of Secret
// with key and value;
// "endpoints", lines of service, address and perhaps "draining"; and what is
// wanted under want/.
type bindCase struct {
	snapshot snapshots.Snapshot
	live     Live
}

func readBindCase(tb testing.TB, archive *txtar.Archive) bindCase {
	tb.Helper()
	var c bindCase
	var d snapshots.Draft
	c.live.Fallback = pemtest.SelfSigned(tb, "fallback", pemtest.ECKey())
	for _, f := range archive.Files {
		switch {
		case f.Name == "certificates":
			d.Certificates = readReferences(tb, f.Data)
		case f.Name == "secrets":
			c.live.Certificates = readSecrets(tb, f.Data)
		case f.Name == "expired":
			c.live.Expired = map[snapshots.SecretName]bool{}
			for _, name := range strings.Fields(string(f.Data)) {
				secret, err := snapshots.ParseSecretName(name)
				if err != nil {
					tb.Fatal(err)
				}
				c.live.Expired[secret] = true
			}
		case f.Name == "authorities":
			c.live.Authorities = readAuthorities(tb, f.Data)
		case f.Name == "users":
			c.live.Users = readUsers(tb, f.Data)
		case f.Name == "values":
			c.live.Values = readValues(tb, f.Data)
		case f.Name == "endpoints":
			c.live.Endpoints = readEndpoints(tb, f.Data)
		case f.Name == "no-fallback":
			c.live.Fallback = nil
		case f.Name == "same-fallback": // different in each run
			c.live.Fallback = pemtest.SelfSigned(tb, "fallback", pemtest.EdKey)
		case !strings.HasPrefix(f.Name, "want/"):
			d.Files = append(d.Files, snapshots.File{Path: f.Name, Content: f.Data})
		}
	}
	c.snapshot = d.Number(7, snapshots.ID{})
	return c
}

func readReferences(tb testing.TB, data []byte) (out []snapshots.CertificateRef) {
	tb.Helper()
	for line := range strings.Lines(string(data)) {
		file, secret, _ := strings.Cut(strings.TrimSpace(line), " ")
		secret, use, _ := strings.Cut(secret, " ")
		ref := snapshots.CertificateRef{File: file, Use: snapshots.Use(use)}
		if secret != "" {
			ref.Secret = must(snapshots.ParseSecretName(secret))(tb)
		}
		out = append(out, ref)
	}
	return out
}

func readSecrets(tb testing.TB, data []byte) map[snapshots.SecretName][]byte {
	tb.Helper()
	out := map[snapshots.SecretName][]byte{}
	for line := range strings.Lines(string(data)) {
		secret, kind, _ := strings.Cut(strings.TrimSpace(line), " ")
		content := []byte("broken")
		switch kind {
		case "ecdsa":
			content = pemtest.SelfSigned(tb, secret, pemtest.ECKey())
		case "ed25519":
			content = pemtest.SelfSigned(tb, secret, pemtest.EdKey)
		}
		out[must(snapshots.ParseSecretName(secret))(tb)] = content
	}
	return out
}

func readAuthorities(tb testing.TB, data []byte) map[snapshots.SecretName][]byte {
	tb.Helper()
	out := map[snapshots.SecretName][]byte{}
	for line := range strings.Lines(string(data)) {
		secret, kind, _ := strings.Cut(strings.TrimSpace(line), " ")
		content := []byte("broken")
		if kind == "ed25519" {
			content = must(pem.ParseAuthorities(pemtest.Certify(tb, secret, pemtest.EdKey, nil)))(tb)
		}
		out[must(snapshots.ParseSecretName(secret))(tb)] = content
	}
	return out
}

func readUsers(tb testing.TB, data []byte) map[snapshots.SecretName][]htpasswd.User {
	tb.Helper()
	out := map[snapshots.SecretName][]htpasswd.User{}
	for line := range strings.Lines(string(data)) {
		secret, entry, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, hash, _ := strings.Cut(entry, ":")
		key := must(snapshots.ParseSecretName(secret))(tb)
		out[key] = append(out[key], htpasswd.User{Name: name, Hash: hash})
	}
	return out
}

func readValues(tb testing.TB, data []byte) map[SecretKey]string {
	tb.Helper()
	out := map[SecretKey]string{}
	for line := range strings.Lines(string(data)) {
		word, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		key, ok, err := secretWordIn([]byte(SecretMark + word))
		if !ok || err != nil {
			tb.Fatal(word, err)
		}
		out[key] = value
	}
	return out
}

func readEndpoints(tb testing.TB, data []byte) map[snapshots.ServicePort][]snapshots.Endpoint {
	tb.Helper()
	out := map[snapshots.ServicePort][]snapshots.Endpoint{}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		at := must(netip.ParseAddrPort(words[1]))(tb)
		service := must(snapshots.ParseServicePort(words[0]))(tb)
		out[service] = append(out[service], snapshots.Endpoint{Address: at.Addr().String(), Port: int(at.Port()), Draining: len(words) > 2})
	}
	return out
}

func must[T any](v T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

// bind assigns slots to the case's endpoints, and binds it.
func (c bindCase) bind(layout Layout) (Bound, error) {
	directives, err := Directives(c.snapshot.Config())
	if err != nil {
		return Bound{}, err
	}
	slots, _ := AssignSlots(nil, directives, c.live.Endpoints, noon, time.Minute)
	return Bind(c.snapshot, Inputs{Live: c.live, Slots: slots, Layout: layout})
}

func TestBind(t *testing.T) {
	paths, err := filepath.Glob("testdata/bind/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive := must(txtar.ParseFile(path))(t)
			bound, err := readBindCase(t, archive).bind(testLayout)
			got := wanted(bound, err)
			if *update {
				rewrite(t, path, archive, got)
				return
			}
			want := map[string]string{}
			for _, f := range archive.Files {
				if name, ok := strings.CutPrefix(f.Name, "want/"); ok {
					want[name] = string(f.Data)
				}
			}
			if diff := cmp.Diff(want, asMap(got)); diff != "" {
				t.Errorf("bound (-want +got):\n%s", diff)
			}
		})
	}
}

// wanted renders what golden files hold of a bound snapshot.
func wanted(b Bound, err error) []txtar.File {
	if err != nil {
		return []txtar.File{{Name: "error", Data: []byte(err.Error() + "\n")}}
	}
	var numbered, files, servers, missing bytes.Buffer
	for i, line := range bytes.SplitAfter(b.Config, []byte{'\n'}) {
		if len(line) > 0 {
			fmt.Fprintf(&numbered, "%2d|%s", b.Lines[i], line)
		}
	}
	out := []txtar.File{{Name: snapshots.ConfigFile}}
	for _, f := range b.Files {
		fmt.Fprintf(&files, "%s %s is %s\n", f.Kind, f.Path, f.Source)
		if strings.HasSuffix(f.Source, ".crtlist") {
			out = append(out, txtar.File{Name: f.Source, Data: f.Content})
		}
	}
	for _, s := range b.Servers {
		fmt.Fprintf(&servers, "%s/%s %s weight %d %s\n", s.Backend, s.Name, s.appendAddress(nil), s.Weight, s.State)
	}
	for _, m := range b.Missing {
		fmt.Fprintln(&missing, m)
	}
	out[0].Data = numbered.Bytes()
	return append(out, txtar.File{Name: "files", Data: files.Bytes()},
		txtar.File{Name: "missing", Data: missing.Bytes()}, txtar.File{Name: "servers", Data: servers.Bytes()})
}

func asMap(files []txtar.File) map[string]string {
	out := map[string]string{}
	for _, f := range files {
		out[f.Name] = string(f.Data)
	}
	return out
}

func rewrite(t *testing.T, path string, archive *txtar.Archive, got []txtar.File) {
	t.Helper()
	kept := archive.Files[:0]
	for _, f := range archive.Files {
		if !strings.HasPrefix(f.Name, "want/") {
			kept = append(kept, f)
		}
	}
	for _, f := range got {
		kept = append(kept, txtar.File{Name: "want/" + f.Name, Data: f.Data})
	}
	archive.Files = kept
	if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
		t.Fatal(err)
	}
}

// draftOf is a snapshot of one haproxy.cfg.
func draftOf(config string) snapshots.Snapshot {
	return snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config)}}}.Number(1, snapshots.ID{})
}

func TestBindErrors(t *testing.T) {
	key := SlotKey{"b", snapshots.ServicePort{Namespace: "shop", Service: "web", Port: ""}}
	config := "backend b\n#hapsnap servers shop/web\n"
	for _, tt := range []struct {
		name     string
		snapshot snapshots.Snapshot
		binding  Inputs
		want     string
	}{
		{"no number", snapshots.Snapshot{}, Inputs{}, "bind: the snapshot has no number"},
		{"no configuration", snapshots.Draft{}.Number(1, snapshots.ID{}), Inputs{Layout: testLayout}, "there is no haproxy.cfg"},
		{"no layout", draftOf(""), Inputs{}, `directory "" of the instance is not absolute and plain`},
		{"a layout that needs quotes", draftOf(""), Inputs{Layout: Layout{"/a b", "/c", "/d"}}, `directory "/a b" of the instance`},
		{"no slots", draftOf(config), Inputs{Layout: testLayout}, "there are no slots for b shop/web"},
		{"a slot of a name", draftOf(config), Inputs{Layout: testLayout, Slots: Slots{key: {{"localhost", 80, SlotReady, noon}}}}, `slot 1 of b shop/web: "localhost" is not an IP address`},
		{"a slot in a zone", draftOf(config), Inputs{Layout: testLayout, Slots: Slots{key: {{"fe80::1%eth0\n", 80, SlotReady, noon}}}}, `is not an IP address`},
		{"a slot without a port", draftOf(config), Inputs{Layout: testLayout, Slots: Slots{key: {spareSlot, {"10.0.0.1", 0, SlotReady, noon}}}}, `slot 2 of b shop/web: 0 is not a port`},
		{"a slot in no state", draftOf(config), Inputs{Layout: testLayout, Slots: Slots{key: {{"10.0.0.1", 1, "up", noon}}}}, `"up" is not a state`},
		{"node is set in quotes", draftOf("'global'\n\"node\" a\n"), Inputs{Layout: testLayout}, "haproxy.cfg:2: node is set when a snapshot is bound"},
		{"node is set", draftOf("global\n node a\n"), Inputs{Layout: testLayout}, "haproxy.cfg:2: node is set when a snapshot is bound"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Bind(tt.snapshot, tt.binding); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := Bind(draftOf("#hapsnap x"), Inputs{Layout: testLayout}); !errors.As(err, new(*DirectiveError)) {
		t.Errorf("a bad directive: %v", err)
	}
}

// Live data may change everything that can be changed at run time. The shape stays the same.
func TestShapeIsOfWhatNeedsAReload(t *testing.T) {
	shape := func(config string, live Live) snapshots.Digest {
		t.Helper()
		d := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config)}, {Path: "maps/a.map", Content: []byte("x y\n")}}, Certificates: []snapshots.CertificateRef{{File: "certs/a.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "a"}}}}
		return must(bindCase{d.Number(1, snapshots.ID{}), live}.bind(testLayout))(t).Shape
	}
	const config = "backend b\n  #hapsnap servers shop/web weight=90 -- check\n  #hapsnap servers shop/api\n"
	a := snapshots.SecretName{Namespace: "shop", Name: "a"}
	web := snapshots.ServicePort{Namespace: "shop", Service: "web", Port: ""}
	base := Live{Endpoints: map[snapshots.ServicePort][]snapshots.Endpoint{web: {{Address: "10.0.0.1", Port: 80, Draining: false}, {Address: "10.0.0.2", Port: 80, Draining: false}}}, Certificates: map[snapshots.SecretName][]byte{a: pemtest.SelfSigned(t, "a", pemtest.ECKey())}}
	moved := Live{Endpoints: map[snapshots.ServicePort][]snapshots.Endpoint{web: {{Address: "::1", Port: 8080, Draining: false}, {Address: "10.0.0.3", Port: 81, Draining: true}}}, Certificates: map[snapshots.SecretName][]byte{a: pemtest.SelfSigned(t, "a", pemtest.RSAKey())}}
	want := shape(config, base)
	for name, got := range map[string]snapshots.Digest{
		"other addresses, states and certificates": shape(config, moved),
		"other weights": shape(strings.Replace(config, "90", "10", 1), base),
	} {
		if got != want {
			t.Errorf("%s make another shape", name)
		}
	}
	for name, got := range map[string]snapshots.Digest{
		"another option":     shape(strings.Replace(config, "check", "check inter 1s", 1), base),
		"another line":       shape("# hello\n"+config, base),
		"more slots":         shape(strings.Replace(config, "weight=90", "slots=9", 1), base),
		"no certificate":     shape(config, Live{Endpoints: base.Endpoints}),
		"an Ed25519 key":     shape(config, Live{Endpoints: base.Endpoints, Certificates: map[snapshots.SecretName][]byte{a: pemtest.SelfSigned(t, "a", pemtest.EdKey)}}),
		"servers of no slot": shape(strings.Replace(config, "#hapsnap servers shop/api", "server s2-1 192.0.2.1:1 disabled", 1), base),
	} {
		if got == want {
			t.Errorf("%s make no other shape", name)
		}
	}
}

// Content of Secrets that cannot be changed at run time changes the shape.
func TestShapeTellsSecrets(t *testing.T) {
	a := snapshots.SecretName{Namespace: "shop", Name: "a"}
	d := snapshots.Draft{
		Files:        []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("userlist u\n #hapsnap users shop/a\nbackend b\n dynamic-cookie-key hapsnap:secret/shop/a/key\n")}, {Path: "files/l.crtlist", Content: []byte("certs/fallback.pem [ca-file certs/ca.pem verify required] x\n")}},
		Certificates: []snapshots.CertificateRef{{File: "certs/fallback.pem"}, {File: "certs/ca.pem", Secret: a, Use: snapshots.UseCA}},
	}
	base := func() Live {
		return Live{
			Fallback: pemtest.SelfSigned(t, "fallback", pemtest.EdKey), Authorities: map[snapshots.SecretName][]byte{a: pemtest.Certify(t, "ca", pemtest.EdKey, nil)},
			Users: map[snapshots.SecretName][]htpasswd.User{a: {{Name: "alice", Hash: htpasswdtest.Hashes["DES"]}}}, Values: map[SecretKey]string{{a, "key"}: "one"},
		}
	}
	shape := func(edit func(*Live)) snapshots.Digest {
		t.Helper()
		live := base()
		edit(&live)
		return must(bindCase{d.Number(1, snapshots.ID{}), live}.bind(testLayout))(t).Shape
	}
	want := shape(func(*Live) {})
	seen := map[snapshots.Digest]string{}
	for name, edit := range map[string]func(*Live){
		"nothing":           func(*Live) {},
		"other authorities": func(l *Live) { l.Authorities[a] = pemtest.Certify(t, "other", pemtest.EdKey, nil) },
		"no authorities":    func(l *Live) { l.Authorities = nil },
		"another hash":      func(l *Live) { l.Users[a][0].Hash = htpasswdtest.Hashes["MD5"] },
		"another user": func(l *Live) {
			l.Users[a] = append(l.Users[a], htpasswd.User{Name: "bob", Hash: htpasswdtest.Hashes["DES"]})
		},
		"no users":      func(l *Live) { l.Users = nil },
		"another value": func(l *Live) { l.Values[SecretKey{a, "key"}] = "two" },
		"no value":      func(l *Live) { l.Values = nil },
	} {
		got := shape(edit)
		if (got == want) != (name == "nothing") {
			t.Errorf("%s: another shape is %v", name, got != want)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%s and %s make one shape", name, other)
		}
		seen[got] = name
	}
}

func TestNode(t *testing.T) {
	b := must(bindCase{snapshot: draftOf("global\nbackend b\n")}.bind(testLayout))(t)
	id, shape, err := ParseNode(b.Node)
	if err != nil || id != b.ID || shape != b.Shape.Short()[:8] {
		t.Errorf("%q is %s %s, %v; bound %s %s", b.Node, id, shape, err, b.ID, b.Shape)
	}
	for _, bad := range []string{"", "localhost", b.ID.String(), b.Node + "0", "r000001-0123456789_0123456g", "x" + b.Node} {
		if _, _, err := ParseNode(bad); err == nil {
			t.Errorf("%q names a snapshot", bad)
		}
	}
}

func TestSameNode(t *testing.T) {
	const node = "r000003-9f3ac01b2d_5f3c9a01"
	tests := map[string]struct {
		other string
		want  bool
	}{
		"the same":              {node, true},
		"another revision":      {"r000005-9f3ac01b2d_5f3c9a01", true},
		"another shape":         {"r000003-9f3ac01b2d_5f3c9a02", false},
		"other content":         {"r000003-9f3ac01b2e_5f3c9a01", false},
		"none of ours":          {"edge-1.example.com", false},
		"nothing":               {"", false},
		"not quite one of ours": {"r000003-9f3ac01b2d", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := SameNode(node, test.other); got != test.want {
				t.Errorf("SameNode(%q, %q) = %t", node, test.other, got)
			}
			if got := SameNode(test.other, node); got != test.want {
				t.Errorf("SameNode(%q, %q) = %t", test.other, node, got)
			}
		})
	}
	if !SameNode("bootstrap", "bootstrap") || SameNode("bootstrap", "other") {
		t.Error("names of other hands are compared as they are")
	}
}

func TestVerdictsAreRemembered(t *testing.T) {
	t.Parallel()
	var b Binder
	good, bad := pemtest.SelfSigned(t, "a.example", pemtest.EdKey), []byte("bad")
	for range 2 {
		if kind, err := b.certificateKind(good); kind != GeneralFile || err != nil {
			t.Errorf("good: %v, %v", kind, err)
		}
		if _, err := b.certificateKind(bad); !errors.Is(err, pem.ErrNoCertificate) {
			t.Errorf("bad: %v", err)
		}
	}
	judged := 0
	for range 2 {
		b.pairs.of([]byte("another"), func([]byte) verdict { judged++; return verdict{} })
	}
	if judged != 1 || len(b.pairs.known) != 3 {
		t.Errorf("judged %d times, remembers %d", judged, len(b.pairs.known))
	}
}

// A Binder that has seen other data, from several goroutines at once, binds to the same bytes as a new one.
func TestBinderBindsLikeBind(t *testing.T) {
	t.Parallel()
	s, in := large(t, 20)
	want, err := Bind(s, in)
	if err != nil {
		t.Fatal(err)
	}
	var b Binder
	b.pairs.of([]byte("another"), judgeKeyPair)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			got, err := b.Bind(s, in)
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Bound{})); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
	wg.Wait()
}
