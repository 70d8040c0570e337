package pusher

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/core"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/bind/htpasswd"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

// A replay of the log of a real run has the same effects. The log has no content of Secrets.
func TestEventLogOfARealRun(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.options.EventLog = filepath.Join(r.dir, "events.jsonl")
	r.endpoints(echo(t, "one"))
	authority := pemtest.NewAuthority(t)
	r.opaque("auth", "auth", "alice:"+hashOfOne)
	r.opaque("keys", "token", "s3cret it's")
	r.opaque("clients", "ca.crt", authority.PEM)
	id := r.publish(config("1", guarded), guardedCertificates...)
	r.run()
	r.allRun(id)
	r.endpoints(echo(t, "one"), echo(t, "two"))
	r.opaque("keys", "token", "an0ther")
	reloads := r.pushes("a")
	r.until("the token is another", func(report.Status) bool { return r.pushes("a") > reloads })
	r.allRun(id)
	r.kill()
	log, err := os.ReadFile(r.options.EventLog)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"s3cret", "an0ther", hashOfOne, "PRIVATE", "CERTIFICATE", authority.PEM[40:80]} {
		if strings.Contains(string(log), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
	if turns := replay(t, log, r.store); turns < 10 {
		t.Errorf("%d turns", turns)
	}
	if info, err := os.Stat(r.options.EventLog); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
}

// The log keeps nothing of pods that are gone, however many there were.
func TestEventLogForgetsPods(t *testing.T) {
	t.Parallel()
	var lines eventLines
	l := newEventLog(lines.add, core.Settings{}, core.State{}, slog.New(slog.DiscardHandler), noon)
	m := core.New(core.Settings{}, core.State{}, nil, noon)
	for n := range 100 {
		about := instance.About{Ref: instance.Ref{Name: fmt.Sprintf("edge-%d", n), UID: fmt.Sprint(n), Joined: n}}
		have := push.Running{Servers: []bind.Server{{Backend: "shop", Name: "s1"}}}
		now, events := noon.Add(time.Duration(n)*time.Second), []core.Event{core.OfInstance{Event: instance.UpdateEnded{About: about, Have: have}}}
		l.taken(now, events)
		effects := m.Step(now, events...)
		view, _ := m.Shown()
		l.returned(now, effects, view)
	}
	if len(l.servers) > 3 {
		t.Errorf("the servers of %d instances are kept, and the fleet has none", len(l.servers))
	}
}

// The line of an event has none of its secrets, whatever the event. Different secrets have
// different digests.
func TestEventLogHasNoSecrets(t *testing.T) {
	t.Parallel()
	var lines eventLines
	l := newEventLog(lines.add, core.Settings{}, core.State{}, slog.New(slog.DiscardHandler), noon)
	name := snapshots.SecretName{Namespace: "shop", Name: "web"}
	certificate := newPEM(t)
	secret := func(token string) *corev1.Secret {
		return &corev1.Secret{Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"token": []byte(token), corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: certificate}}
	}
	for _, ev := range []core.Event{
		core.FleetRead{Fleet: fleet.Fleet{Instances: []fleet.Instance{{Name: "a", URL: "http://me:in-the-url@a.test", Username: "us3r", Password: "passw0rd"}}}},
		core.LiveRead{Live: binding.Objects{Live: bind.Live{
			Certificates: map[snapshots.SecretName][]byte{name: certificate}, Authorities: map[snapshots.SecretName][]byte{name: []byte("auth0rity")},
			Users: map[snapshots.SecretName][]htpasswd.User{name: {{Name: "al1ce", Hash: "h4sh"}}}, Values: map[bind.SecretKey]string{{Secret: name, Key: "token"}: "v4lue"},
		}}},
		core.ClusterChanged{Change: cluster.Change{Secrets: map[snapshots.SecretName]*corev1.Secret{name: secret("t0ken")}}},
		core.ClusterChanged{Change: cluster.Change{Secrets: map[snapshots.SecretName]*corev1.Secret{name: secret("t0ken")}}},
		core.ClusterChanged{Change: cluster.Change{Secrets: map[snapshots.SecretName]*corev1.Secret{name: secret("an0ther")}}},
		core.CertificatesOpened{ID: snapshots.ID{Revision: 1}, Found: map[string][]byte{"v1": []byte("0pened")}},
		core.PodsFound{Found: []fleet.Instance{{Name: "pod", Password: "p0dpass"}}, Err: errors.New("it said p0dpass")},
		core.ViewRead{Err: errors.New("GET http://x: 401 for passw0rd")},
	} {
		logged, err := l.encode(ev)
		if err != nil {
			t.Fatal(err)
		}
		l.add(logLine{At: noon, Event: &logged})
	}
	text := string(lines.all())
	for _, secret := range []string{"in-the-url", "us3r", "passw0rd", "auth0rity", "al1ce", "h4sh", "v4lue", "t0ken", "an0ther", "0pened", "p0dpass", "BEGIN", string(certificate[50:90])} {
		if strings.Contains(text, secret) {
			t.Errorf("the log has %q:\n%s", secret, text)
		}
	}
	all := strings.Split(text, "\n")
	if len(all) != 9 || all[2] != all[3] || all[3] == all[4] {
		t.Errorf("Secrets are not told apart:\n%s", text)
	}
}

// If the file cannot be written, the pusher goes on, and reports that once.
func TestEventLogThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for what, path := range map[string]string{
		"no folder": filepath.Join(folder, "none", "log"), "a folder": folder, "a device": os.DevNull,
	} {
		var said bytes.Buffer
		f := newEventFile(path, slog.New(slog.NewTextHandler(&said, nil)))
		end := f.start()
		for range 3 * eventLogWaiting {
			f.write([]byte("{}\n"))
		}
		end()
		if n := strings.Count(said.String(), "cannot write the event log"); n != 1 {
			t.Errorf("%s: it is said %d times:\n%s", what, n, said.String())
		}
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Errorf("the device is %v, %v", info, err)
	}
}

// A log has at most two files, and the second says that it continues the first. The log of the
// previous run is kept once.
func TestEventLogIsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("of the run before"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newEventFile(path, slog.New(slog.DiscardHandler))
	f.size = 1000
	end := f.start()
	for n := range 100 {
		f.write(fmt.Appendf(nil, `{"number":%03d}`+"\n", n))
	}
	end()
	last, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path + ".1")
	if err != nil {
		t.Fatal(err)
	}
	if first, _, _ := strings.Cut(string(last), "\n"); !strings.Contains(first, `"continued":true`) || !strings.HasSuffix(string(last), "{\"number\":099}\n") || len(before) > 1100 || len(last) > 1100 {
		t.Errorf("the files are\n%s\nand\n%s", before, last)
	}
	again := newEventFile(path, slog.New(slog.DiscardHandler))
	end = again.start()
	again.write([]byte("{}\n"))
	end()
	if kept, err := os.ReadFile(path + ".1"); err != nil || string(kept) != string(last) {
		t.Errorf("of the run before there is %q, %v", kept, err)
	}
}

// If the disk is too slow, lines are lost, and the log says so.
func TestEventLogSaysWhatItLost(t *testing.T) {
	t.Parallel()
	f := newEventFile(filepath.Join(t.TempDir(), "log"), slog.New(slog.DiscardHandler))
	for range eventLogWaiting + 7 {
		f.write([]byte("{}\n")) // nothing writes them to the file
	}
	for range 10 {
		<-f.lines
	}
	f.write([]byte("{}\n"))
	for len(f.lines) > 2 {
		<-f.lines
	}
	if line := string(<-f.lines); !strings.Contains(line, `"lost":7`) {
		t.Errorf("the line is %s", line)
	}
}

// The log keeps every property of errors by which a turn decides, or else its replay decides otherwise.
func TestErrorsKeepTheirKinds(t *testing.T) {
	t.Parallel()
	registered, err := os.ReadFile("eventlog_events.go")
	if err != nil {
		t.Fatal(err)
	}
	asked, found := regexp.MustCompile(`errors\.Is\(.+?, ([\w.]*Err\w+)\)`), 0
	for _, pattern := range []string{"core/*.go", "observe/*.go", "rollout/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, match := range asked.FindAllStringSubmatch(string(text), -1) {
				name := match[1]
				if !strings.Contains(name, ".") {
					name = filepath.Dir(file) + "." + name
				}
				if found++; !strings.Contains(string(registered), `": `+name) {
					t.Errorf("%s asks for %s, which errorKinds does not have", file, name)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no file of the core asks for an error")
	}
}
