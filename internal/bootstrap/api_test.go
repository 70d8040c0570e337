package bootstrap

import (
	"bufio"
	"crypto/x509"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/internal/credentials"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/internal/testing/loopback"
)

type apiCase struct{ password, tls string }

// The Dataplane API gets its file, with any password, once HAProxy's socket exists. For a new password it is
// started again. It ends with the signal that its container gets.
func TestAPIIsConfigured(t *testing.T) {
	t.Parallel()
	certificates := t.TempDir()
	writePair(t, certificates)
	for name, c := range map[string]apiCase{
		"plain":    {"s3cr3t", ""},
		"tls":      {"s3cr3t\n", certificates},
		"hostile":  {`it's "a" $HOME \n: #{}` + "`id`", ""},
		"a number": {"0123", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newAPIPod(t, c)
			path := filepath.Join(p.dir, "api", "dataplaneapi.yml")
			eventually.Holds(t, "a probe of the port succeeds", p.connects)
			if _, err := os.Stat(path); err == nil {
				t.Error("the API did not wait for the socket")
			}
			p.listen(t)
			started := filepath.Join(p.dir, "started")
			eventually.Holds(t, "the API starts", func() bool { return count(t, started) == 1 })
			p.checkAPI(t, c)
			if name != "plain" {
				return
			}
			write(t, filepath.Join(p.dir, "password"), "another")
			eventually.Holds(t, "the API starts again", func() bool { return count(t, started) == 2 })
			p.checkAPI(t, apiCase{"another", ""})
			p.signal(t, syscall.SIGTERM)
			if err := <-p.ended; err != nil {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// A container whose Secret is empty says so, and waits until it is filled. It accepts connections on the port,
// so that a probe does not end it. If it is told to end meanwhile, it ends.
func TestAPIWaitsForItsPassword(t *testing.T) {
	t.Parallel()
	for name, filled := range map[string]bool{"filled": true, "told to end": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newAPIPod(t, apiCase{" \n", ""})
			p.listen(t)
			eventually.Holds(t, "it says what it waits for", func() bool {
				text, _ := os.ReadFile(p.log)
				return strings.Contains(string(text), "waiting for credentials: "+p.dir+"/password is empty")
			})
			eventually.Holds(t, "a probe of the port succeeds", p.connects)
			if filled {
				write(t, filepath.Join(p.dir, "password"), "s3cr3t")
				eventually.Holds(t, "the API starts", func() bool { return count(t, filepath.Join(p.dir, "started")) == 1 })
				p.checkAPI(t, apiCase{"s3cr3t", ""})
				if p.connects() {
					t.Error("the API cannot have its port")
				}
			}
			p.signal(t, syscall.SIGTERM)
			if err := <-p.ended; err != nil {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// For a renewed certificate the API is started again, for a broken one it is not.
func TestAPIKeepsItsCertificate(t *testing.T) {
	t.Parallel()
	certificates := t.TempDir()
	writePair(t, certificates)
	p := newAPIPod(t, apiCase{"s3cr3t", certificates})
	p.listen(t)
	started := filepath.Join(p.dir, "started")
	eventually.Holds(t, "the API starts", func() bool { return count(t, started) == 1 })
	write(t, filepath.Join(certificates, "tls.crt"), "broken")
	write(t, filepath.Join(p.dir, "password"), "an0ther") // which is not taken up either
	eventually.Holds(t, "it says what is broken", func() bool {
		text, _ := os.ReadFile(p.log)
		return strings.Contains(string(text), "goes on with the credentials that it has: the API could not start with tls.crt and tls.key in "+certificates)
	})
	if n := count(t, started); n != 1 {
		t.Errorf("the API started %d times", n)
	}
	writePair(t, certificates)
	eventually.Holds(t, "the API starts again", func() bool { return count(t, started) == 2 })
}

func writePair(t *testing.T, dir string) {
	t.Helper()
	certificate, key, err := credentials.SelfSigned(x509.Certificate{NotAfter: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "tls.crt"), string(certificate))
	write(t, filepath.Join(dir, "tls.key"), string(key))
}

// While a password is being renewed, the API accepts the present one and the next one.
func TestAPITakesTheNextPassword(t *testing.T) {
	t.Parallel()
	p := newAPIPod(t, apiCase{"s3cr3t", ""})
	p.listen(t)
	started := filepath.Join(p.dir, "started")
	eventually.Holds(t, "the API starts", func() bool { return count(t, started) == 1 })
	write(t, filepath.Join(p.dir, "next-username"), "hapsnap-2")
	write(t, filepath.Join(p.dir, "next-password"), "an0ther")
	path := filepath.Join(p.dir, "api", "dataplaneapi.yml")
	eventually.Holds(t, "it takes both", func() bool {
		text, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(text), "- name: 'hapsnap'\n    password: 's3cr3t'\n    insecure: true\n  - name: 'hapsnap-2'\n    password: 'an0ther'\n    insecure: true\n")
	})
	eventually.Holds(t, "the API starts again", func() bool { return count(t, started) == 2 })
}

// newAPIPod starts the API's container. The fake API records that it started, and waits.
func newAPIPod(t *testing.T, c apiCase) *pod {
	t.Helper()
	p := &pod{dir: t.TempDir(), log: filepath.Join(t.TempDir(), "log"), api: loopback.Address()}
	write(t, filepath.Join(p.dir, "username"), "hapsnap")
	write(t, filepath.Join(p.dir, "password"), c.password)
	api := filepath.Join(p.dir, "dataplaneapi")
	write(t, api, "#!/bin/sh\ntrap 'exit 0' TERM\necho started >>"+filepath.Join(p.dir, "started")+"\nwhile :; do sleep 0.05; done\n")
	if err := os.Chmod(api, 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(p.api)
	p.process = exec.Command("/proc/self/exe", "dataplaneapi")
	p.process.Env = append(os.Environ(), asProgram+"=1", "MASTER_SOCKET="+p.socket(), "DATAPLANEAPI="+api, "CREDENTIALS_DIR="+p.dir, "API_DIR="+filepath.Join(p.dir, "api"),
		"TLS_DIR="+c.tls, "POD_IP="+host, "API_PORT="+port, "POD_NAME=edge-0")
	p.launch(t)
	return p
}

// listen answers on the socket like a HAProxy that has no worker at first.
func (p *pod) listen(t *testing.T) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", p.socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	answers := []string{"Can't find the target CLI!\n", "# pxname,svname,scur,status,\nstatus,FRONTEND,0,OPEN,\n"}
	go func() {
		for n := 0; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(conn).ReadString('\n') // what is asked
			if n == 0 {
				if _, err := os.Stat(filepath.Join(p.dir, "started")); err == nil {
					t.Error("the API did not wait for a worker")
				}
			}
			_, _ = io.WriteString(conn, answers[min(n, 1)])
			_ = conn.Close()
		}
	}()
}

func count(t *testing.T, path string) int {
	t.Helper()
	text, _ := os.ReadFile(path) // absent: none
	return strings.Count(string(text), "started\n")
}

// connects reports whether the API's port accepts connections, like a kubelet's probe.
func (p *pod) connects() bool {
	conn, err := net.DialTimeout("tcp", p.api, limit)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// checkAPI fails if the API's file does not say what the Fleet expects.
func (p *pod) checkAPI(t *testing.T, c apiCase) {
	t.Helper()
	password, tls := strings.TrimSuffix(c.password, "\n"), c.tls
	path := filepath.Join(p.dir, "api", "dataplaneapi.yml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Dataplaneapi struct {
			Host   string
			Port   int
			Scheme []string
			TLS    struct {
				Host string `json:"tls_host"`
				Port int    `json:"tls_port"`
				Key  string `json:"tls_key"`
			}
			User []struct {
				Name, Password string
				Insecure       bool
			}
		}
	}
	if err := yaml.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	api := got.Dataplaneapi
	if len(api.User) != 1 || api.User[0].Name != "hapsnap" || api.User[0].Password != password || !api.User[0].Insecure {
		t.Errorf("users: %+v", api.User)
	}
	host, port, _ := net.SplitHostPort(p.api)
	if tls == "" && (api.Host != host || strconv.Itoa(api.Port) != port) {
		t.Errorf("%+v", api)
	}
	if tls != "" && (len(api.Scheme) != 1 || api.TLS.Host != host || strconv.Itoa(api.TLS.Port) != port || api.TLS.Key != tls+"/tls.key" || api.Port != 0) {
		t.Errorf("%+v", api)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}
