package instancetest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/charts/charttest"
)

// patience is how long HAProxy may take for what it does at once.
const patience = 20 * time.Second

// A pod is what the containers of an instance share.
type pod struct {
	config, files, api, credentials, run string
	env                                  []string
}

// newPod renders the scripts into folders of a test.
func newPod(t *testing.T, values ...string) *pod {
	t.Helper()
	text, err := charttest.Template(t, "helm", "edge", append(values, "--show-only", "templates/haproxy/config.yaml", "--set", "haproxy.dataplane.existingSecret=dataplane,certManager.enabled=true")...)
	if err != nil {
		t.Fatal(err)
	}
	data, _, err := unstructured.NestedStringMap(charttest.Objects(t, text)[0].Object, "data")
	if err != nil || len(data) != 4 {
		t.Fatalf("files %v: %v", data, err)
	}
	root := t.TempDir()
	p := &pod{config: filepath.Join(root, "config"), files: filepath.Join(root, "files"), api: filepath.Join(root, "api"), credentials: filepath.Join(root, "credentials"), run: filepath.Join(root, "run")}
	for _, dir := range []string{p.config, p.files, p.api, p.credentials, p.run} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range data {
		p.write(t, filepath.Join(p.files, name), content)
	}
	haproxy, err := exec.LookPath(cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		t.Fatal(err)
	}
	p.env = []string{
		"PATH=" + os.Getenv("PATH"), "CONFIG_DIR=" + p.config, "FILES_DIR=" + p.files, "API_DIR=" + p.api, "CREDENTIALS_DIR=" + p.credentials,
		"MASTER_SOCKET=" + p.socket(), "HAPROXY=" + haproxy, "DATAPLANEAPI=cat", "API_PORT=5555", "POD_NAME=edge-0", "POD_IP=10.244.0.9",
	}
	return p
}

func (p *pod) socket() string { return filepath.Join(p.run, "master.sock") }

func (p *pod) write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// script is a command that runs one of the scripts, and ends with this test.
func (p *pod) script(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	c := exec.Command("/bin/sh", filepath.Join(p.files, name))
	c.Env = p.env
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c
}

func (p *pod) prepare(t *testing.T) {
	t.Helper()
	if out, err := p.script(t, "prepare.sh").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// HAProxy takes the first configuration, which has a bound of connections, and listens for
// probes where later ones will.
func TestFirstConfiguration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ addresses, want string }{
		"default":  {"", "    bind *:8404\n"},
		"variable": {`["${HOST_IP}"]`, "    bind \"${HOST_IP}:8404\"\n"},
		"both":     {`["::"]`, "    bind *:8404\n    bind [::]:8404 v6only\n"},
		"listed":   {`["192.0.2.1","2001:db8::1"]`, "    bind 192.0.2.1:8404\n    bind [2001:db8::1]:8404\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var values []string
			if c.addresses != "" {
				values = []string{"--set-json", "compiler.config.bind.addresses=" + c.addresses}
			}
			p := newPod(t, values...)
			p.prepare(t)
			path := filepath.Join(p.config, "haproxy.cfg")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"\n    maxconn 1000\n", "\nfrontend status\n" + c.want + "    monitor-uri /healthz\n"} {
				if !strings.Contains(string(text), want) {
					t.Errorf("no %q in\n%s", want, text)
				}
			}
			check := exec.CommandContext(t.Context(), cmp.Or(os.Getenv("HAPROXY"), "haproxy"), "-c", "-f", path)
			check.Env = append(os.Environ(), "HOST_IP=192.0.2.9")
			if out, err := check.CombinedOutput(); err != nil || strings.Contains(string(out), "WARNING") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// A pod that is set up again keeps the configuration that it ran.
func TestPrepareKeepsWhatRan(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	p.prepare(t)
	path := filepath.Join(p.config, "haproxy.cfg")
	p.write(t, path, "# of a snapshot\n")
	p.prepare(t)
	if text, err := os.ReadFile(path); err != nil || string(text) != "# of a snapshot\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// SIGTERM, the signal of most images, and SIGUSR1 let requests finish, refuse others, and
// end HAProxy and its container without a fault.
func TestHAProxyEndsSoftly(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGUSR1} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			arrived, answer := make(chan struct{}), make(chan struct{})
			backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				close(arrived)
				<-answer
				fmt.Fprintln(w, "served")
			}))
			t.Cleanup(backend.Close)
			release := sync.OnceFunc(func() { close(answer) })
			t.Cleanup(release) // before the backend is closed, which waits
			p := newPod(t)
			address := free(t)
			p.write(t, filepath.Join(p.config, "haproxy.cfg"), fmt.Sprintf(`global
    maxconn 100
    hard-stop-after 60s
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
listen web
    bind %s
    server backend %s
`, address, backend.Listener.Addr()))
			c, ended := p.start(t, "haproxy.sh")
			eventually(t, "HAProxy listens", func() bool { return dial(address) == nil })
			eventually(t, "the master socket", func() bool { return exists(p.socket()) })

			served := make(chan string, 1)
			go func() { served <- get(address) }()
			select {
			case <-arrived:
			case got := <-served:
				t.Fatalf("the request got %q", got)
			}
			if err := c.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			eventually(t, "new connections are refused", func() bool { return errors.Is(dial(address), syscall.ECONNREFUSED) })
			select {
			case err := <-ended:
				t.Fatalf("the container ended under a request: %v", err)
			default:
			}
			release()
			if got := <-served; got != "served\n" {
				t.Errorf("the request got %q", got)
			}
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("the container ended with %v", err)
				}
			case <-time.After(patience):
				t.Error("the container did not end")
			}
		})
	}
}

// A HAProxy that fails ends its container with a fault, so that it is started again.
func TestHAProxyThatFails(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	p.write(t, filepath.Join(p.config, "haproxy.cfg"), "nonsense\n")
	p.write(t, p.socket(), "of the one before")
	if err := p.script(t, "haproxy.sh").Run(); err == nil {
		t.Error("it ended well")
	}
	if exists(p.socket()) {
		t.Error("the socket of the HAProxy before is there")
	}
}

// The Dataplane API gets its file, with any password, once HAProxy's socket is there.
func TestAPIIsConfigured(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ password, tls string }{
		"plain":    {"s3cr3t", ""},
		"tls":      {"s3cr3t\n", "/etc/tls"},
		"hostile":  {`it's "a" $HOME \n: #{}` + "`id`", ""},
		"a number": {"0123", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			p.write(t, filepath.Join(p.credentials, "username"), "hapsnap")
			p.write(t, filepath.Join(p.credentials, "password"), c.password)
			if c.tls != "" {
				p.env = append(p.env, "TLS_DIR="+c.tls)
			}
			p.env = append(p.env, "DATAPLANEAPI=echo")
			_, ended := p.start(t, "dataplaneapi.sh")
			path := filepath.Join(p.api, "dataplaneapi.yml")
			eventually(t, "the file", func() bool {
				text, _ := os.ReadFile(path)
				return strings.HasSuffix(string(text), "restart_cmd: /bin/false\n")
			})
			select {
			case err := <-ended:
				t.Fatalf("the API did not wait for the socket: %v", err)
			default:
			}
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", p.socket())
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			checkAPI(t, path, strings.TrimSuffix(c.password, "\n"), c.tls)
		})
	}
}

// checkAPI fails if the API's file does not say what the Fleet expects.
func checkAPI(t *testing.T, path, password, tls string) {
	t.Helper()
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
	if tls == "" && (api.Host != "10.244.0.9" || api.Port != 5555) {
		t.Errorf("%+v", api)
	}
	if tls != "" && (len(api.Scheme) != 1 || api.TLS.Host != "10.244.0.9" || api.TLS.Port != 5555 || api.TLS.Key != tls+"/tls.key" || api.Port != 0) {
		t.Errorf("%+v", api)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// start starts a script, and tells how it ended.
func (p *pod) start(t *testing.T, name string) (*exec.Cmd, <-chan error) {
	t.Helper()
	c := p.script(t, name)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended, gone := make(chan error, 1), make(chan struct{})
	go func() {
		ended <- c.Wait()
		close(gone)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		<-gone
	})
	return c, ended
}

func get(address string) string {
	response, err := http.Get("http://" + address)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

func dial(address string) error {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// free returns an address that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
