package bootstrap

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// apiLook is how often the program checks the API's credentials and certificate for changes. A kubelet
	// takes up to a minute to bring new ones.
	apiLook = 2 * time.Second
	// socketLook is how often the program looks for HAProxy's socket, which the API needs.
	socketLook = 50 * time.Millisecond
	// stopLimit is how long the API may take to end before it is started again.
	stopLimit = 5 * time.Second
)

// runAPI writes the API's file and runs the API. The API looks for HAProxy's socket only when it starts, so it
// must start after HAProxy, although this container starts before HAProxy's. For new credentials and
// certificates the API is started again.
func (s Settings) runAPI() (int, error) {
	got := signals()
	for {
		read, ok := s.awaitAPI(got)
		if !ok {
			return 0, nil
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

// awaitAPI waits for HAProxy, and then for the API's Secrets, which it returns. ok is false if the container is
// told to end before. In a new release the pusher fills the Secrets, and a kubelet mounts them. That may take
// any time; meanwhile the port is held.
func (s Settings) awaitAPI(got <-chan os.Signal) (read apiSecrets, ok bool) {
	var held portHolder
	defer held.release()
	said, saidOfPort := "", ""
	for look := socketLook; ; {
		if s.serves() {
			read, err := s.readAPI()
			if err == nil {
				return read, true
			}
			said = s.sayOnce(said, "waiting for credentials: ", err)
			look = apiLook
		}
		if err := held.hold(net.JoinHostPort(s.PodIP, strconv.Itoa(s.APIPort))); err != nil {
			saidOfPort = s.sayOnce(saidOfPort, "waiting without the port of the Dataplane API: ", err)
		}
		select {
		case <-time.After(look):
		case <-got:
			return apiSecrets{}, false
		}
	}
}

// A portHolder accepts connections to the API's port and closes them until the API is started. The kubelet
// probes the port. Without an answer it would restart a container that only waits, later with pauses before
// each start, and the API would be late.
type portHolder struct {
	listener net.Listener
	ended    chan struct{}
}

// hold begins to listen, unless it listens already.
func (h *portHolder) hold(address string) error {
	if h.listener != nil {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	h.listener, h.ended = listener, make(chan struct{})
	go func() {
		defer close(h.ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	return nil
}

// release gives up the port, for the API.
func (h *portHolder) release() {
	if h.listener == nil {
		return
	}
	_ = h.listener.Close()
	<-h.ended
	h.listener = nil
}

// sayOnce writes what is wrong, unless that is what it wrote last. It returns the text for the next call.
func (s Settings) sayOnce(said, what string, err error) string {
	if err == nil {
		return ""
	}
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if text != said {
		fmt.Fprintf(s.stderr, "bootstrap dataplaneapi: %s%s\n", what, text)
	}
	return text
}

// watchAPI returns when the API has ended, and whether it was ended for new credentials.
func (s Settings) watchAPI(api *child, got <-chan os.Signal, read apiSecrets) (changed bool, code int) {
	tick := time.NewTicker(apiLook)
	defer tick.Stop()
	var over <-chan time.Time
	said := ""
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
			said = s.sayOnce(said, "the Dataplane API goes on with the credentials that it has: ", err)
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

// serves reports whether HAProxy has a worker. The socket alone may be left from a HAProxy that could not be
// started.
func (s Settings) serves() bool {
	_, err := master(s.MasterSocket).frontends()
	return err == nil
}

// apiSecrets is what the Secrets hold for the API.
type apiSecrets struct {
	users            []apiUser // the present one, and the next one, if there is one
	certificate, key string
}

type apiUser struct{ name, password string }

func (a apiSecrets) equal(b apiSecrets) bool {
	return slices.Equal(a.users, b.users) && a.certificate == b.certificate && a.key == b.key
}

// readAPI reads the files of the API's Secrets.
func (s Settings) readAPI() (apiSecrets, error) {
	var out apiSecrets
	read := func(dir, name string, into *string) error {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil && len(bytes.TrimSpace(content)) == 0 {
			err = fmt.Errorf("%s is empty", filepath.Join(dir, name))
		}
		*into = strings.TrimRight(string(content), "\r\n")
		return err
	}
	var present, next apiUser
	err := errors.Join(read(s.CredentialsDir, "username", &present.name), read(s.CredentialsDir, "password", &present.password))
	out.users = []apiUser{present}
	if read(s.CredentialsDir, "next-username", &next.name) == nil && read(s.CredentialsDir, "next-password", &next.password) == nil {
		out.users = append(out.users, next)
	}
	if s.TLSDir != "" {
		err = errors.Join(err, read(s.TLSDir, "tls.crt", &out.certificate), read(s.TLSDir, "tls.key", &out.key))
		if _, broken := tls.X509KeyPair([]byte(out.certificate), []byte(out.key)); err == nil && broken != nil {
			err = fmt.Errorf("the API could not start with tls.crt and tls.key in %s: %w", s.TLSDir, broken)
		}
	}
	return out, err
}

// apiFile is the API's own file. The API writes to it, and can read its password from nowhere else.
func (s Settings) apiFile(read apiSecrets) []byte {
	listen := fmt.Sprintf("host: %s\n  port: %d", quoted(s.PodIP), s.APIPort)
	if s.TLSDir != "" {
		listen = fmt.Sprintf("scheme: [https]\n  tls:\n    tls_host: %s\n    tls_port: %d\n    tls_certificate: %s\n    tls_key: %s",
			quoted(s.PodIP), s.APIPort, quoted(filepath.Join(s.TLSDir, "tls.crt")), quoted(filepath.Join(s.TLSDir, "tls.key")))
	}
	var users strings.Builder
	for _, u := range read.users {
		fmt.Fprintf(&users, "\n  - name: %s\n    password: %s\n    insecure: true", quoted(u.name), quoted(u.password))
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `config_version: 2
name: %s
dataplaneapi:
  %s
  user:%s
  transaction:
    transaction_dir: %[4]s/dataplane/transactions
    backups_dir: %[4]s/dataplane/backups
    backups_number: 10
  resources:
    maps_dir: %[4]s/maps
    ssl_certs_dir: %[4]s/ssl
    general_storage_dir: %[4]s/general
    dataplane_storage_dir: %[4]s/dataplane/storage
haproxy:
  config_file: %[4]s/haproxy.cfg
  haproxy_bin: %[5]s
  master_worker_mode: true
  master_runtime: %[6]s
  reload:
    reload_delay: 1
    reload_strategy: custom
    reload_cmd: /bin/false
    restart_cmd: /bin/false
`, quoted(s.PodName), listen, &users, s.ConfigDir, s.HAProxy, s.MasterSocket)
	return b.Bytes()
}

// quoted returns text in YAML's single quotes, where only single quotes have a meaning.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
