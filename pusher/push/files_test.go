package push

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest/certinfo"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

// A certificate is removed only if it is known that neither the worker nor the file on disk uses it.
func TestCertificatesInUseStay(t *testing.T) {
	t.Parallel()
	const head = "global\n  node x\nfrontend f\n  bind :443 ssl "
	gone := errors.New("no answer")
	for name, test := range map[string]struct {
		disk   string
		list   string // the crt-list general/https-1.crtlist, "" for none
		loaded []string
		untold error
		stays  bool
		fails  bool
	}{
		"nothing uses it":                  {disk: head + "crt /ssl/b.pem\n", loaded: []string{"/ssl/b.pem"}},
		"the worker has it":                {disk: head + "crt /ssl/b.pem\n", loaded: []string{"/ssl/a.pem"}, stays: true},
		"the worker knows it by its name":  {disk: head + "crt /ssl/b.pem\n", loaded: []string{"a.pem"}, stays: true},
		"haproxy.cfg names it":             {disk: head + "crt /ssl/a.pem\n", stays: true},
		"haproxy.cfg names it in quotes":   {disk: head + "crt \"/ssl/a.pem\"\n", stays: true},
		"a crt-store names it":             {disk: "crt-store\n  load crt a.pem alias x\n", stays: true},
		"a crt-list names it":              {disk: head + "crt-list /general/https-1.crtlist\n", list: "/ssl/b.pem\n/ssl/a.pem [alpn h2] shop.example\n", stays: true},
		"a crt-list names it with options": {disk: head + "crt-list /general/https-1.crtlist\n", list: "/ssl/a.pem[alpn h2] shop.example\n", stays: true},
		"a crt-list names another":         {disk: head + "crt-list /general/https-1.crtlist\n", list: "/ssl/aa.pem\n"},
		"a crt-list cannot be read":        {disk: head + "crt-list /general/https-1.crtlist\n", stays: true, fails: true},
		"HAProxy loads the directory":      {disk: head + "crt /ssl/\n", stays: true},
		"the worker does not tell":         {disk: head + "crt /ssl/b.pem\n", untold: gone, stays: true, fails: true},
	} {
		f := newFake(t)
		f.disk, f.loaded, f.unlisted = "# _version=7\n"+test.disk, test.loaded, test.untold
		if test.list != "" {
			f.files[string(dataplane.General)+"/https-1.crtlist"] = test.list
		}
		i := Instance{API: f, Layout: bind.Layout{Maps: "/maps", Certificates: "/ssl", General: "/general"}}
		if _, err := i.Remove(t.Context(), []Stored{{Kind: bind.CertificateFile, Name: "a.pem"}}); (err != nil) != test.fails {
			t.Errorf("%s: error is %v", name, err)
		}
		if deletes := slices.Equal(f.calls, []string{"delete a.pem"}); deletes == test.stays || !deletes && len(f.calls) > 0 {
			t.Errorf("%s: called %q", name, f.calls)
		}
	}
}

// A held certificate stays on an instance that has any version of it. On an instance without it, it is created.
func TestHeldCertificateStays(t *testing.T) {
	t.Parallel()
	bound := bind.Bound{Files: []bind.File{{Kind: bind.CertificateFile, Name: "a.pem", Path: "/ssl/a.pem", Content: []byte("fallback"), Held: true}}}
	for name, has := range map[string]bool{"there": true, "not there": false} {
		f := newFake(t)
		if has {
			f.files[string(dataplane.Certificates)+"/a.pem"] = "the right one"
		}
		i := Instance{API: f, Layout: bind.Layout{Maps: "/maps", Certificates: "/ssl", General: "/general"}}
		if err := i.upload(t.Context(), bound.Files, CertificateHashes{"/ssl/a.pem": {1}}, readsFiles); err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{true: "the right one", false: "fallback"}[has]
		if got := f.files[string(dataplane.Certificates)+"/a.pem"]; got != want {
			t.Errorf("%s: it is %q", name, got)
		}
		f.calls = nil
		if _, err := i.rotate(t.Context(), bound, Running{}); err != nil || len(f.calls) > 0 {
			t.Errorf("%s: rotated: %q, %v", name, f.calls, err)
		}
		if faults, err := i.inspectFiles(t.Context(), bound.Files, nil, 0); err != nil || len(faults) > 0 {
			t.Errorf("%s: faults %v, %v", name, faults, err)
		}
	}
	if known := Hashes(bound); len(known) > 0 {
		t.Errorf("it is known: %v", known)
	}
}

// A certificate is written only if it is missing or different, as far as the API can tell: its list has no
// contents. A certificate that a push wrote is compared before HAProxy reads it again. If the API describes a
// certificate as wanted but no pusher wrote it, it stays, and counts as unknown until the worker reports what
// it serves.
func TestCertificatesAreWrittenOnce(t *testing.T) {
	t.Parallel()
	const key = string(dataplane.Certificates) + "/a.pem"
	first, second := nameless(t, time.Minute), nameless(t, time.Hour)
	damaged := corrupted(t, first)
	files := []bind.File{{Kind: bind.CertificateFile, Name: "a.pem", Path: "/ssl/a.pem", Content: []byte(first)}}
	known := func(content string) CertificateHashes { return CertificateHashes{"/ssl/a.pem": sum([]byte(content))} }
	for name, tt := range map[string]struct {
		has   string
		known CertificateHashes
		then  reading
		calls []string
	}{
		"nothing is there":                             {"", CertificateHashes{}, readsFiles, []string{"create a.pem"}},
		"it is there, and nobody knows":                {first, CertificateHashes{}, readsFiles, nil},
		"it is there, nobody knows, and HAProxy stays": {first, CertificateHashes{}, keepsFiles, nil},
		"it was written":                               {first, known(first), readsFiles, nil},
		"another one was written":                      {second, known(second), keepsFiles, []string{"replace a.pem"}},
		"another one is there, and nobody knows":       {second, CertificateHashes{}, keepsFiles, []string{"replace a.pem"}},
		"somebody replaced what was written":           {second, known(first), readsFiles, []string{"replace a.pem"}},
		"what was written is damaged":                  {damaged, known(first), readsFiles, []string{"replace a.pem"}},
		"somebody removed what was written":            {"", known(first), readsFiles, []string{"create a.pem"}},
		"what was written, and HAProxy stays":          {second, known(first), keepsFiles, nil},
	} {
		f := newFake(t)
		if tt.has != "" {
			f.files[key] = tt.has
		}
		i := Instance{API: f, Layout: bind.Layout{Maps: "/maps", Certificates: "/ssl", General: "/general"}}
		knows := len(tt.known) > 0 || len(tt.calls) > 0
		for again := range 2 {
			if err := i.upload(t.Context(), files, tt.known, tt.then); err != nil {
				t.Fatal(err)
			}
			if again == 1 {
				tt.calls = nil
			}
			if !slices.Equal(f.calls, tt.calls) {
				t.Errorf("%s: called %q, want %q", name, f.calls, tt.calls)
			}
			f.calls = nil
		}
		if got := f.files[key]; got != first && (tt.then == readsFiles || len(tt.known) == 0) {
			t.Errorf("%s: there is another one", name)
		}
		if !maps.Equal(tt.known, map[bool]CertificateHashes{true: known(first), false: {}}[knows]) {
			t.Errorf("%s: known afterwards is %x", name, tt.known)
		}
	}
}

// nameless returns a certificate without a common name, with the authority that signed it and its key. The API
// finds no leaf in such a chain, and so reports no serial number. The age moves its dates.
func nameless(t *testing.T, age time.Duration) string {
	t.Helper()
	by := pemtest.NewAuthority(t)
	certificate, key := pemtest.PEMOf(t, by.Sign(t, "", func(c *x509.Certificate) {
		c.DNSNames, c.NotAfter = []string{"shop.example"}, c.NotAfter.Add(-age)
	}))
	return certificate + by.PEM + key
}

// corrupted returns a chain of the same length whose second certificate cannot be read.
func corrupted(t *testing.T, chain string) string {
	t.Helper()
	const begin = "-----BEGIN CERTIFICATE-----\n"
	at := strings.LastIndex(chain, begin) + len(begin)
	out := chain[:at] + "AAAA" + chain[at+4:]
	if _, err := certinfo.Of([]byte(out)); err == nil || len(out) != len(chain) {
		t.Fatal("it can be read")
	}
	return out
}

// An inspection finds exactly the certificates that differ on disk or in the worker. If the API reports little
// about a certificate, that makes no difference. After some repairs without effect, nothing on that instance is
// repaired for an hour.
func TestInspectionSeesCertificates(t *testing.T) {
	t.Parallel()
	wanted, other := nameless(t, time.Minute), nameless(t, time.Hour)
	for name, tt := range map[string]struct {
		disk, worker, known string
		what                string // the finding, "" for none
	}{
		"all is well":                {wanted, wanted, wanted, ""},
		"the worker loaded none":     {wanted, "", wanted, ""},
		"another one is on disk":     {other, wanted, wanted, "file a.pem"},
		"that on disk is damaged":    {corrupted(t, wanted), wanted, wanted, "file a.pem"},
		"another one is served":      {wanted, other, wanted, "certificate a.pem"},
		"another one will be served": {wanted, other, other, ""}, // the next update changes it
	} {
		f := newFake(t)
		f.files[string(dataplane.Certificates)+"/a.pem"], f.served = tt.disk, map[string]string{"/ssl/a.pem": tt.worker}
		want := bound(1, nil)
		want.Files = []bind.File{{Kind: bind.CertificateFile, Name: "a.pem", Path: "/ssl/a.pem", Content: []byte(wanted)}}
		f.put(want)
		f.load()
		i := Instance{API: f, Layout: bind.Layout{Maps: "/maps", Certificates: "/ssl", General: "/general"}}
		have := Running{Info: dataplane.RuntimeInfo{PID: f.pid, Node: f.node}, Disk: digestOf(dataplane.Split([]byte(f.disk))), Certificates: CertificateHashes{"/ssl/a.pem": sum([]byte(tt.known))}}
		found, err := i.Inspect(t.Context(), want, have, 0)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		switch {
		case tt.what == "" && len(found.Faults) > 0, tt.what != "" && (len(found.Faults) != 1 || found.Faults[0].What != tt.what):
			t.Errorf("%s: faults %v, want %q", name, found.Faults, tt.what)
		case tt.what == "certificate a.pem" && (len(found.Running.Certificates) > 0 || len(have.Certificates) == 0 || found.Faults[0].OnDisk()):
			t.Errorf("%s: what is known of the worker is %v, was %v", name, found.Running.Certificates, have.Certificates)
		}
	}
}

func TestCheckDescriptors(t *testing.T) {
	t.Parallel()
	want := bind.Descriptors{Checks: 30000, Listeners: 3} // needs 30203
	hard := want
	hard.HardLimit = 20000
	shipped := bind.Descriptors{HardLimit: 100000}
	for name, test := range map[string]struct {
		want, runs bind.Descriptors
		process    dataplane.Process
		says       string // "" if it fits
	}{
		"it fits":            {want, shipped, dataplane.Process{Sockets: 99999}, ""},
		"it does not":        {want, shipped, dataplane.Process{Sockets: 19999}, "a worker needs at least 30203 (30000 for servers that may be checked, 3 for listeners, 2 for each of 100 connections), and HAProxy may open 20000; raise"},
		"it just fits":       {want, shipped, dataplane.Process{Sockets: 30202}, ""},
		"one is missing":     {want, shipped, dataplane.Process{Sockets: 30201}, "may open 30202"},
		"before the first":   {want, bind.Descriptors{}, dataplane.Process{Sockets: 19999}, "may open 20000"},
		"nothing is told":    {want, shipped, dataplane.Process{}, ""},
		"its own limit":      {hard, shipped, dataplane.Process{Sockets: 99999}, "fd-hard-limit is 20000"},
		"maxconn hides it":   {want, bind.Descriptors{MaxConn: 200}, dataplane.Process{Sockets: 429}, ""},
		"a hard limit does":  {want, bind.Descriptors{HardLimit: 1000}, dataplane.Process{Sockets: 999}, ""},
		"maxconn is counted": {bind.Descriptors{MaxConn: 20000}, shipped, dataplane.Process{Sockets: 19999}, "at least 40000"},
	} {
		err := checkDescriptors(test.want, test.runs, test.process)
		switch {
		case test.says == "" && err != nil, test.says != "" && err == nil:
			t.Errorf("%s: %v", name, err)
		case err != nil && (!errors.Is(err, errDescriptors) || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: %v", name, err)
		}
	}
}

// If an instance may not open enough files, that is reported before anything changes there. The snapshot is not
// at fault.
func TestPushSaysThatDescriptorsAreTooFew(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.process = dataplane.Process{Sockets: 599}
	want := bound(1, []bind.Server{server("s1", "10.0.0.1", bind.SlotReady)})
	var many strings.Builder
	for n := range 600 {
		fmt.Fprintf(&many, "    server x%d 10.0.0.1:80 check\n", n)
	}
	want.Config = append(want.Config, many.String()...)
	f.calls = nil
	_, err := Instance{API: f, ReloadTimeout: time.Second}.Push(t.Context(), want, nil, CertificateHashes{})
	if !errors.Is(err, errDescriptors) || errors.Is(err, ErrRefused) || len(f.calls) > 0 {
		t.Errorf("error %v, calls %q", err, f.calls)
	}
}

// slow is an instance whose API takes its time for each certificate.
type slow struct{ *fake }

func (s slow) RotateCertificate(ctx context.Context, name string, pem []byte) (bool, string, error) {
	<-time.After(300 * time.Millisecond)
	s.served["/ssl/"+name] = string(pem)
	return s.fake.RotateCertificate(ctx, name, pem)
}

// When many certificates are renewed at once, endpoints do not wait for all of them.
func TestEndpointsAmidManyCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.version, f.served = "v3.4.2", map[string]string{}
		at := func(address string) bind.Bound {
			return bound(1, []bind.Server{server("s1", address, bind.SlotReady)})
		}
		f.put(at("10.0.0.1"))
		f.load()
		f.servers = asServers(at("10.0.0.1").Servers...)
		have := Running{Servers: at("10.0.0.1").Servers, Info: dataplane.RuntimeInfo{Node: f.node, PID: f.pid}, Certificates: CertificateHashes{}}
		var files []bind.File
		content := nameless(t, time.Minute)
		for n := range 20 {
			name := fmt.Sprintf("%02d.pem", n)
			files = append(files, bind.File{Kind: bind.CertificateFile, Name: name, Path: "/ssl/" + name, Content: []byte(content)})
			have.Certificates["/ssl/"+name] = sum([]byte("old"))
		}
		i := Instance{API: slow{f}, Layout: bind.Layout{Maps: "/maps", Certificates: "/ssl", General: "/general"}, ReloadTimeout: time.Second}
		for turn := 1; ; turn++ {
			next := at(fmt.Sprintf("10.0.0.%d", turn+1))
			next.Files = append(next.Files, files...)
			want := wanted(next)
			want.Certificates = Hashes(next)
			began := time.Now()
			var err error
			if have, err = i.Update(t.Context(), want, have); err != nil || !have.Has(next.Servers) {
				t.Fatalf("turn %d: servers are %+v, and the error is %v", turn, have.Servers, err)
			}
			if took := time.Since(began); took > rotatesFor+time.Second {
				t.Fatalf("turn %d took %s", turn, took)
			}
			if want.Certificates.In(have.Certificates) {
				return
			}
			if turn == len(files) {
				t.Fatal("they are never all replaced")
			}
		}
	})
}
