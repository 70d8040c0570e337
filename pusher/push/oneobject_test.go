package push

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

// If one server cannot be set, the servers of other backends and the certificates still are: a backend belongs
// to one tenant.
func TestOneServerThatCannotBeSet(t *testing.T) {
	t.Parallel()
	in := func(backend string, s bind.Server) bind.Server {
		s.Backend = backend
		return s
	}
	for _, version := range []string{"v3.2.5", "v3.4.2"} {
		next := makeCertificates(t)
		file := bind.File{Kind: bind.CertificateFile, Name: "a.pem", Path: "/ssl/a.pem", Content: next()}
		before := boundLarge([]bind.Server{in("evil", spare("s1")), in("evil", spare("s2")), in("shop", spare("s1"))})
		after := boundLarge([]bind.Server{
			in("evil", server("s1", "10.0.0.66", bind.SlotReady)), in("evil", server("s2", "10.0.0.67", bind.SlotReady)), in("shop", server("s1", "10.0.0.1", bind.SlotReady)),
		})
		before.Files, after.Files = []bind.File{file}, []bind.File{{Kind: file.Kind, Name: file.Name, Path: file.Path, Content: next()}}
		f := newFake(t)
		f.version = version
		f.put(before)
		f.load()
		f.servers = asServers(before.Servers...)
		f.setting = func(backend, server string, _ dataplane.ServerChange) error {
			if backend == "evil" && server == "s1" {
				return &dataplane.Error{Op: "set runtime server", Status: http.StatusInternalServerError, Message: "no"}
			}
			return nil
		}
		f.obey()
		f.served = map[string]string{"/ssl/a.pem": string(file.Content)}
		i := Instance{API: f, ReloadTimeout: 20 * time.Millisecond, Poll: time.Millisecond}
		have := Running{Servers: before.Servers, Info: dataplane.RuntimeInfo{Node: f.node, PID: f.pid}, Certificates: Hashes(before)}
		have, err := i.Update(t.Context(), wanted(after), have)
		if err == nil {
			t.Errorf("%s: no error", version)
		}
		if shop := f.servers["shop"][0]; shop.Address != "10.0.0.1" || shop.AdminState != dataplane.StateReady {
			t.Errorf("%s: the server of another backend is %+v", version, shop)
		}
		if !slices.Contains(f.calls, "rotate a.pem") {
			t.Errorf("%s: the certificate was not replaced: %q", version, f.calls)
		}
		if len(have.Servers) != 3 || have.Servers[0] == after.Servers[0] || have.Servers[2] != after.Servers[2] {
			t.Errorf("%s: known of the worker is %+v, on disk %t", version, have.Servers, have.Persisted)
		}
		f.setting = func(string, string, dataplane.ServerChange) error { return nil }
		f.served["/ssl/a.pem"] = string(after.Files[0].Content)
		if have, err = i.Update(t.Context(), wanted(after), have); err != nil || !slices.Equal(have.Servers, after.Servers) {
			t.Errorf("%s: in the end: %+v, %v", version, have.Servers, err)
		}
	}
}

// HAProxy and Go write some IPv6 addresses differently, such as ::8.8.8.8 and ::808:808.
func TestAddressesInOtherWords(t *testing.T) {
	t.Parallel()
	for _, version := range []dataplanetest.API{dataplanetest.V32, dataplanetest.V34} {
		i := dataplanetest.Start(t, dataplanetest.Options{API: version})
		api, err := dataplane.New(dataplane.Options{URL: i.URL(), Username: "admin", Password: "secret"})
		if err != nil {
			t.Fatal(err)
		}
		to := Instance{API: api, ReloadTimeout: 20 * time.Second}
		before := whole(t, []bind.Server{spare("s1"), spare("s2")})
		if _, err := to.Push(t.Context(), before, nil, CertificateHashes{}); err != nil {
			t.Fatal(err)
		}
		var have Running
		for _, address := range []string{"::808:808", "::a00:5", "2001:db8::1:0:0:1", "64:ff9b::808:808"} {
			after := whole(t, []bind.Server{server("s1", address, bind.SlotReady), spare("s2")})
			if have, err = to.Update(t.Context(), wanted(after), have); err != nil || !slices.Equal(have.Servers, after.Servers) {
				t.Fatalf("%v, %s: %+v, %v", version, address, have.Servers, err)
			}
			if found, err := to.Inspect(t.Context(), after, have, 0); err != nil || slices.ContainsFunc(found.Faults, func(f Fault) bool { return !f.OnDisk() }) {
				t.Errorf("%v, %s: inspected: %v, %v", version, address, found.Faults, err)
			}
		}
	}
}

// whole returns servers in a configuration that HAProxy can load.
func whole(t *testing.T, servers []bind.Server) bind.Bound {
	t.Helper()
	b := boundLarge(servers)
	const head = "defaults\n    mode http\n    timeout connect 5s\n    timeout client 5s\n    timeout server 5s\nfrontend f\n    bind unix@"
	b.Config = bytes.Replace(b.Config, []byte("\nbackend "), []byte("\n"+head+filepath.Join(t.TempDir(), "f.sock")+"\n    default_backend web\nbackend "), 1)
	return b
}

// HAProxy reports no fingerprint for a certificate with some hundred names, and accepts such a certificate only
// with a reload. It is given to a worker once, so that workers are not replaced again and again.
func TestCertificateWithManyNames(t *testing.T) {
	t.Parallel()
	for _, version := range []dataplanetest.API{dataplanetest.V32, dataplanetest.V34} {
		i := dataplanetest.Start(t, dataplanetest.Options{API: version})
		api, err := dataplane.New(dataplane.Options{URL: i.URL(), Username: "admin", Password: "secret"})
		if err != nil {
			t.Fatal(err)
		}
		by := pemtest.NewAuthority(t)
		bound := func() bind.Bound {
			certificate, key := pemtest.PEMOf(t, by.Sign(t, "many.example", func(c *x509.Certificate) {
				for n := range 600 {
					c.DNSNames = append(c.DNSNames, fmt.Sprintf("name-number-%03d.tenant.shop.example", n))
				}
			}))
			b := whole(t, []bind.Server{spare("s1")})
			path := filepath.Join(i.Dirs.Certificates, "many.pem")
			b.Files = []bind.File{{Kind: bind.CertificateFile, Name: "many.pem", Path: path, Content: []byte(certificate + by.PEM + key)}}
			b.Config = bytes.Replace(b.Config, []byte("f.sock\n"), []byte("f.sock ssl crt "+path+"\n"), 1)
			return b
		}
		first := bound()
		to := Instance{API: api, ReloadTimeout: 20 * time.Second}
		if _, err := to.Push(t.Context(), first, nil, CertificateHashes{}); err != nil {
			t.Fatal(err)
		}
		second := bound()
		second.Config = first.Config
		workers := map[int]bool{}
		var have Running
		for n, b := range []bind.Bound{first, first, second, second, second} {
			if n == 1 {
				have = Running{} // of a new pusher
			}
			if have, err = to.Update(t.Context(), wanted(b), have); err != nil {
				t.Errorf("%v, %d: %v", version, n, err)
			}
			workers[have.Info.PID] = true
		}
		third := bound()
		third.Config = first.Config
		if have, err = to.Update(t.Context(), wanted(third), have); !errors.Is(err, errRotatesLater) {
			t.Errorf("%v: another one soon after: %v", version, err)
		}
		workers[have.Info.PID] = true
		if len(workers) > 2 {
			t.Errorf("%v: it took %d workers", version, len(workers))
		}
		served, err := tls.Dial("unix", strings.Fields(string(first.Config[bytes.Index(first.Config, []byte("unix@"))+5:]))[0], &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // what it is, is asked
		if err != nil {
			t.Fatal(err)
		}
		if got := served.ConnectionState().PeerCertificates[0].Raw; !bytes.Equal(got, certificatesIn(second.Files[0].Content)[0].Raw) {
			t.Errorf("%v: the worker serves another one", version)
		}
		_ = served.Close()
	}
}
