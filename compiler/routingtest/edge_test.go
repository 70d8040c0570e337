package routingtest

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
	"syscall"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// deadline is how long anything in these tests may take: less than the default of
// any timeout that is to be shorter in one of them.
const deadline = 45 * time.Second

// branch returns which HAProxy runs.
func branch(t testing.TB) config.HAProxyVersion {
	t.Helper()
	c, err := validate.Find(t.Context(), haproxy())
	if err != nil {
		t.Fatal(err)
	}
	return config.HAProxyVersion(regexp.MustCompile(`^\d+\.\d+`).FindString(c.Version))
}

// edge is a HAProxy that runs what manifests were compiled to.
type edge struct {
	http, https string // addresses
	result      compiler.Result
	pid         int
}

// start compiles the manifests and runs the result.
func start(t testing.TB, yaml string) edge {
	t.Helper()
	return startWith(t, yaml, func(*config.Config) {})
}

// startWith does so with another configuration than the default. The addresses
// and ports that edit finds are free ones, of this HAProxy alone.
func startWith(t testing.TB, yaml string, edit func(*config.Config)) edge {
	t.Helper()
	return startEdited(t, func(cfg *config.Config) string {
		edit(cfg)
		return yaml
	})
}

// startEdited is startWith for manifests that depend on the configuration.
func startEdited(t testing.TB, edit func(*config.Config) (yaml string)) edge {
	t.Helper()
	cfg := config.Default()
	ip := ownAddress()
	cfg.Bind.Addresses = []string{ip}
	cfg.HTTP.Port, cfg.HTTPS.Port, cfg.Status.Port = freePort(t, ip), freePort(t, ip), 0
	cfg.MaxConn, cfg.TrustFileAges = 100, true
	yaml := edit(&cfg)
	result, objects := compile(t, yaml, cfg)
	dir := t.TempDir()
	write(t, dir, bindDraft(t, dir, result.Draft, objects))
	e := edge{http: fmt.Sprint(ip, ":", cfg.HTTP.Port), https: fmt.Sprint(ip, ":", cfg.HTTPS.Port), result: result}
	addresses := []string{e.http}
	if cfg.HTTPS.Port > 0 {
		addresses = append(addresses, e.https)
	}
	e.pid = run(t, dir, addresses...)
	return e
}

func haproxy() string { return cmp.Or(os.Getenv("HAPROXY"), "haproxy") }

func compile(t testing.TB, yaml string, cfg config.Config) (compiler.Result, inputs.Inputs) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	check, err := validate.Find(t.Context(), haproxy())
	if err != nil {
		t.Fatal(err)
	}
	result, err := compiler.Source{Objects: compiler.Files(dir), Config: cfg}.Once(t.Context(), check, time.Now(), "test")
	if err != nil {
		t.Fatal(err, result.Diagnostics)
	}
	set, err := manifests.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	objects, _, _ := inputs.Gather(set)
	return result, objects
}

// bindDraft joins the draft with the endpoints and certificates of the manifests.
func bindDraft(t testing.TB, dir string, d snapshots.Draft, objects inputs.Inputs) bind.Bound {
	t.Helper()
	return bindSlots(t, dir, d, objects, slots(t, d, objects))
}

// slots gives the endpoints of the manifests their slots.
func slots(t testing.TB, d snapshots.Draft, objects inputs.Inputs) bind.Slots {
	t.Helper()
	directives, err := bind.Directives(d.Seal(1, snapshots.ID{}).Config())
	if err != nil {
		t.Fatal(err)
	}
	out, _ := bind.AssignSlots(nil, directives, live.Endpoints(inputs.Values(objects.EndpointSlices)), time.Now(), 0)
	return out
}

func bindSlots(t testing.TB, dir string, d snapshots.Draft, objects inputs.Inputs, slots bind.Slots) bind.Bound {
	t.Helper()
	s := d.Seal(1, snapshots.ID{})
	// Those that cannot be served are left out, as a pusher does.
	secrets := inputs.Values(objects.Secrets)
	certificates, _ := live.Certificates(secrets)
	more := live.GatherSecrets(secrets)
	expired := map[snapshots.SecretName]bool{}
	for name, pem := range certificates {
		expired[name] = time.Now().After(live.ExpiresAt(pem))
	}
	bound, err := bind.Bind(s, bind.Inputs{
		Live: bind.Live{
			Certificates: certificates, Expired: expired, Authorities: more.Authorities, Users: more.Users, Values: more.Values,
			Fallback: selfSigned(t, "fallback.invalid"),
		},
		Slots:  slots,
		Layout: validate.LayoutIn(dir),
	})
	if err != nil {
		t.Fatal(err)
	}
	return bound
}

func write(t testing.TB, dir string, bound bind.Bound) {
	t.Helper()
	files := append([]bind.File{{Path: filepath.Join(dir, "haproxy.cfg"), Content: bound.Config}}, bound.Files...)
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.Path, f.Content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs HAProxy until the test ends, and returns its process. The process dies with this one: its
// thread is kept until then, for the kernel ties the death signal to it. It
// listens at the addresses one after the other, so that each is waited for.
func run(t testing.TB, dir string, addresses ...string) (pid int) {
	t.Helper()
	var output bytes.Buffer
	cmd := exec.Command(haproxy(), "-db", "-f", filepath.Join(dir, "haproxy.cfg"))
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case err := <-ended:
			t.Errorf("haproxy had ended by itself: %v", err)
		default:
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
			<-ended //nolint:errcheck // it was killed
		}
		if t.Failed() {
			t.Logf("haproxy said:\n%s", output.String())
		}
	})
	await(t, func() error {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("haproxy ended: %v\n%s", err, output.String())
		default:
		}
		for _, address := range addresses {
			c, err := net.Dial("tcp", address)
			if err != nil {
				return err
			}
			c.Close()
		}
		return nil
	})
	return cmd.Process.Pid
}

// await polls until there is no error.
func await(t testing.TB, try func() error) {
	t.Helper()
	end := time.Now().Add(deadline)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
		<-tick.C
	}
}
