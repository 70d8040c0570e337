package bind

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem/pemtest"
)

// haproxyBinary is the HAProxy to test with.
func haproxyBinary() string { return cmp.Or(os.Getenv("HAPROXY"), "haproxy") }

// install writes a bound snapshot as it would be on an instance.
func install(t *testing.T, b Bound, dir string) (config string) {
	t.Helper()
	config = filepath.Join(dir, snapshots.ConfigFile)
	for _, f := range append([]File{{Path: config, Content: b.Config}}, b.Files...) {
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.Path, f.Content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return config
}

func layoutIn(dir string) Layout {
	return Layout{filepath.Join(dir, "maps"), filepath.Join(dir, "ssl"), filepath.Join(dir, "general")}
}

// HAProxy accepts the result of Bind, whichever live data exists.
func TestHAProxyAcceptsBound(t *testing.T) {
	const base = `-- haproxy.cfg --
global
    maxconn 100
defaults
    mode http
    timeout client 1s
    timeout connect 1s
    timeout server 1s
frontend web
    bind 127.0.0.1:1
    bind 127.0.0.1:2 ssl crt-list files/https.crtlist
    bind 127.0.0.1:3 ssl crt certs/direct.pem
    use_backend %[req.hdr(host),map_str(maps/host.map,shop)]
backend shop
    balance source
    default-server check inter 5s
    #hapsnap servers shop/web:http weight=90 -- ssl verify required ca-file files/ca.pem sni str("a#b")
    #hapsnap servers shop/api slots=3 -- cookie x
backend empty
    #hapsnap servers shop/none
-- maps/host.map --
shop.example shop
-- files/ca.pem --
-- files/https.crtlist --
certs/fallback.pem
certs/ec.pem [alpn h2,http/1.1] ec.example *.ec.example
certs/ed.pem ed.example
certs/gone.pem gone.example
-- certificates --
certs/fallback.pem
certs/ec.pem shop/ec
certs/ed.pem shop/ed
certs/gone.pem shop/gone
certs/direct.pem shop/direct
`
	for name, liveData := range map[string]string{
		"nothing live": "",
		"all live":     "-- secrets --\nshop/ec ecdsa\nshop/ed ed25519\nshop/gone ecdsa\nshop/direct ed25519\n-- endpoints --\nshop/web:http 127.0.0.1:80\nshop/web:http [::1]:80\nshop/web:http [::ffff:10.0.0.1]:80 draining\nshop/api 127.0.0.1:81\n",
		"broken":       "-- secrets --\nshop/ec broken\nshop/ed broken\nshop/direct broken\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c := readBindCase(t, txtar.Parse([]byte(base+liveData)))
			for i, f := range c.snapshot.Files {
				if f.Path == "files/ca.pem" {
					c.snapshot.Files[i].Content = pemtest.Certify(t, "ca", pemtest.ECKey(), nil)
				}
			}
			config := install(t, must(c.bind(layoutIn(dir)))(t), dir)
			if out, err := exec.Command(haproxyBinary(), "-c", "-dW", "-f", config).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// CheckKeyPair and HAProxy agree on which key pairs can be loaded: a pair that passes the check must never keep
// an instance from starting.
func TestHAProxyLoadsCheckedCertificates(t *testing.T) {
	leaf := pemtest.Certify(t, "a.example", pemtest.ECKey(), pemtest.ECKey2())
	for name, data := range map[string][]byte{
		"ECDSA":         pemtest.SelfSigned(t, "a.example", pemtest.ECKey()),
		"RSA":           pemtest.SelfSigned(t, "a.example", pemtest.RSAKey()),
		"Ed25519":       pemtest.SelfSigned(t, "a.example", pemtest.EdKey),
		"with a chain":  bytes.Join([][]byte{leaf, pemtest.Certify(t, "issuer", pemtest.ECKey2(), nil), pemtest.KeyPEM(t, pemtest.ECKey())}, nil),
		"short RSA":     pemtest.SelfSigned(t, "a.example", pemtest.WeakKey()),
		"short chain":   bytes.Join([][]byte{leaf, pemtest.Certify(t, "issuer", pemtest.WeakKey(), nil), pemtest.KeyPEM(t, pemtest.ECKey())}, nil),
		"mismatch":      append(bytes.Clone(leaf), pemtest.KeyPEM(t, pemtest.ECKey2())...),
		"broken chain":  bytes.Join([][]byte{leaf, pemtest.Block("CERTIFICATE", "junk"), pemtest.KeyPEM(t, pemtest.ECKey())}, nil),
		"no key":        leaf,
		"encrypted key": append(bytes.Clone(leaf), pemtest.Block("ENCRYPTED PRIVATE KEY", "junk")...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c := bindCase{snapshot: draftOf("defaults\n timeout client 1s\n timeout connect 1s\n timeout server 1s\nlisten l\n bind 127.0.0.1:1 ssl crt " + dir + "/a.pem\n")}
			config := install(t, must(c.bind(layoutIn(dir)))(t), dir)
			if err := os.WriteFile(dir+"/a.pem", data, 0o600); err != nil {
				t.Fatal(err)
			}
			_, want := pem.CheckKeyPair(data)
			if out, err := exec.Command(haproxyBinary(), "-c", "-f", config).CombinedOutput(); (err == nil) != (want == nil) {
				t.Errorf("CheckKeyPair says %v, but HAProxy %v\n%s", want, err, out)
			}
		})
	}
}

// worker is a running HAProxy. Its sockets for commands and for requests are
// files in dir, so that no port is taken.
type worker struct {
	dir string
}

func startWorker(t *testing.T, snapshot snapshots.Snapshot, binding Inputs, dir string) worker {
	t.Helper()
	bound := must(Bind(snapshot, binding))(t)
	config := install(t, bound, dir)
	// The worker dies with the thread that started it.
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, haproxyBinary(), "-db", "-f", config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("haproxy said:\n%s", log.String())
		}
	})
	w := worker{dir}
	waitFor(t, "the node in show info", func() bool { return strings.Contains(w.say("show info"), "node: "+bound.Node+"\n") })
	return w
}

// say sends a command to the stats socket; an error is no answer.
func (w worker) say(command string) string {
	conn, err := net.Dial("unix", w.dir+"/stats")
	if err != nil {
		return ""
	}
	defer conn.Close()
	fmt.Fprintln(conn, command)
	answer, _ := io.ReadAll(conn)
	return string(answer)
}

// get returns the name of the backend that answers a request through HAProxy, or the status.
func (w worker) get() string {
	dial := func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", w.dir+"/http") }
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}, Timeout: time.Minute}
	resp, err := client.Get("http://shop.example")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return resp.Status
	}
	return string(body)
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline, poll := time.After(time.Minute), time.NewTicker(5*time.Millisecond)
	defer poll.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		case <-poll.C:
		}
	}
}

func echo(t *testing.T, name string) netip.AddrPort {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }))
	t.Cleanup(s.Close)
	return netip.MustParseAddrPort(s.Listener.Addr().String())
}

// Bind relies on this behaviour of HAProxy, also with a static balance algorithm: a slot that was disabled in
// the configuration takes an endpoint at run time, and one that was drained can be set to drain and used again.
func TestSlotsWorkAtRunTime(t *testing.T) {
	dir := t.TempDir()
	old, next := echo(t, "old"), echo(t, "new")
	snapshot := draftOf(fmt.Sprintf(`global
    stats socket %[1]s/stats level admin
defaults
    mode http
    timeout client 10s
    timeout connect 10s
    timeout server 10s
listen shop
    bind %[1]s/http
    balance uri whole
    #hapsnap servers shop/web weight=50 -- check inter 1s
    #hapsnap servers shop/api weight=50 slots=1
`, dir))
	web, api := SlotKey{"shop", snapshots.ServicePort{Namespace: "shop", Service: "web", Port: ""}}, SlotKey{"shop", snapshots.ServicePort{Namespace: "shop", Service: "api", Port: ""}}
	draining := Slot{old.Addr().String(), int(old.Port()), SlotDrain, time.Time{}}
	w := startWorker(t, snapshot, Inputs{Slots: Slots{web: {draining, spareSlot}, api: {spareSlot}}, Layout: layoutIn(dir)}, dir)

	if got := w.get(); !strings.HasPrefix(got, "503") {
		t.Errorf("a drained slot took a new session: %s", got)
	}
	w.say("set server shop/s1 state drain")
	// The admin state is 8, drain, and 4 for a server that the configuration
	// disabled.
	if got := w.say("show servers state shop"); !strings.Contains(got, " s1 127.0.0.1 2 12 ") {
		t.Errorf("s1 is not draining:\n%s", got)
	}
	if got := w.get(); !strings.HasPrefix(got, "503") {
		t.Errorf("a draining slot took a new session: %s", got)
	}

	w.say(fmt.Sprintf("set server shop/s2 addr %s port %d", next.Addr(), next.Port()))
	w.say("set server shop/s2 state ready")
	waitFor(t, "the new endpoint to answer", func() bool { return w.get() == "new" })

	w.say("set server shop/s2 state maint")
	w.say("set server shop/s1 state ready")
	waitFor(t, "the old endpoint to answer", func() bool { return w.get() == "old" })
}
