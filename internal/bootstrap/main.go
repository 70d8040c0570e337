// Package bootstrap starts an instance in a pod: the program of the same name is the
// command of three containers.
//
//	bootstrap prepare       lays out the shared folders, and copies itself into one of them
//	bootstrap haproxy       runs HAProxy, and drains it when it gets SIGTERM or SIGUSR1
//	bootstrap dataplaneapi  writes the Dataplane API's file, and runs it
//
// Settings come from the environment, see [Settings]. The first container has an image
// with this program; the others run the copy of it, whatever their image is.
//
// # How HAProxy is started
//
// HAProxy starts with the configuration on disk, which the pusher wrote. If it could not start with that, the
// container would start again and again, and nobody could bring another configuration: the Dataplane API needs
// a running HAProxy. So after a few attempts HAProxy goes back to the first configuration. Then it serves no
// traffic, /ready fails and says why, and the worker's node is "bootstrap", so that the pusher brings the
// instance what it should run.
//
// The same happens to a configuration with which HAProxy starts and then ends: because it takes more memory
// than the container has, or because a worker crashes with it. After three consecutive starts that ended within
// seconds, the next start uses the first configuration. A file counts the starts, since this program ends with
// the container.
//
// It does not go back to the last configuration that started. Such a copy may have endpoints that are now
// another tenant's, may name files that the pusher has removed, and would be ready with what a rollback took
// away. What prevents one configuration, such as a port that is taken or certificates that were lost with the
// node's memory, mostly prevents the other too. Private keys are kept nowhere else.
//
// # How HAProxy is drained
//
// A signal starts the drain. Both signals do the same, since the image decides which one a kubelet sends.
// /ready fails at once, for the load balancers that ask there. HAProxy serves as before for as long as others
// may need to learn that the pod ends. Then the program shuts down the frontends one by one through HAProxy's
// socket, except the one for health and metrics: connections finish, and metrics still show them. A soft stop
// of the whole process would close that frontend too. It comes last, when no connection is left.
//
// HAProxy's keyword grace is not used. A worker that a reload replaces would wait too, and go on accepting
// connections with the replaced configuration.
package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Settings are what the environment says. Folders are those of the pod's volumes.
type Settings struct {
	// ConfigDir has haproxy.cfg and the folders of its files.
	ConfigDir string // CONFIG_DIR
	// FilesDir has bootstrap.cfg, the first configuration.
	FilesDir string // FILES_DIR
	// ProgramDir gets a copy of this program, if it is set.
	ProgramDir string // PROGRAM_DIR
	// MasterSocket is HAProxy's, through which both containers control it.
	MasterSocket string // MASTER_SOCKET
	// HAProxy and DataplaneAPI are the programs: paths, or names on PATH.
	HAProxy, DataplaneAPI string // HAPROXY, DATAPLANEAPI
	// APIDir is where the API's file is written. Nobody else reads it.
	APIDir string // API_DIR
	// CredentialsDir has the files username and password of the API. It may have next-username and
	// next-password, which the API accepts too.
	CredentialsDir string // CREDENTIALS_DIR
	// TLSDir has tls.crt and tls.key of the API. Without it the API speaks plain HTTP.
	TLSDir  string // TLS_DIR
	APIPort int    // API_PORT
	// PodName is the name that the API reports, and PodIP the address on which it listens.
	PodName, PodIP string // POD_NAME, POD_IP
	// Propagation is how long HAProxy goes on serving while others learn that the pod ends. Drain is how long
	// connections may take to finish afterwards.
	Propagation, Drain time.Duration // DRAIN_PROPAGATION_SECONDS, DRAIN_SECONDS
	// Start is how long HAProxy may take to serve with the configuration on disk. It is shorter than the time
	// that the startup probe allows.
	Start time.Duration // START_SECONDS
	// Proven is how long HAProxy has to serve until its end no longer counts against the configuration that it
	// was started with.
	Proven time.Duration // PROVEN_SECONDS

	stdout, stderr io.Writer // for the programs too
}

// The exit codes, which are those of the other programs.
const (
	exitFailure = 1
	exitUsage   = 2
)

const usage = `usage: bootstrap prepare|haproxy|dataplaneapi

  prepare       lay out the folders that HAProxy and the Dataplane API share
  haproxy       run HAProxy, and drain it when it is told to end
  dataplaneapi  write the Dataplane API's file, and run it

The environment has the settings: CONFIG_DIR, FILES_DIR, PROGRAM_DIR, MASTER_SOCKET,
HAPROXY, DATAPLANEAPI, API_DIR, CREDENTIALS_DIR, TLS_DIR, API_PORT, POD_NAME, POD_IP,
DRAIN_PROPAGATION_SECONDS, DRAIN_SECONDS, START_SECONDS, PROVEN_SECONDS.
`

// Main runs the program and returns its exit code.
func Main(args, environment []string, stdout, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	run := map[string]func(Settings) (int, error){
		"prepare":      func(s Settings) (int, error) { return 0, s.prepare() },
		"haproxy":      Settings.runHAProxy,
		"dataplaneapi": Settings.runAPI,
	}[args[0]]
	if run == nil {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	settings, err := Read(environment)
	if err != nil {
		fmt.Fprintln(stderr, "bootstrap:", err)
		return exitUsage
	}
	settings.stdout, settings.stderr = stdout, stderr
	code, err := run(settings)
	if err != nil {
		fmt.Fprintf(stderr, "bootstrap %s: %v\n", args[0], err)
		return max(code, exitFailure)
	}
	return code
}

// Read reads the settings. Defaults are the chart's values.
func Read(environment []string) (Settings, error) {
	said := map[string]string{}
	for _, e := range environment {
		key, value, _ := strings.Cut(e, "=")
		said[key] = value
	}
	or := func(key, standard string) string {
		if v := said[key]; v != "" {
			return v
		}
		return standard
	}
	s := Settings{
		ConfigDir: or("CONFIG_DIR", "/etc/haproxy"), FilesDir: or("FILES_DIR", "/etc/hapsnap/files"), ProgramDir: said["PROGRAM_DIR"],
		MasterSocket: or("MASTER_SOCKET", "/run/haproxy/master.sock"), HAProxy: or("HAPROXY", "haproxy"), DataplaneAPI: or("DATAPLANEAPI", "dataplaneapi"),
		APIDir: or("API_DIR", "/run/dataplaneapi"), CredentialsDir: or("CREDENTIALS_DIR", "/etc/hapsnap/credentials"), TLSDir: said["TLS_DIR"],
		PodName: or("POD_NAME", "instance"), PodIP: or("POD_IP", "0.0.0.0"),
	}
	for _, n := range []struct {
		key      string
		standard int
		set      func(int)
	}{
		{"API_PORT", 5555, func(n int) { s.APIPort = n }},
		{"DRAIN_PROPAGATION_SECONDS", 15, func(n int) { s.Propagation = time.Duration(n) * time.Second }},
		{"START_SECONDS", 90, func(n int) { s.Start = time.Duration(n) * time.Second }},
		{"PROVEN_SECONDS", 30, func(n int) { s.Proven = time.Duration(n) * time.Second }},
		{"DRAIN_SECONDS", 300, func(n int) { s.Drain = time.Duration(n) * time.Second }},
	} {
		value, err := strconv.Atoi(or(n.key, strconv.Itoa(n.standard)))
		if err != nil || value < 0 {
			return s, fmt.Errorf("%s is %q: want a number", n.key, said[n.key])
		}
		n.set(value)
	}
	return s, nil
}

func (s Settings) config() string { return filepath.Join(s.ConfigDir, "haproxy.cfg") }

// folders are the ones below the folder of the configuration.
var folders = []string{"maps", "ssl", "general", "dataplane/transactions", "dataplane/backups", "dataplane/storage"}

// prepare makes the folders and files that HAProxy and the API share. It keeps an existing configuration: a pod
// that is set up again has one.
func (s Settings) prepare() error {
	for _, folder := range folders {
		if err := os.MkdirAll(filepath.Join(s.ConfigDir, folder), 0o700); err != nil {
			return fmt.Errorf("make the folders of HAProxy's files: %w", err)
		}
	}
	if err := s.firstConfig(); err != nil {
		return err
	}
	s.keepReserve()
	if s.ProgramDir == "" {
		return nil
	}
	// The other containers run this program from there, since their images may not have it.
	own, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	content, err := os.ReadFile(own)
	if err != nil {
		return fmt.Errorf("read this program: %w", err)
	}
	path := filepath.Join(s.ProgramDir, "bootstrap")
	if there, err := os.ReadFile(path); err == nil && bytes.Equal(there, content) {
		return nil // the pod is set up again, and its disk may be full
	}
	return replaceFile(path, content, 0o755)
}

func (s Settings) firstConfig() error {
	if info, err := os.Stat(s.config()); err == nil && info.Size() > 0 {
		return nil
	}
	text, err := os.ReadFile(s.first())
	if err != nil {
		return fmt.Errorf("read the first configuration: %w", err)
	}
	return replaceFile(s.config(), text, 0o600)
}

// replaceFile writes a file as a whole, or not at all.
func replaceFile(path string, content []byte, mode fs.FileMode) error {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.WriteFile(next, content, mode); err != nil {
		_ = os.Remove(next) // half of it would use up disk space
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
