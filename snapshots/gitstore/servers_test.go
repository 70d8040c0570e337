package gitstore

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

const secret = "t0p-s3cr3t"

// write writes a file that only its owner can read, and returns its path.
func write(t *testing.T, path string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// webServer serves a repository by git's own http-backend, with TLS and a bearer token.
type webServer struct {
	*httptest.Server
	token atomic.Pointer[string]
	asked atomic.Int32
	// meddle answers in place of git if it returns true. It may be nil.
	meddle atomic.Pointer[func(w http.ResponseWriter, r *http.Request, git http.Handler) bool]
	files  string
}

func newWebServer(t *testing.T, r repository) *webServer {
	t.Helper()
	r.git(t, "config", "http.receivepack", "true")
	git := &cgi.Handler{
		Path: filepath.Join(runGit(t, r.path, nil, "--exec-path"), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Dir(r.path), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null"},
		// http-backend complains about missing repositories and clients.
		Stderr: io.Discard,
	}
	s := &webServer{files: t.TempDir()}
	s.let(secret)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		if f := s.meddle.Load(); f != nil && (*f)(w, r, git) {
			return
		}
		_, password, basic := r.BasicAuth()
		if r.Header.Get("Authorization") != "Bearer "+*s.token.Load() && (!basic || password != *s.token.Load()) {
			http.Error(w, "not with "+r.Header.Get("Authorization"), http.StatusUnauthorized)
			return
		}
		git.ServeHTTP(w, r)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	s.Config.ErrorLog = nil
	t.Cleanup(s.Close)
	write(t, s.tokenFile(), []byte(secret+"\n"))
	write(t, s.caFile(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return s
}

func (s *webServer) let(token string)  { s.token.Store(&token) }
func (s *webServer) tokenFile() string { return filepath.Join(s.files, "token") }
func (s *webServer) caFile() string    { return filepath.Join(s.files, "ca.pem") }

// at sets the options of a store for the server.
func (s *webServer) at(o *Options) {
	o.URL = s.URL + "/" + filepath.Base(o.URL)
	o.Credentials = Credentials{TokenFile: s.tokenFile(), CAFile: s.caFile()}
}

// sshServer runs git for the owner of one key.
type sshServer struct {
	listener net.Listener
	config   atomic.Pointer[ssh.ServerConfig]
	files    string
	asked    atomic.Int32
}

func newSSHServer(t *testing.T) *sshServer {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &sshServer{listener: listener, files: t.TempDir()}
	t.Cleanup(func() { listener.Close() })
	public := s.newKey(t, "key")
	s.know(t, s.setHostKey(t, public))
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.asked.Add(1)
			go s.serve(conn)
		}
	}()
	return s
}

func (s *sshServer) keyFile() string        { return filepath.Join(s.files, "key") }
func (s *sshServer) knownHostsFile() string { return filepath.Join(s.files, "known_hosts") }

// newKey writes a private key, and returns the public one.
func (s *sshServer) newKey(t *testing.T, name string) ssh.PublicKey {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(s.files, name), pem.EncodeToMemory(block))
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer.PublicKey()
}

// setHostKey gives the server a new key and one user.
func (s *sshServer) setHostKey(t *testing.T, user ssh.PublicKey) ssh.PublicKey {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	c := &ssh.ServerConfig{PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if c.User() == "git" && string(key.Marshal()) == string(user.Marshal()) {
			return nil, nil
		}
		return nil, os.ErrPermission
	}}
	c.AddHostKey(signer)
	s.config.Store(c)
	return signer.PublicKey()
}

// know makes this the only key of the server that the client knows.
func (s *sshServer) know(t *testing.T, key ssh.PublicKey) {
	t.Helper()
	write(t, s.knownHostsFile(), []byte(knownhosts.Line([]string{s.listener.Addr().String()}, key)+"\n"))
}

func (s *sshServer) at(o *Options) {
	o.URL = "ssh://" + s.listener.Addr().String() + strings.TrimPrefix(o.URL, "file://")
	o.Credentials = Credentials{SSHKeyFile: s.keyFile(), KnownHostsFile: s.knownHostsFile()}
}

func (s *sshServer) serve(conn net.Conn) {
	defer conn.Close()
	server, channels, requests, err := ssh.NewServerConn(conn, s.config.Load())
	if err != nil {
		return
	}
	defer server.Close()
	go ssh.DiscardRequests(requests)
	for c := range channels {
		channel, requests, err := c.Accept()
		if err != nil {
			return
		}
		go serveSession(channel, requests)
	}
}

// serveSession runs a command if it is git.
func serveSession(channel ssh.Channel, requests <-chan *ssh.Request) {
	defer channel.Close()
	for r := range requests {
		var command struct{ Line string }
		if r.Type != "exec" || ssh.Unmarshal(r.Payload, &command) != nil {
			_ = r.Reply(false, nil)
			continue
		}
		_ = r.Reply(true, nil)
		name, path, _ := strings.Cut(command.Line, " ")
		cmd := exec.CommandContext(context.Background(), "git", strings.TrimPrefix(name, "git-"), strings.Trim(path, "'"))
		cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
		// Git may end before the client has closed its side.
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(stdin, channel)
			stdin.Close()
		}()
		status := struct{ Status uint32 }{}
		if err := cmd.Run(); err != nil {
			status.Status = 1
		}
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(&status))
		return
	}
}
