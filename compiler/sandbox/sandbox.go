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
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/child"
	"github.com/hapsnap/hapsnap/internal/haproxycfg"
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
	return StartSnapshot(ctx, check, d.Number(1, snapshots.ID{}), secrets)
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

// Server is a server line of haproxy.cfg. Service is empty if a template wrote the line for no Service. Then Address is its
// address outside of a sandbox; otherwise Address is empty.
type Server struct {
	Backend, Name string
	Service       string // as namespace/name:port
	Address       string
}

// enclosed is a haproxy.cfg that connects to nothing outside of the sandbox, and cannot be reached from outside.
type enclosed struct {
	config  string
	sockets map[int]string // the path of the socket for each port
	paths   []string       // of all sockets that clients connect to
}

// enclosure rewrites a bound haproxy.cfg.
type enclosure struct {
	dir      string
	address  func(backend, server, address string) string // of the server that stands in
	tracks   bool                                         // whether checks are needed, for servers follow those of others
	internal map[string]string                            // sockets between parts of HAProxy, by name
	out      enclosed

	section, name string
}

// enclose makes every bind line a socket in dir, and has every server line lead
// to the address of a server of ours.
func enclose(config, dir string, address func(backend, server, address string) string) enclosed {
	e := enclosure{dir: dir, address: address, internal: map[string]string{}, out: enclosed{sockets: map[int]string{}}}
	lines := strings.Split(config, "\n")
	for _, text := range lines {
		l := newLine(text)
		if name := l.word(1); l.word(0) == "bind" && isInternal(name) && e.internal[name] == "" {
			e.internal[name] = filepath.Join(dir, fmt.Sprint("i", len(e.internal)))
		}
		e.tracks = e.tracks || l.word(0) == "server" && l.has(3, "track")
	}
	for i, text := range lines {
		lines[i] = e.line(newLine(text))
	}
	e.out.config = strings.Join(lines, "\n")
	return e.out
}

// isInternal tells the address of a socket of the machine's from one of a network.
func isInternal(address string) bool {
	return strings.HasPrefix(address, "abns@") || strings.HasPrefix(address, "unix@") || strings.HasPrefix(address, "/")
}

// proxies are the sections with bind and server lines.
var proxies = map[string]bool{"frontend": true, "backend": true, "listen": true, "defaults": true}

// outside are the lines of the global section that concern the process and its
// machine.
var outside = map[string]bool{
	"chroot": true, "user": true, "group": true, "uid": true, "gid": true, "daemon": true, "pidfile": true,
	"master-worker": true, "cpu-map": true, "ulimit-n": true, "log": true, "unix-bind": true,
}

// line rewrites one line. None is added or taken away, so that what HAProxy says
// of a line can be told.
func (e *enclosure) line(l line) string {
	first := l.word(0)
	switch {
	case first == "":
		return l.text
	case haproxycfg.BeginsSection(first):
		e.section, e.name = first, l.word(1)
	case e.section == "global":
		if outside[first] || first == "stats" && l.word(1) == "socket" {
			return ""
		}
		return l.text
	case proxies[e.section]:
		return e.proxy(first, l)
	}
	return l.text
}

func (e *enclosure) proxy(first string, l line) string {
	switch first {
	case "bind":
		return e.bind(l)
	case "server":
		return e.server(l)
	case "default-server":
		return trusting(l.text)
	case "acl":
		if l.word(1) == "hapsnap_withheld" { // every server is at an address of this machine
			return l.text[:l.words[0].Start] + "acl hapsnap_withheld always_false"
		}
	case "log":
		if l.word(1) != "global" {
			return ""
		}
	case "source":
		return ""
	case "http-request":
		return e.named(l)
	case "tcp-request":
		// A rule moves to where the address is known that the header of the PROXY protocol names.
		if l.word(1) != "connection" {
			return l.text
		}
		if strings.HasPrefix(l.word(2), "expect-") {
			return ""
		}
		return l.withWord(1, "session")
	}
	return l.text
}

// bind has the line listen on a socket. Clients say in a PROXY header who they are.
func (e *enclosure) bind(l line) string {
	address := l.word(1)
	indent := l.text[:l.words[0].Start]
	if path := e.internal[address]; path != "" {
		return fmt.Sprintf("%sbind unix@%s %s", indent, path, l.from(2))
	}
	if strings.HasPrefix(address, "quic") {
		return ""
	}
	path := filepath.Join(e.dir, fmt.Sprint("b", len(e.out.paths)))
	e.out.paths = append(e.out.paths, path)
	for one := range strings.SplitSeq(address, ",") {
		port, err := strconv.Atoi(one[strings.LastIndexByte(one, ':')+1:])
		if _, known := e.out.sockets[port]; err == nil && !known {
			e.out.sockets[port] = path
		}
	}
	proxied := "accept-proxy "
	if l.has(2, "accept-proxy") {
		proxied = ""
	}
	return fmt.Sprintf("%sbind unix@%s %s%s", indent, path, proxied, l.from(2))
}

// named has an action lead to the socket that it names.
func (e *enclosure) named(l line) string {
	for i := range l.words {
		if path := e.internal[l.word(i)]; path != "" {
			return l.withWord(i, "unix@"+path)
		}
	}
	return l.text
}

// server has the line lead to a server of ours. It is not checked, so that it is
// up from the beginning, and always.
func (e *enclosure) server(l line) string {
	address := l.word(2)
	l.text = l.text[:l.words[len(l.words)-1].End] // without a comment, for there is more to come
	if path := e.internal[address]; path != "" {
		return l.withWord(2, "unix@"+path)
	}
	text := trusting(l.withWord(2, e.address(e.name, l.word(1), address)))
	if e.tracks {
		return text
	}
	return text + " no-check no-agent-check"
}

// trusting has a server be believed whatever certificate it shows: those of ours
// are of no known authority.
func trusting(text string) string {
	l := newLine(text)
	for i := len(l.words) - 2; i >= 0; i-- {
		if l.word(i) == "verify" && l.word(i+1) == "required" {
			l.text = l.withWord(i+1, "none")
		}
	}
	return l.text
}

// line is a line of haproxy.cfg.
type line struct {
	text  string
	words []haproxycfg.Word
}

func newLine(text string) line {
	return line{text, haproxycfg.Line{Text: []byte(text)}.Words()}
}

// word returns a word as HAProxy sees it, or "".
func (l line) word(i int) string {
	if i >= len(l.words) {
		return ""
	}
	return l.words[i].Text
}

// from returns the line from a word on, without what stands before it.
func (l line) from(i int) string {
	if i >= len(l.words) {
		return ""
	}
	return l.text[l.words[i].Start:]
}

// withWord returns the text with another word in the place of one.
func (l line) withWord(i int, word string) string {
	return l.text[:l.words[i].Start] + word + l.text[l.words[i].End:]
}

// has reports whether one of the words from i on is word.
func (l line) has(i int, word string) bool {
	for ; i < len(l.words); i++ {
		if l.word(i) == word {
			return true
		}
	}
	return false
}
