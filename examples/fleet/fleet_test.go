// Package fleet_test tests the files that docs/how-to/instances.md shows. The files of both folders agree with
// each other. A real Dataplane API, if there is one, runs with them, survives a push, and starts again.
package fleet_test

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/internal/testing/loopback"
	"github.com/hapsnap/hapsnap/internal/testing/output"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/preflight"
)

// settings are the tested settings of a dataplaneapi.yml.
type settings struct {
	API struct {
		Port  int `json:"port"`
		Users []struct {
			Name     string `json:"name"`
			Password string `json:"password"`
		} `json:"user"`
		Transaction struct {
			Dir     string `json:"transaction_dir"`
			Backups int    `json:"backups_number"`
		} `json:"transaction"`
		Resources struct {
			Maps         string `json:"maps_dir"`
			Certificates string `json:"ssl_certs_dir"`
			General      string `json:"general_storage_dir"`
		} `json:"resources"`
	} `json:"dataplaneapi"`
	HAProxy struct {
		Config string `json:"config_file"`
		Binary string `json:"haproxy_bin"`
		Master bool   `json:"master_worker_mode"`
		Socket string `json:"master_runtime"`
		Reload struct {
			Delay int `json:"reload_delay"`
		} `json:"reload"`
	} `json:"haproxy"`
}

// examples are the folders, each with the file that has HAProxy's command line.
var examples = map[string]string{"packages": "haproxy.service.conf", "containers": "compose.yaml"}

var haproxyLine = regexp.MustCompile(`(/\S*/haproxy) (-W.*)`)

// commandLine returns the binary of HAProxy in a file, and its arguments.
func commandLine(t *testing.T, file string) (binary string, args []string) {
	t.Helper()
	m := haproxyLine.FindStringSubmatch(read(t, file))
	if m == nil {
		t.Fatalf("%s does not start HAProxy", file)
	}
	return m[1], strings.Fields(m[2])
}

func after(args []string, flag string) string {
	at := slices.Index(args, flag)
	if at < 0 || at+1 == len(args) {
		return ""
	}
	return args[at+1]
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheFilesAgree(t *testing.T) {
	for folder, commands := range examples {
		t.Run(folder, func(t *testing.T) {
			var s settings
			if err := yaml.Unmarshal([]byte(read(t, filepath.Join(folder, "dataplaneapi.yml"))), &s); err != nil {
				t.Fatal(err)
			}
			f, err := fleet.Read(filepath.Join(folder, "fleet.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			i, r := f.Instances[0], s.API.Resources
			if i.Layout.Maps != r.Maps || i.Layout.Certificates != r.Certificates || i.Layout.General != r.General {
				t.Errorf("the Fleet says %+v, the API %+v", i.Layout, r)
			}
			if len(s.API.Users) != 1 || s.API.Users[0].Name != i.Username || s.API.Users[0].Password != i.Password || !strings.HasSuffix(i.URL, fmt.Sprint(":", s.API.Port)) {
				t.Errorf("the Fleet asks %s as %s, the API takes %+v", i.URL, i.Username, s.API)
			}
			binary, args := commandLine(t, filepath.Join(folder, commands))
			socket, _, _ := strings.Cut(after(args, "-S"), ",")
			if h := s.HAProxy; !h.Master || h.Socket != socket || h.Config != after(args, "-f") || h.Binary != binary {
				t.Errorf("HAProxy is started as %s %v, and the API thinks %+v", binary, args, h)
			}
			if s.HAProxy.Reload.Delay != 1 || s.API.Transaction.Backups == 0 || strings.HasPrefix(s.API.Transaction.Dir, "/tmp") {
				t.Errorf("the API is told %+v", s)
			}
		})
	}
}

// TestTheDocsShowTheFiles keeps docs/how-to/instances.md equal to the files.
func TestTheDocsShowTheFiles(t *testing.T) {
	docs := read(t, "../../docs/how-to/instances.md")
	for _, file := range []string{"packages/dataplaneapi.yml", "packages/haproxy.service.conf", "containers/compose.yaml"} {
		if !strings.Contains(docs, "\n"+read(t, file)+"```\n") {
			t.Errorf("docs/how-to/instances.md does not show %s as it is", file)
		}
	}
}

// TestTheFilesWork runs HAProxy and a real Dataplane API by the files, with other paths.
func TestTheFilesWork(t *testing.T) {
	haproxy := cmp.Or(os.Getenv("HAPROXY"), "haproxy")
	program, reason := dataplanetest.Real(haproxy)
	if program == "" {
		t.Log("the files are compared with each other only:", reason)
		return
	}
	haproxy, err := exec.LookPath(haproxy)
	if err != nil {
		t.Fatal(err)
	}
	for folder, commands := range examples {
		t.Run(folder, func(t *testing.T) { tryExample(t, folder, commands, haproxy, program) })
	}
}

func tryExample(t *testing.T, folder, commands, haproxy, program string) {
	t.Helper()
	root, err := os.MkdirTemp("", "ex") //nolint:usetesting // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	address := loopback.Address()
	host, port, _ := net.SplitHostPort(address)
	binary, args := commandLine(t, filepath.Join(folder, commands))
	moved := strings.NewReplacer(
		binary, haproxy, "-Ws", "-W", "10.0.0.11:5555", address, "host: 10.0.0.11", "host: "+host, "host: 0.0.0.0", "host: "+host,
		"port: 5555", "port: "+port, "bind *:8404", "bind unix@"+root+"/status.sock",
		" /etc/", " "+root+"/etc/", " /usr/local/etc/", " "+root+"/etc/", " /run/", " "+root+"/run/", " /var/", " "+root+"/var/",
	)
	for _, dir := range []string{"etc/haproxy/dataplane", "run/haproxy", "var/lib/dataplaneapi"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put := func(name, text string) string {
		path := filepath.Join(root, name)
		if err := os.WriteFile(path, []byte(moved.Replace(text)), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for n, arg := range args {
		args[n] = strings.TrimSpace(moved.Replace(" " + arg))
	}
	if err := os.WriteFile(after(args, "-f"), []byte(moved.Replace(read(t, "../bootstrap/haproxy.cfg"))), 0o600); err != nil {
		t.Fatal(err)
	}
	own := put("etc/haproxy/dataplane/dataplaneapi.yml", read(t, filepath.Join(folder, "dataplaneapi.yml")))
	put("password", read(t, filepath.Join(folder, "password")))
	f, err := fleet.Read(put("fleet.yaml", read(t, filepath.Join(folder, "fleet.yaml"))))
	if err != nil {
		t.Fatal(err)
	}
	launch(t, haproxy, args...)
	socket, _, _ := strings.Cut(after(args, "-S"), ",")
	eventually.Succeeds(t, "HAProxy's master socket", func() error { _, err := os.Stat(socket); return err })
	stop := launch(t, program, "-f", own)

	i := f.Instances[0]
	client, err := dataplane.New(dataplane.Options{URL: i.URL, Username: i.Username, Password: i.Password})
	if err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, "the API", func() error { _, err := client.RuntimeInfo(t.Context()); return err })
	if report := preflight.Check(t.Context(), f.Instances, time.Minute); !report.OK {
		t.Errorf("the preflight found %+v", report.Instances[0].Findings)
	}
	// It survives a push, and starts again after it.
	raw, err := client.Raw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	config := bytes.Replace(raw.Config.Bytes(), []byte("node bootstrap"), []byte("node pushed"), 1)
	if _, err := client.PostRaw(t.Context(), config, dataplane.PostOptions{Version: raw.Version, ForceReload: true}); err != nil {
		t.Fatal(err)
	}
	stop()
	launch(t, program, "-f", own)
	eventually.Succeeds(t, "the API, started again,", func() error { _, err := client.Version(t.Context()); return err })
	if info, err := client.RuntimeInfo(t.Context()); err != nil || info.Node != "pushed" {
		t.Errorf("the worker runs %q, %v", info.Node, err)
	}
}

// launch runs a program that ends with the test, or with the test's process.
func launch(t *testing.T, program string, args ...string) (stop func()) {
	t.Helper()
	var log output.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the signal comes with the end of this thread
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is seen in its log
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	stop = func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		<-ended
	}
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("%s wrote:\n%s", filepath.Base(program), log.String())
		}
	})
	return stop
}
