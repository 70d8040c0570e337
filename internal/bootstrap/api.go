package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// apiLook is how often the API's credentials and certificate are looked at. A kubelet
	// takes up to a minute to bring new ones.
	apiLook = 2 * time.Second
	// socketLook is how often HAProxy's socket is looked for, which the API needs.
	socketLook = 50 * time.Millisecond
	// stopLimit is how long the API may take to end, as it is to be started again.
	stopLimit = 5 * time.Second
)

// runAPI writes the API's file and runs it. The API looks for HAProxy's socket only when
// it starts, so that it has to start after HAProxy, before whose container this one comes.
// New credentials and certificates are taken up by starting the API again.
func (s Settings) runAPI() (int, error) {
	got := signals()
	tick := time.NewTicker(socketLook)
	defer tick.Stop()
	for !isSocket(s.MasterSocket) {
		select {
		case <-tick.C:
		case <-got:
			return 0, nil
		}
	}
	for {
		read, err := s.readAPI()
		if err != nil {
			return exitFailure, err
		}
		if err := os.MkdirAll(s.APIDir, 0o700); err != nil {
			return exitFailure, err
		}
		path := filepath.Join(s.APIDir, "dataplaneapi.yml")
		if err := replaceFile(path, s.apiFile(read), 0o600); err != nil {
			return exitFailure, err
		}
		api, err := s.start(s.DataplaneAPI, "-f", path)
		if err != nil {
			return exitFailure, err
		}
		changed, code := s.watchAPI(api, got, read)
		if !changed {
			return code, nil
		}
		fmt.Fprintln(s.stderr, "bootstrap dataplaneapi: its credentials or certificate changed; the Dataplane API starts again")
	}
}

// watchAPI returns when the API has ended, and whether that was for new credentials.
func (s Settings) watchAPI(api *child, got <-chan os.Signal, read apiSecrets) (changed bool, code int) {
	tick := time.NewTicker(apiLook)
	defer tick.Stop()
	var over <-chan time.Time
	for {
		select {
		case code := <-api.ended:
			return changed, code
		case signal := <-got:
			if signal != syscall.SIGUSR2 && signal != syscall.SIGHUP {
				changed = false
				api.signal(syscall.SIGTERM)
			}
		case <-tick.C:
			next, err := s.readAPI()
			if err == nil && !changed && !next.equal(read) {
				changed = true
				api.signal(syscall.SIGTERM)
				over = time.After(stopLimit)
			}
		case <-over:
			api.signal(syscall.SIGKILL)
		}
	}
}

func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&os.ModeSocket != 0
}

// apiSecrets are what others make for the API.
type apiSecrets struct{ username, password, certificate, key []byte }

func (a apiSecrets) equal(b apiSecrets) bool {
	return bytes.Equal(a.username, b.username) && bytes.Equal(a.password, b.password) && bytes.Equal(a.certificate, b.certificate) && bytes.Equal(a.key, b.key)
}

// readAPI reads the files of the API's Secrets.
func (s Settings) readAPI() (apiSecrets, error) {
	var out apiSecrets
	read := func(dir, name string, into *[]byte) error {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil && len(bytes.TrimSpace(content)) == 0 {
			err = fmt.Errorf("%s is empty", filepath.Join(dir, name))
		}
		*into = content
		return err
	}
	err := errors.Join(read(s.CredentialsDir, "username", &out.username), read(s.CredentialsDir, "password", &out.password))
	if s.TLSDir != "" {
		err = errors.Join(err, read(s.TLSDir, "tls.crt", &out.certificate), read(s.TLSDir, "tls.key", &out.key))
	}
	return out, err
}

// apiFile is the API's own file. It writes to it itself, and can take its password from
// nowhere else.
func (s Settings) apiFile(read apiSecrets) []byte {
	listen := fmt.Sprintf("host: %s\n  port: %d", quoted(s.PodIP), s.APIPort)
	if s.TLSDir != "" {
		listen = fmt.Sprintf("scheme: [https]\n  tls:\n    tls_host: %s\n    tls_port: %d\n    tls_certificate: %s\n    tls_key: %s",
			quoted(s.PodIP), s.APIPort, quoted(filepath.Join(s.TLSDir, "tls.crt")), quoted(filepath.Join(s.TLSDir, "tls.key")))
	}
	line := func(secret []byte) string { return quoted(strings.TrimRight(string(secret), "\r\n")) }
	var b bytes.Buffer
	fmt.Fprintf(&b, `config_version: 2
name: %s
dataplaneapi:
  %s
  user:
  - name: %s
    password: %s
    insecure: true
  transaction:
    transaction_dir: %[5]s/dataplane/transactions
    backups_dir: %[5]s/dataplane/backups
    backups_number: 10
  resources:
    maps_dir: %[5]s/maps
    ssl_certs_dir: %[5]s/ssl
    general_storage_dir: %[5]s/general
    dataplane_storage_dir: %[5]s/dataplane/storage
haproxy:
  config_file: %[5]s/haproxy.cfg
  haproxy_bin: %[6]s
  master_worker_mode: true
  master_runtime: %[7]s
  reload:
    reload_delay: 1
    reload_strategy: custom
    reload_cmd: /bin/false
    restart_cmd: /bin/false
`, quoted(s.PodName), listen, line(read.username), line(read.password), s.ConfigDir, s.HAProxy, s.MasterSocket)
	return b.Bytes()
}

// quoted is text in YAML's single quotes, in which nothing but they have a meaning.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
