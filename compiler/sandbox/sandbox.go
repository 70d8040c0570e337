// Package sandbox runs a compiled configuration in a HAProxy process of its own. It reports
// which server of which backend answers a request, or that HAProxy answers it.
//
// A sandbox cannot be reached from another machine, and reaches none. HAProxy listens on
// sockets in a directory that only its user can enter. Every server line leads to a stand-in
// server on the loopback. Log targets and statistics sockets are removed. Maps, rules,
// certificates, cookies and Lua work as they do where the snapshot is pushed.
//
// Every Service has one endpoint, which is up and answers every request with 200, over
// HTTP/1.1, HTTP/2, TLS or FastCGI. So does every service that authenticates requests. A
// test's requests use HTTP/1.1, with or without TLS, and can come from any address.
//
// # Decisions
//
// A sandbox rewrites the text of the configuration that will be pushed. Compiling again for
// other addresses would test another configuration, and templates may write bind and server
// lines of their own. Each bind line becomes a socket that takes a PROXY header, so that a
// test chooses the address of the client and no port has to be free. Each server line leads
// to a stand-in, those of templates too, so that no request leaves the machine. Nothing that
// decides about a request is added or changed.
package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/child"
	"github.com/hapsnap/hapsnap/internal/scratch"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// ErrNoListener is returned for a request to a port that no bind line has.
var ErrNoListener = errors.New("nothing listens on port")

// Sandbox is a running HAProxy. Its methods are for one goroutine at a time.
type Sandbox struct {
	sockets map[int]string
	lines   []Server // by the number of the server that stands in
	servers servers
	process *process
	dir     string
	folder  *scratch.Folder
}

// Start runs a draft in the HAProxy of the checker, which accepted it. What the
// Secrets hold is used; what else is needed of Secrets is stood in for.
func Start(ctx context.Context, check *validate.Checker, d snapshots.Draft, secrets []corev1.Secret) (*Sandbox, error) {
	return StartSnapshot(ctx, check, d.Seal(1, snapshots.ID{}), secrets)
}

// StartSnapshot does what Start does, with a snapshot.
func StartSnapshot(ctx context.Context, check *validate.Checker, s snapshots.Snapshot, secrets []corev1.Secret) (*Sandbox, error) {
	// The name of the directory is short enough for sockets.
	folder, err := scratch.Make("", validate.SandboxPrefix)
	if err == nil && len(folder.Path) > longestDirectory {
		folder.Remove()
		folder, err = scratch.Make("/tmp", validate.SandboxPrefix)
	}
	if err != nil {
		return nil, fmt.Errorf("make a directory for the sandbox: %w", err)
	}
	t := &Sandbox{dir: folder.Path, folder: folder}
	if err := t.start(ctx, check, s, secrets); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Close ends HAProxy and the servers.
func (t *Sandbox) Close() {
	if t.process != nil {
		t.process.kill()
	}
	t.servers.close()
	t.folder.Remove()
}

// longestDirectory leaves room for the name of a socket, in 108 bytes, to which
// HAProxy adds while it starts.
const longestDirectory = 70

func (t *Sandbox) start(ctx context.Context, check *validate.Checker, s snapshots.Snapshot, secrets []corev1.Secret) error {
	bound, services, err := t.bind(check, s, secrets)
	if err != nil {
		return err
	}
	var wrong error
	e := enclose(string(bound.Config), t.dir, func(backend, name, address string) string {
		ours, err := t.servers.add(ctx)
		wrong = cmp.Or(wrong, err)
		line := Server{Backend: backend, Name: name, Service: services[[2]string{backend, name}]}
		if line.Service == "" {
			line.Address = address
		}
		t.lines = append(t.lines, line)
		return ours
	})
	if wrong != nil {
		return wrong
	}
	t.sockets, bound.Config = e.sockets, []byte(e.config)
	if err := validate.Stage(t.dir, bound); err != nil {
		return err
	}
	t.process, err = run(ctx, check.Path, t.dir)
	if err != nil {
		return err
	}
	if err := t.process.listens(ctx, e.paths); err != nil {
		return fmt.Errorf("start HAProxy in the sandbox: %s", bound.Redact(err.Error()))
	}
	return nil
}

// bind binds the snapshot with one endpoint for each Service, and returns the
// Services of the server lines, by backend and name.
func (t *Sandbox) bind(check *validate.Checker, s snapshots.Snapshot, secrets []corev1.Secret) (bind.Bound, map[[2]string]string, error) {
	needs, err := bind.Needs(s.Config(), s.Manifest.Spec.Certificates)
	if err != nil {
		return bind.Bound{}, nil, err
	}
	data, err := check.StandIns(nil, needs)
	if err != nil {
		return bind.Bound{}, nil, err
	}
	certificates, _ := live.Certificates(secrets) // those that cannot be served are stood in for
	data.Versions = map[string][]byte{}
	for _, ref := range s.Manifest.Spec.Certificates {
		if content, ok := certificates[ref.Secret]; ok && ref.Version != "" {
			data.Versions[ref.Version] = content
		}
	}
	more := live.GatherSecrets(secrets)
	maps.Copy(data.Certificates, certificates)
	maps.Copy(data.Authorities, more.Authorities)
	maps.Copy(data.Users, more.Users)
	maps.Copy(data.Values, more.Values)
	if t.servers.certificate, err = tls.X509KeyPair(data.Fallback, data.Fallback); err != nil {
		return bind.Bound{}, nil, fmt.Errorf("read a throw-away certificate: %w", err)
	}
	directives, err := bind.Directives(s.Config())
	if err != nil {
		return bind.Bound{}, nil, err
	}
	slots, services := bind.Slots{}, map[[2]string]string{}
	for _, d := range directives {
		// Where it leads is said later.
		slots[d.Key()] = []bind.Slot{{Address: bind.SpareAddress, Port: bind.SparePort, State: bind.SlotReady}}
		services[[2]string{d.Backend, d.ServerName(0)}] = d.Service.String()
	}
	bound, err := bind.Bind(s, bind.Inputs{Live: data, Slots: slots, Layout: validate.LayoutIn(t.dir)})
	return bound, services, err
}

// process is a HAProxy.
type process struct {
	cmd    *exec.Cmd
	output bytes.Buffer // to be read once it has ended
	ended  <-chan struct{}
}

// run starts HAProxy in a directory. On Linux it dies with this process.
func run(ctx context.Context, haproxy, dir string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, haproxy, "-db", "-f", snapshots.ConfigFile)}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, &p.output, &p.output
	var err error
	if p.ended, err = child.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", haproxy, err)
	}
	return p, nil
}

// kill ends the process.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// errEnded means that HAProxy ended by itself.
var errEnded = errors.New("haproxy ended")

// listens waits until there is a listener on each socket.
func (p *process) listens(ctx context.Context, paths []string) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for _, path := range paths {
		for {
			c, err := new(net.Dialer).DialContext(ctx, "unix", path)
			if err == nil {
				c.Close()
				break
			}
			select {
			case <-p.ended:
				return fmt.Errorf("%w: %s", errEnded, bytes.TrimSpace(p.output.Bytes()))
			case <-ctx.Done():
				return fmt.Errorf("wait for haproxy: %w", context.Cause(ctx))
			case <-tick.C:
			}
		}
	}
	return nil
}
