package routingtest

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/child"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// deadline is the limit for every step of these tests. It is shorter than the default of each timeout whose
// shorter values are tested.
const deadline = 45 * time.Second

// branch returns the version of HAProxy that runs.
func branch(tb testing.TB) config.HAProxyVersion {
	tb.Helper()
	c, err := validate.Find(tb.Context(), haproxy())
	if err != nil {
		tb.Fatal(err)
	}
	return config.HAProxyVersion(regexp.MustCompile(`^\d+\.\d+`).FindString(c.Version))
}

// edge is a HAProxy that runs the compiled manifests.
type edge struct {
	http, https string // addresses
	result      compiler.Result
	pid         int
}

// start compiles the manifests and runs the result.
func start(tb testing.TB, yaml string) edge {
	tb.Helper()
	return startWith(tb, yaml, func(*config.Config) {})
}

// startWith is start with another configuration. edit gets free addresses and ports, which only this HAProxy
// uses.
func startWith(tb testing.TB, yaml string, edit func(*config.Config)) edge {
	tb.Helper()
	return startEdited(tb, func(cfg *config.Config) string {
		edit(cfg)
		return yaml
	})
}

// startEdited is startWith for manifests that depend on the configuration.
func startEdited(tb testing.TB, edit func(*config.Config) (yaml string)) edge {
	tb.Helper()
	cfg := config.Default()
	ip := ownAddress()
	cfg.Bind.Addresses = []string{ip}
	cfg.HTTP.Port, cfg.HTTPS.Port, cfg.Status.Port = freePort(tb, ip), freePort(tb, ip), 0
	cfg.MaxConn, cfg.TrustFileAges = 100, true
	yaml := edit(&cfg)
	result, objects := compile(tb, yaml, cfg)
	dir := tb.TempDir()
	write(tb, dir, bindDraft(tb, dir, result.Draft, objects))
	e := edge{http: fmt.Sprint(ip, ":", cfg.HTTP.Port), https: fmt.Sprint(ip, ":", cfg.HTTPS.Port), result: result}
	e.pid = run(tb, dir)
	return e
}

func haproxy() string { return cmp.Or(os.Getenv("HAPROXY"), "haproxy") }

func compile(tb testing.TB, yaml string, cfg config.Config) (compiler.Result, inputs.Inputs) {
	tb.Helper()
	dir := tb.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(yaml), 0o600); err != nil {
		tb.Fatal(err)
	}
	check, err := validate.Find(tb.Context(), haproxy())
	if err != nil {
		tb.Fatal(err)
	}
	result, err := compiler.Source{Objects: compiler.Files(dir), Config: cfg}.Once(tb.Context(), check, time.Now(), "test")
	if err != nil {
		tb.Fatal(err, result.Diagnostics)
	}
	set, err := manifests.Read(dir)
	if err != nil {
		tb.Fatal(err)
	}
	objects, _, _ := inputs.Gather(set)
	return result, objects
}

// bindDraft binds the draft to the endpoints and certificates of the manifests.
func bindDraft(tb testing.TB, dir string, d snapshots.Draft, objects inputs.Inputs) bind.Bound {
	tb.Helper()
	return bindSlots(tb, dir, d, objects, slots(tb, d, objects))
}

// slots assigns slots to the endpoints of the manifests.
func slots(tb testing.TB, d snapshots.Draft, objects inputs.Inputs) bind.Slots {
	tb.Helper()
	directives, err := bind.Directives(d.Number(1, snapshots.ID{}).Config())
	if err != nil {
		tb.Fatal(err)
	}
	out, _ := bind.AssignSlots(nil, directives, live.Endpoints(inputs.Values(objects.EndpointSlices)), time.Now(), 0)
	return out
}

func bindSlots(tb testing.TB, dir string, d snapshots.Draft, objects inputs.Inputs, slots bind.Slots) bind.Bound {
	tb.Helper()
	s := d.Number(1, snapshots.ID{})
	// Like a pusher, the test leaves out certificates that cannot be served.
	secrets := inputs.Values(objects.Secrets)
	certificates, _ := live.Certificates(secrets)
	more := live.GatherSecrets(secrets)
	expired := map[snapshots.SecretName]bool{}
	for name, pem := range certificates {
		until, _ := live.ExpiryAndIssuer(pem)
		expired[name] = time.Now().After(until)
	}
	bound, err := bind.Bind(s, bind.Inputs{
		Live: bind.Live{
			Certificates: certificates, Expired: expired, Authorities: more.Authorities, Users: more.Users, Values: more.Values,
			Fallback: selfSigned(tb, "fallback.invalid"),
		},
		Slots:  slots,
		Layout: validate.LayoutIn(dir),
	})
	if err != nil {
		tb.Fatal(err)
	}
	return bound
}

func write(tb testing.TB, dir string, bound bind.Bound) {
	tb.Helper()
	files := append([]bind.File{{Path: filepath.Join(dir, "haproxy.cfg"), Content: bound.Config}}, bound.Files...)
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(f.Path, f.Content, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
}

// run runs HAProxy until the test ends, and returns its process. The process dies with this one: the kernel
// sends the death signal when the parent's thread ends, so that this thread is kept. HAProxy opens its
// listeners one after the other, so that run waits for each of them.
func run(tb testing.TB, dir string) (pid int) {
	tb.Helper()
	var output bytes.Buffer
	file := filepath.Join(dir, "haproxy.cfg")
	awaited := listeners(tb, file)
	cmd := exec.Command(haproxy(), "-db", "-f", file)
	cmd.Stdout, cmd.Stderr = &output, &output
	ended, err := child.Start(cmd)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		select {
		case <-ended:
			tb.Errorf("haproxy had ended by itself: %v", cmd.ProcessState)
		default:
			if err := cmd.Process.Kill(); err != nil {
				tb.Error(err)
			}
			<-ended
		}
		if tb.Failed() {
			tb.Logf("haproxy said:\n%s", output.String())
		}
	})
	await(tb, func() error {
		select {
		case <-ended:
			tb.Fatalf("haproxy ended: %v\n%s", cmd.ProcessState, output.String())
		default:
		}
		open := listening(tb)
		for _, address := range awaited {
			if !open[address] {
				return fmt.Errorf("HAProxy does not listen at %s", address)
			}
		}
		return nil
	})
	return cmd.Process.Pid
}

// await repeats try until it returns no error.
func await(tb testing.TB, try func() error) {
	tb.Helper()
	end := time.Now().Add(deadline)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			tb.Fatal(err)
		}
		<-tick.C
	}
}
