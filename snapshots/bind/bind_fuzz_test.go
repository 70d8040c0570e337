package bind

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

// FuzzBind binds any configuration and crt-list to any endpoints. Bind either refuses them or keeps its
// promises.
func FuzzBind(f *testing.F) {
	f.Add([]byte("global\nbackend b\n  #hapsnap servers shop/web weight=3 -- check\n  #hapsnap servers shop/api slots=4\n"), []byte("certs/a.pem a.example\n"), []byte{3, 1})
	f.Add([]byte("listen l\n#hapsnap servers shop/web -- ca-file files/ca.pem crt certs/gone.pem"), []byte("certs/gone.pem x\n#\n"), []byte{255, 7, 9})
	f.Add([]byte("bind crt-list files/l.crtlist crt certs/a.pem map(maps/a.map)\n\n\n# global"), []byte(""), []byte{0})
	f.Add([]byte("\v#hapsnap servers\nglobal # x\n node y"), []byte("maps/a.map files/ca.pem"), []byte{1})
	f.Add([]byte("backend b\r\n\t#hapsnap\fservers shop/web \\\r\nglobal\r\nglobal"), []byte("\r\n"), []byte{1, 2, 3, 4})
	f.Add([]byte("userlist u\n#hapsnap users shop/a\n#hapsnap users shop/gone\nbackend b\ncookie hapsnap:secret/shop/a/key 'x' # \"\n"), []byte("certs/gone.pem [verify required ca-file certs/ca.pem] x\n"), []byte{1})
	f.Add([]byte("userlist u\nbackend b\n #hapsnap servers shop/web -- x hapsnap:secret/shop/gone/key \\ y\n"), []byte("certs/a.pem [ ca-file certs/ca.pem]\n"), []byte{1})
	a := snapshots.SecretName{Namespace: "shop", Name: "a"}
	live := Live{
		Fallback:     pemtest.SelfSigned(f, "fallback", pemtest.EdKey),
		Certificates: map[snapshots.SecretName][]byte{a: pemtest.SelfSigned(f, "a", pemtest.EdKey)},
		Users:        map[snapshots.SecretName][]htpasswd.User{a: {{Name: "alice", Hash: "abJnggxhB/yWI"}, {Name: "bob", Hash: "$1$abcdefgh$y6iHhJNbuC0xpbk0w9pm80"}}},
		Values:       map[SecretKey]string{{a, "key"}: "it's $x"},
	}
	f.Fuzz(func(t *testing.T, config, list, events []byte) {
		s := fuzzedSnapshot(config, list)
		directives, err := Directives(config)
		certificates := s.Manifest.Spec.Certificates
		if _, needErr := Needs(config, certificates); err != nil || needErr != nil {
			if _, err := Bind(s, Inputs{Live: live, Layout: testLayout}); err == nil {
				t.Fatal("a bad directive is bound")
			}
			return
		}
		slots := fuzzedSlots(directives, events, "10.0.0.")
		bound, err := Bind(s, Inputs{Live: live, Slots: slots, Layout: testLayout})
		if err != nil {
			return
		}
		checkBound(t, config, bound)
		elsewhere, err := Bind(s, Inputs{Live: live, Slots: fuzzedSlots(directives, events, "fd00::"), Layout: testLayout})
		if err != nil || elsewhere.Shape != bound.Shape || elsewhere.Node != bound.Node {
			t.Fatalf("other addresses make %s of %s: %v", elsewhere.Node, bound.Node, err)
		}
		if c := Classify(bound, elsewhere); c.Verdict == Reload || (c.Verdict == Nothing) != (len(bound.Servers) == 0 || c.File == "") {
			t.Fatalf("other addresses need %+v", c)
		}
		again, _ := Bind(s, Inputs{Live: live, Slots: slots, Layout: testLayout})
		if !reflect.DeepEqual(bound, again) {
			t.Fatalf("bound twice (-first +second):\n%s", cmp.Diff(bound, again))
		}
	})
}

func fuzzedSnapshot(config, list []byte) snapshots.Snapshot {
	return snapshots.Draft{
		Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: config}, {Path: "files/l.crtlist", Content: list}, {Path: "files/ca.pem", Content: []byte("ca")}, {Path: "maps/a.map", Content: []byte("a b\n")}},
		Certificates: []snapshots.CertificateRef{
			{File: "certs/ca.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "gone"}, Use: snapshots.UseCA},
			{File: "certs/fallback.pem"}, {File: "certs/a.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "a"}}, {File: "certs/gone.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "gone"}},
		},
	}.Number(1, snapshots.ID{})
}

// fuzzedSlots plays events on all services; addresses start with prefix.
func fuzzedSlots(directives []Directive, events []byte, prefix string) (slots Slots) {
	slots, _ = AssignSlots(nil, directives, nil, noon, time.Second)
	for i, event := range events[:min(len(events), 8)] {
		live := map[snapshots.ServicePort][]snapshots.Endpoint{}
		for n, d := range directives {
			for _, e := range endpointsOf(event+byte(n), event>>3) {
				e.Address = prefix + strings.TrimPrefix(e.Address, "10.0.0.")
				live[d.Service] = append(live[d.Service], e)
			}
		}
		slots, _ = AssignSlots(slots, directives, live, noon.Add(time.Duration(i)*time.Second/2), time.Second)
	}
	return slots
}

func checkBound(t *testing.T, config []byte, b Bound) {
	t.Helper()
	if left, err := Directives(b.Config); len(left) > 0 || err != nil {
		t.Fatalf("directives left: %v, %v", left, err)
	}
	if !bytes.HasSuffix(b.Config, []byte("\n# hapsnap end "+b.Node+"\n")) || bytes.Count(b.Config, []byte("\n    node "+b.Node+"\n")) != 1 {
		t.Fatalf("without node or end:\n%s", b.Config)
	}
	lines := bytes.Split(bytes.TrimSuffix(b.Config, []byte("\n")), []byte("\n"))
	if len(lines) != len(b.Lines) {
		t.Fatalf("%d lines, but %d are told", len(lines), len(b.Lines))
	}
	checkOrigins(t, config, b, lines)
	known := map[string]bool{}
	for _, f := range b.Files {
		if known[f.Path] || f.Source == "" {
			t.Fatalf("%s is there twice, or from nowhere", f.Path)
		}
		known[f.Path] = true
	}
}

// checkOrigins checks that every line of the snapshot is there, in order, and
// that each server is one line of its directive.
func checkOrigins(t *testing.T, config []byte, b Bound, lines [][]byte) {
	t.Helper()
	next, last := 0, 0
	for i, from := range b.Lines {
		switch {
		case from == 0:
			continue
		case from == last+1:
			last = from
		case from == last:
			if bytes.HasPrefix(lines[i], []byte("    user ")) {
				continue
			}
			s := b.Servers[next]
			next++
			if !strings.HasPrefix(string(lines[i]), fmt.Sprintf("    server %s %s", s.Name, s.appendAddress(nil))) {
				t.Fatalf("line %d is %q, not %v", i+1, lines[i], s)
			}
			if s.State != SlotReady && !bytes.HasSuffix(lines[i], []byte(" disabled")) {
				t.Fatalf("line %d is %q, but is in %s", i+1, lines[i], s.State)
			}
		default:
			t.Fatalf("line %d comes from line %d, after %d", i+1, from, last)
		}
	}
	want := bytes.Count(config, []byte("\n"))
	if len(config) > 0 && !bytes.HasSuffix(config, []byte("\n")) {
		want++
	}
	if last != want || next != len(b.Servers) {
		t.Fatalf("%d of %d lines and %d of %d servers are there", last, want, next, len(b.Servers))
	}
}
