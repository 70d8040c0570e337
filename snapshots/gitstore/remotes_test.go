package gitstore

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/testing/loopback"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// overWire are the tests of the suite for which the transport matters. The others do not depend on it.
var overWire = []string{
	"an empty store has no snapshots and no error",
	"what is published is read",
	"the same content twice is one snapshot",
	"deleted snapshots are gone, the newest is kept",
	"the channel is kept",
	"a place that is gone is an error",
	"a cancelled call does nothing",
	"of writers that follow the same snapshot one wins",
}

func TestContractOverHTTPS(t *testing.T) {
	t.Parallel()
	storetest.RunSome(t, func(t *testing.T) storetest.Backend {
		t.Helper()
		r := newRepository(t)
		return r.backend(t, newWebServer(t, r).at)
	}, overWire...)
}

func TestContractOverSSH(t *testing.T) {
	t.Parallel()
	storetest.RunSome(t, func(t *testing.T) storetest.Backend {
		t.Helper()
		return newRepository(t).backend(t, newSSHServer(t).at)
	}, overWire...)
}

// refuses fails unless all calls return the error with the hint, after one connection each. No text may show
// the secret.
func refuses(t *testing.T, s *Store, asked func() int32, want error, hint string) {
	t.Helper()
	_, viewed := s.View(t.Context())
	_, _, published := s.Publish(t.Context(), storetest.Draft("b"))
	edited := s.UpdateChannel(t.Context(), "pause", time.Unix(1e9, 0), func(*channel.Channel) error { return nil })
	for call, err := range map[string]error{"view": viewed, "publish": published, "update channel": edited} {
		if !errors.Is(err, want) || !strings.Contains(process.Hint(err), hint) {
			t.Errorf("%s: %v, hint %q", call, err, process.Hint(err))
		}
		if err != nil && strings.Contains(err.Error()+process.Hint(err)+s.String(), secret) {
			t.Errorf("%s: the secret is in %q", call, err)
		}
	}
	if n := asked(); n > 3 {
		t.Errorf("three calls asked %d times", n)
	}
}

// A refused token is reported as such, once. The file is read again, so the store works as soon as the file and
// the server agree.
func TestTokenRotates(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	server := newWebServer(t, r)
	s := r.open(t, server.at)
	publish(t, s, storetest.Draft("a"))
	server.let("rotated-" + secret)
	server.asked.Store(0)
	refuses(t, s, server.asked.Load, ErrDenied, "--git-token-file")
	write(t, server.tokenFile(), []byte("rotated-"+secret))
	if id := publish(t, s, storetest.Draft("b")); id.Revision != 2 {
		t.Errorf("published %s", id)
	}
	if err := os.Remove(server.tokenFile()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.View(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
}

// With a user in the URL, the file holds a password. The password may also be in the URL, and then no other
// text has it.
func TestPasswords(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	server := newWebServer(t, r)
	for user, file := range map[string]string{"ann": server.tokenFile(), "bob:" + secret: ""} {
		s := r.open(t, server.at, func(o *Options) {
			o.URL = strings.Replace(o.URL, "https://", "https://"+user+"@", 1)
			o.Credentials.TokenFile = file
		})
		if _, err := s.View(t.Context()); err != nil {
			t.Errorf("%s: %v", user, err)
		}
		server.let("another")
		server.asked.Store(0)
		refuses(t, s, server.asked.Load, ErrDenied, "password of "+user[:3])
		server.let(secret)
	}
}

// A server whose certificate does not fit gets no token.
func TestCertificateIsVerified(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	server := newWebServer(t, r)
	s := r.open(t, server.at, func(o *Options) { o.Credentials.CAFile = "" })
	if _, err := s.View(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") || !strings.Contains(process.Hint(err), "--git-ca-file") {
		t.Errorf("view: %v, hint %q", err, process.Hint(err))
	}
	if n := server.asked.Load(); n != 0 {
		t.Errorf("the server was asked %d times", n)
	}
}

func TestHostKeysAreStrict(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	server := newSSHServer(t)
	s := r.open(t, server.at)
	publish(t, s, storetest.Draft("a"))
	user := server.newKey(t, "key")

	refused := func(want error, hint string) {
		t.Helper()
		before, err := os.ReadFile(server.knownHostsFile())
		if err != nil {
			t.Fatal(err)
		}
		server.asked.Store(0)
		refuses(t, s, server.asked.Load, want, hint)
		if after, err := os.ReadFile(server.knownHostsFile()); err != nil || string(after) != string(before) {
			t.Errorf("the known hosts are %q, %v", after, err)
		}
	}
	refused(ErrDenied, "--git-ssh-key")
	key := server.setHostKey(t, user)
	refused(ErrChangedHost, "--git-known-hosts")
	write(t, server.knownHostsFile(), []byte("# nobody\n"))
	refused(ErrUnknownHost, "--git-known-hosts")
	server.know(t, key)
	if id := publish(t, s, storetest.Draft("b")); id.Revision != 2 {
		t.Errorf("published %s", id)
	}
}

// mute is a server that accepts connections and sends nothing.
func mute(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener.Addr().String()
}

// A server that answers with a page, as for logging in, is said to be none of git. What it says is no empty repository.
func TestServersThatAnswerWithAPage(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"<!DOCTYPE html><html><title>Log in</title></html>\n", "{}", "", "001e# service=git-upload-pack\n<html>"} {
		r := newRepository(t)
		server := newWebServer(t, r)
		s := r.open(t, server.at)
		if _, _, err := s.Publish(t.Context(), storetest.Draft("a")); err != nil {
			t.Fatal(err)
		}
		answer := func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, page)
			return true
		}
		server.meddle.Store(&answer)
		view, err := r.open(t, server.at).View(t.Context())
		if err == nil {
			t.Errorf("%q is a view of %d snapshots", page, len(view.IDs))
		} else if !strings.Contains(err.Error(), "does not answer like git") || !strings.Contains(process.Hint(err), "browser") {
			t.Errorf("%q: %v, hint %q", page, err, process.Hint(err))
		}
	}
}

// A server that wants fewer requests gets none for as long as it says, at most for some minutes, and for longer each time
// if it does not say. Nothing is tried ten times.
func TestServersThatAreBusy(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	server := newWebServer(t, r)
	s := r.open(t, server.at)
	publish(t, s, storetest.Draft("a"))
	now := time.Now()
	in := func(d time.Duration) string { return now.Add(d).UTC().Format(http.TimeFormat) }
	for _, test := range []struct {
		status     int
		after      string
		least, max time.Duration // 0: another request is sent at once
	}{
		{429, "60", 59 * time.Second, time.Minute}, {503, in(time.Minute), 50 * time.Second, time.Minute}, {429, "999999999", 299 * time.Second, 5 * time.Minute},
		{429, "", 9 * time.Second, 10 * time.Second}, {429, "soon", 19 * time.Second, 20 * time.Second}, {503, "", 0, 0}, {500, "60", 0, 0},
	} {
		answer := func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
			if test.after != "" {
				w.Header().Set("Retry-After", test.after)
			}
			w.WriteHeader(test.status)
			return true
		}
		server.meddle.Store(&answer)
		before := server.asked.Load()
		_, err := s.View(t.Context())
		if err == nil || errors.Is(err, errBusy) != (test.max > 0) {
			t.Errorf("%d, %q: %v", test.status, test.after, err)
		}
		_, _, err = s.Publish(t.Context(), storetest.Draft("b"))
		asked := server.asked.Load() - before
		pace := &s.remote.(*wire).pace
		if left := time.Until(pace.until); test.max > 0 && (asked != 1 || left < test.least-10*time.Second || left > test.max || !strings.Contains(err.Error(), "may be asked again in")) {
			t.Errorf("%d, %q: it is asked %d times, and again in %s: %v", test.status, test.after, asked, left, err)
		} else if test.max == 0 && asked < 2 {
			t.Errorf("%d, %q: it is asked %d times", test.status, test.after, asked)
		}
		pace.until = time.Time{} // the time is over
	}
	server.meddle.Store(nil)
	if id := publish(t, s, storetest.Draft("b")); id.Revision != 2 || s.remote.(*wire).pace.pause != 0 {
		t.Errorf("published %s", id)
	}
	// The answers to requests that were under way at once count once.
	p, refusal := &pace{}, &githttp.Err{Response: &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{}}}
	for range 3 {
		if err := p.note(refusal, refusal, now); !errors.Is(err, errBusy) || p.until.Sub(now) != firstPause {
			t.Errorf("at once: until %s, %v", p.until.Sub(now), err)
		}
	}
}

// A verb waits until a server that wants fewer requests may be asked again, and says so: a minute in all. Nobody else
// waits: a program that keeps running tries again by itself.
func TestVerbsWaitForServersThatAreBusy(t *testing.T) {
	for _, test := range []struct {
		verb          bool
		after         string
		refusals      int
		deadline, end time.Duration
		busy          bool
	}{
		{verb: true, refusals: 2, end: 30 * time.Second},
		{verb: true, refusals: 3, end: 30 * time.Second, busy: true},
		{verb: true, after: "60", refusals: 1, end: time.Minute},
		{verb: true, after: "61", refusals: 1, busy: true},
		{verb: true, refusals: 1, deadline: 5 * time.Second, busy: true},
		{refusals: 1, busy: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, left := t.Context(), test.refusals
			if test.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, test.deadline)
				defer cancel()
			}
			w, refusal := &wire{endpoint: &transport.Endpoint{}, patience: patience}, &githttp.Err{Response: &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{}}}
			refusal.Response.Header.Set("Retry-After", test.after)
			began := time.Now()
			ask := func(ctx context.Context) error {
				_, err := within(ctx, w, func(context.Context) (struct{}, error) {
					if left--; left >= 0 {
						return struct{}{}, refusal
					}
					return struct{}{}, nil
				})
				return err
			}
			verb := &cobra.Command{Use: "pin", SilenceErrors: true, SilenceUsage: true, RunE: func(cmd *cobra.Command, _ []string) error { return ask(cmd.Context()) }}
			program := &cobra.Command{Use: "program"}
			program.AddCommand(verb)
			if test.verb {
				process.AddProgress(program, map[string]string{"pin": "reading the store"})
			}
			var errs strings.Builder
			program.SetArgs([]string{"pin"})
			program.SetErr(&errs)
			err := program.ExecuteContext(ctx)
			if took := time.Since(began); took != test.end || errors.Is(err, errBusy) != test.busy || (err != nil) != test.busy {
				t.Errorf("%+v: %v after %s", test, err, took)
			}
			if said := strings.Contains(errs.String(), "still waiting 20s, since the git server wants fewer requests: it answered 429"); said != (test.refusals > 1) {
				t.Errorf("%+v: it says %q", test, errs.String())
			}
		})
	}
}

// If a server hangs, a call ends with its context. Without a deadline, it ends after the store's own patience.
func TestServersThatHang(t *testing.T) {
	t.Parallel()
	keys := newSSHServer(t)
	for _, scheme := range []string{"http", "https", "ssh"} {
		s := newRepository(t).open(t, keys.at, func(o *Options) { o.URL = scheme + "://" + mute(t) + "/edge.git" })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if _, err := s.View(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: view: %v", scheme, err)
		}
		cancel()
		s.remote.(*wire).patience = 100 * time.Millisecond
		if _, _, err := s.Publish(t.Context(), storetest.Draft("a")); !errors.Is(err, errSilent) {
			t.Errorf("%s: publish: %v", scheme, err)
		}
	}
}

// A connection that died and of which nobody says so is given up, and the next one is used.
func TestConnectionsThatDied(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	server := newWebServer(t, r)
	tunnel := loopback.NewTunnel(t, server.Listener.Addr().String())
	s := r.open(t, server.at, func(o *Options) { o.URL = "https://" + tunnel.Addr() + "/" + filepath.Base(o.URL) })
	s.remote.(*wire).web = newWeb(50 * time.Millisecond)
	publish(t, s, storetest.Draft("a"))
	loopback.AnswersAfterLoss(t, tunnel, func(ctx context.Context) error {
		_, err := s.View(ctx)
		return err
	})
}

// The server disappears during a push: before it has read it, or after the push was made and before the answer.
// In both cases one snapshot is published.
func TestServerGoesAwayDuringPush(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]bool{"before": false, "after": true} {
		r := newRepository(t)
		server := newWebServer(t, r)
		s := r.open(t, server.at)
		publish(t, s, storetest.Draft("a"))
		pushes := 0
		lose := func(_ http.ResponseWriter, q *http.Request, git http.Handler) bool {
			if q.Method != http.MethodPost || filepath.Base(q.URL.Path) != "git-receive-pack" {
				return false
			}
			if pushes++; pushes > 1 {
				return false
			}
			if made {
				git.ServeHTTP(httptest.NewRecorder(), q)
			}
			panic(http.ErrAbortHandler) // this closes the connection
		}
		server.meddle.Store(&lose)
		if id := publish(t, s, storetest.Draft("b")); id.Revision != 2 {
			t.Errorf("%s: published %s", name, id)
		}
		if got := r.git(t, "rev-list", "--count", "edge"); got != "2" {
			t.Errorf("%s: the branch has %s commits", name, got)
		}
		if want := map[bool]int{false: 2, true: 1}[made]; pushes != want {
			t.Errorf("%s: %d pushes, want %d", name, pushes, want)
		}
	}
}

func TestCredentialsThatCannotWork(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"http://git.example/a":         "only for this host",
		"http://10.0.0.1/a":            "only for this host",
		"http://localhost.example/a":   "only for this host",
		"ssh://git:" + secret + "@h/a": "of no use to SSH",
		"ssh://git@h/a":                "needs a private key",
		"https://u:" + secret + "@h/a": "another in a file",
	} {
		_, err := Open(Options{URL: text, Credentials: Credentials{TokenFile: "token"}})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) || process.Hint(err) == "" {
			t.Errorf("%s: %v, hint %q", text, err, process.Hint(err))
		}
	}
	for _, text := range []string{"http://localhost:1/a", "http://127.0.0.1/a", "http://[::1]:1/a"} {
		if _, err := Open(Options{URL: text}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A key with a passphrase cannot be used, as nobody can type it.
func TestKeyWithPassphrase(t *testing.T) {
	t.Parallel()
	server := newSSHServer(t)
	file := filepath.Join(t.TempDir(), "key")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", secret, "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v\n%s", err, out)
	}
	s := newRepository(t).open(t, server.at, func(o *Options) { o.Credentials.SSHKeyFile = file })
	_, err := s.View(t.Context())
	if err == nil || !strings.Contains(err.Error(), file+": the key has a passphrase") || !strings.Contains(process.Hint(err), "--git-ssh-key") {
		t.Errorf("%v, hint %q", err, process.Hint(err))
	}
}
