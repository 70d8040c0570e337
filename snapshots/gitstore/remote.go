package gitstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/client"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
)

// remote is what a store asks of the repository. Each call is one or two
// requests of git's wire protocol.
type remote interface {
	// List returns all references; an empty repository has none.
	List(ctx context.Context) (map[string]plumbing.Hash, error)
	// Some returns the references that begin with one of the prefixes, and false if it cannot. It says nothing of why:
	// the caller then calls List.
	Some(ctx context.Context, prefixes ...string) (map[string]plumbing.Hash, bool)
	// Fetch stores the commit of a reference with its history up to a depth: 1 is only the commit.
	Fetch(ctx context.Context, commit plumbing.Hash, depth int, into *filesystem.Storage) error
	// Push changes the references if each is what the update says it was:
	// all or none where the repository is able to, in this order otherwise,
	// up to the first that fails. After an error, any of them may have changed.
	Push(ctx context.Context, updates []update, pack []byte) error
	// Pack packs the tags, if the repository is on this host.
	Pack(ctx context.Context) error
}

// update changes a reference from one hash to another; zero stands for none.
type update struct {
	name     plumbing.ReferenceName
	old, new plumbing.Hash
}

// wire is the repository at an endpoint, through go-git's transports.
type wire struct {
	endpoint    *transport.Endpoint
	password    string // of the URL
	credentials Credentials
	patience    time.Duration
	web         transport.Transport // keeps connections, also those of another CAFile; nil unless http
	pace        pace
	step        func(string) error
}

// newWire takes the password out of the endpoint: it is in no text made of it.
func newWire(e *transport.Endpoint, c Credentials, step func(string) error) *wire {
	w := &wire{endpoint: e, password: e.Password, credentials: c, patience: patience, step: step}
	e.Password = ""
	if e.Protocol == "http" || e.Protocol == "https" {
		w.web = newWeb(aliveWithin)
	}
	return w
}

// aliveWithin is how long nothing arrives on a connection before it is checked, and how long that takes at most.
const aliveWithin = 15 * time.Second

// newWeb returns a client for HTTP. With HTTP/2 all requests share a connection. If that died and nobody said so, as
// where a firewall has forgotten it, each would wait in vain, until TCP gives it up after a quarter of an hour.
func newWeb(within time.Duration) transport.Transport {
	connections := &http.Transport{}
	if base, ok := http.DefaultTransport.(*http.Transport); ok {
		connections = base.Clone()
	}
	connections.HTTP2 = &http.HTTP2Config{SendPingTimeout: within, PingTimeout: within}
	return githttp.NewClientWithOptions(&http.Client{Transport: connections}, &githttp.ClientOptions{CacheMaxEntries: 1})
}

// patience is how long one call may take. Packs are small.
const patience = 2 * time.Minute

func (w *wire) List(ctx context.Context) (map[string]plumbing.Hash, error) {
	return within(ctx, w, func(ctx context.Context) (_ map[string]plumbing.Hash, err error) {
		session, err := w.uploadPack()
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, session.Close()) }()
		advertised, err := session.AdvertisedReferencesContext(ctx)
		if errors.Is(err, transport.ErrEmptyRemoteRepository) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return advertised.References, nil
	})
}

func (w *wire) Fetch(ctx context.Context, commit plumbing.Hash, depth int, into *filesystem.Storage) error {
	_, err := within(ctx, w, func(ctx context.Context) (_ struct{}, err error) {
		session, err := w.uploadPack()
		if err != nil {
			return struct{}{}, err
		}
		defer func() { err = errors.Join(err, session.Close()) }()
		advertised, err := session.AdvertisedReferencesContext(ctx)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, fetch(ctx, session, commit, depth, advertised.Capabilities, into)
	})
	return err
}

// fetch asks for the commit to a depth, and says that it has nothing: whole
// trees are small, and there is nothing to negotiate.
func fetch(ctx context.Context, session transport.UploadPackSession, commit plumbing.Hash, depth int, can *capability.List, into *filesystem.Storage) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request := packp.NewUploadPackRequestFromCapabilities(can)
	request.Wants = []plumbing.Hash{commit}
	request.Depth = packp.DepthCommits(depth)
	if err := ask(request.Capabilities, can, capability.Shallow, capability.NoProgress); err != nil {
		return err
	}
	response, err := session.UploadPack(ctx, request)
	if err != nil {
		return err
	}
	pack, err := spool(ctx, demultiplexed(request.Capabilities, response, nil), into.Filesystem().Root())
	if err == nil {
		err = errors.Join(packfile.UpdateObjectStorage(into, pack), pack.Close())
	}
	if err != nil {
		// Stop the server, which may wait until we read on.
		cancel()
		_, _ = io.Copy(io.Discard, response)
		return errors.Join(err, response.Close())
	}
	return errors.Join(addShallow(into, commit), response.Close())
}

// ask adds to what is asked for those of the capabilities that the server has.
func ask(asked, can *capability.List, capabilities ...capability.Capability) error {
	for _, c := range capabilities {
		if !can.Supports(c) {
			continue
		}
		if err := asked.Set(c); err != nil {
			return err
		}
	}
	return nil
}

// addShallow notes that the parents of a commit are left out on purpose.
func addShallow(in *filesystem.Storage, commit plumbing.Hash) error {
	known, err := in.Shallow()
	if err != nil {
		return err
	}
	return in.SetShallow(append(known, commit))
}

// demultiplexed returns what r has beside the words for people, which are written to said unless it is nil.
func demultiplexed(agreed *capability.List, r io.Reader, said sideband.Progress) io.Reader {
	kind := sideband.Sideband64k
	switch {
	case agreed.Supports(capability.Sideband64k):
	case agreed.Supports(capability.Sideband):
		kind = sideband.Sideband
	default:
		return r
	}
	d := sideband.NewDemuxer(kind, r)
	d.Progress = said
	return d
}

func (w *wire) Push(ctx context.Context, updates []update, pack []byte) error {
	rest, err := w.push(ctx, updates, pack)
	for err == nil && len(rest) > 0 {
		if err = w.step("between references"); err == nil {
			rest, err = w.push(ctx, rest, emptyPack)
		}
	}
	return err
}

// push makes the updates if the repository can make them all or none, and the
// first of them otherwise. It returns the rest.
func (w *wire) push(ctx context.Context, updates []update, pack []byte) ([]update, error) {
	return within(ctx, w, func(ctx context.Context) (rest []update, err error) {
		session, err := w.receivePack(ctx, updates)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, session.Close()) }()
		advertised, err := session.AdvertisedReferencesContext(ctx)
		if err != nil {
			return nil, err
		}
		request := packp.NewReferenceUpdateRequestFromCapabilities(advertised.Capabilities)
		words := &words{}
		request.Progress = words
		if err := ask(request.Capabilities, advertised.Capabilities, capability.Sideband64k, capability.Quiet, capability.Atomic); err != nil {
			return nil, err
		}
		if !advertised.Capabilities.Supports(capability.Atomic) {
			updates, rest = updates[:1], updates[1:]
		}
		// A pack, if only an empty one, goes with the updates unless all of them delete.
		for _, u := range updates {
			request.Commands = append(request.Commands, &packp.Command{Name: u.name, Old: u.old, New: u.new})
			if !u.new.IsZero() {
				request.Packfile = io.NopCloser(bytes.NewReader(pack))
			}
		}
		report, err := session.ReceivePack(ctx, request)
		if err == nil {
			err = accepted(report, updates)
		}
		return rest, words.explain(err, report)
	})
}

var errNoReport = errors.New("no report of what became of the push")

// accepted returns an error unless the repository reports each update as made. Without a report, the outcome is
// unknown.
func accepted(report *packp.ReportStatus, updates []update) error {
	if report == nil {
		return errNoReport
	}
	if err := report.Error(); err != nil {
		return err
	}
	if len(report.CommandStatuses) != len(updates) {
		return fmt.Errorf("%d references pushed, and %d reported", len(updates), len(report.CommandStatuses))
	}
	return nil
}

func (w *wire) uploadPack() (transport.UploadPackSession, error) {
	t, endpoint, auth, err := w.connection()
	if err != nil {
		return nil, err
	}
	return t.NewUploadPackSession(endpoint, auth)
}

// pushing is a session for one push.
type pushing interface {
	AdvertisedReferencesContext(ctx context.Context) (*packp.AdvRefs, error)
	ReceivePack(ctx context.Context, request *packp.ReferenceUpdateRequest) (*packp.ReportStatus, error)
	io.Closer
}

func (w *wire) receivePack(ctx context.Context, updates []update) (pushing, error) {
	if w.isLocal() {
		session, err := w.pushLocally(ctx, updates)
		if !errors.Is(err, exec.ErrNotFound) { // go-git finds git-receive-pack alone, too
			return session, err
		}
	}
	t, endpoint, auth, err := w.connection()
	if err != nil {
		return nil, err
	}
	return t.NewReceivePackSession(endpoint, auth)
}

// connection reads the credentials as they are now.
func (w *wire) connection() (transport.Transport, *transport.Endpoint, transport.AuthMethod, error) {
	endpoint, auth, err := w.credentials.access(w.endpoint, w.password)
	if err != nil {
		return nil, nil, nil, err
	}
	if w.web != nil {
		return w.web, endpoint, auth, nil
	}
	t, err := client.NewClient(endpoint)
	return t, endpoint, auth, err
}

// within runs f, as once does. If the server wants fewer requests, a verb waits as long as it says and asks again, for a
// minute in all: people type a pin while much goes on. Such an answer means that nothing was done.
func within[T any](ctx context.Context, w *wire, f func(context.Context) (T, error)) (T, error) {
	for {
		value, err := once(ctx, w, f)
		if !errors.Is(err, errBusy) || !w.pace.passes(ctx, time.Now()) {
			return value, err
		}
	}
}

// once runs f and returns when it does, or when ctx ends or patience does. Not
// every transport keeps to ctx: the handshake with an SSH server, or waiting for a
// hook of a local repository that outlives its killed parent, goes on. It is then
// left to itself, and must not share what the caller uses afterwards.
func once[T any](ctx context.Context, w *wire, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	if err := w.pace.wait(time.Now()); err != nil {
		var none T
		return none, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.patience, fmt.Errorf("%w within %s", errSilent, w.patience))
	defer cancel()
	done := make(chan result, 1)
	go func() {
		value, err := f(ctx)
		done <- result{value, w.pace.note(explain(err, w.endpoint), err, time.Now())}
	}()
	select {
	case r := <-done:
		if r.err != nil && ctx.Err() != nil {
			return r.value, fmt.Errorf("%w: %w", context.Cause(ctx), r.err)
		}
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// pace keeps to what a server answers that wants fewer requests: nothing is sent to it for as long as it says, and for
// longer each time if it does not say.
type pace struct {
	mu     sync.Mutex
	until  time.Time
	pause  time.Duration // the last one that the server did not name
	answer string
	waited time.Duration // by a verb, see passes
}

// The pauses after an answer 429 without a time, and the longest one that a server may ask for: a wrong time there must
// not keep changes from instances for days.
const (
	firstPause = 10 * time.Second
	mostPause  = 5 * time.Minute
)

// mostWaited is how long a verb waits in all for a server that wants fewer requests.
const mostWaited = time.Minute

// passes waits until the server may be asked again. It returns false at once if that is too long for a verb, or if ctx
// is not that of a verb.
func (p *pace) passes(ctx context.Context, now time.Time) bool {
	p.mu.Lock()
	left := max(0, p.until.Sub(now))
	may := p.waited+left <= mostWaited
	if may {
		p.waited += left
	}
	answer := p.answer
	p.mu.Unlock()
	return may && process.Pause(ctx, left, "waiting %s, since the git server wants fewer requests: it answered %s", (left+time.Second-1).Truncate(time.Second), answer)
}

// errBusy means that the server wants fewer requests.
var errBusy = errors.New("the git server wants fewer requests")

// wait returns an error if nothing may be sent yet.
func (p *pace) wait(now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left := p.until.Sub(now); left > 0 {
		return p.busy(left)
	}
	return nil
}

func (p *pace) busy(left time.Duration) error {
	return process.WithHint(fmt.Errorf("%w: it answered %s, and may be asked again in %s", errBusy, p.answer, (left+time.Second-1).Truncate(time.Second)),
		"if this goes on, have programs ask it less often (--poll-interval), or have the limit raised there")
}

// note takes the outcome of a call, and what it was explained as, which it returns unless the server wants fewer requests.
func (p *pace) note(explained, err error, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer, ok := errors.AsType[*githttp.Err](err)
	if unexpected, wrapped := errors.AsType[*plumbing.UnexpectedError](err); wrapped { // it does not unwrap
		answer, ok = errors.AsType[*githttp.Err](unexpected.Err)
	}
	status := 0
	if ok {
		status = answer.StatusCode()
	}
	after := time.Duration(0)
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		after = retryAfter(answer.Response.Header.Get("Retry-After"), now)
	}
	switch {
	case after > 0:
	case status == http.StatusTooManyRequests && p.until.After(now): // of a request that was under way
		after = p.until.Sub(now)
	case status == http.StatusTooManyRequests:
		p.pause = max(firstPause, 2*p.pause)
		after = p.pause
	default:
		if err == nil {
			p.pause = 0
		}
		return explained
	}
	after, p.answer = min(after, mostPause), strconv.Itoa(status)
	p.pause = min(p.pause, mostPause)
	p.until = now.Add(after)
	return p.busy(after)
}

// retryAfter reads the header, which has seconds or a time. It returns 0 if there is none.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return max(0, at.Sub(now))
}

// Credentials name files with what a remote repository asks for, and with what it
// is known by. They are read again for each connection: what is mounted from a
// Secret may change at any time.
type Credentials struct {
	// TokenFile is for https://. It is the password of the user in the URL, and
	// a bearer token where the URL has no user.
	TokenFile string
	// CAFile is for https://. It has certificates to trust in addition to the system's.
	CAFile string
	// SSHKeyFile is the private key for ssh://. It has no passphrase.
	SSHKeyFile string
	// KnownHostsFile is for ssh://; default: the user's and the system's. A host
	// that is not in it, or has another key, is not spoken to.
	KnownHostsFile string
}

// sshUser is the user for SSH if the URL names none. Most hosts of repositories recognize users by their keys.
const sshUser = "git"

// check refuses what could only fail later, or would give a secret away.
func (c Credentials) check(e *transport.Endpoint) error {
	switch {
	case e.Protocol == "http" && !isLoopback(e.Host):
		return process.WithHint(errors.New("http:// sends the token, and all else, in the clear, and is only for this host"), "use git+https://")
	case e.Protocol == "ssh" && e.Password != "":
		return process.WithHint(errors.New("a password in the URL is of no use to SSH"), "use --git-ssh-key FILE")
	case e.Protocol == "ssh" && c.SSHKeyFile == "":
		return process.WithHint(errors.New("SSH needs a private key"), "use --git-ssh-key FILE")
	case c.TokenFile != "" && e.Password != "":
		return process.WithHint(errors.New("there is a password in the URL and another in a file"), "leave it out of the URL")
	default:
		return nil
	}
}

// isLoopback reports whether what is sent to a host stays on this one.
func isLoopback(host string) bool {
	if n := len(host); n > 2 && host[0] == '[' {
		host = host[1 : n-1]
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// access returns the endpoint of a connection and how to authenticate there; nil
// is without. The endpoint is a copy: go-git changes it after a redirect.
func (c Credentials) access(e *transport.Endpoint, password string) (*transport.Endpoint, transport.AuthMethod, error) {
	own := *e
	var auth transport.AuthMethod
	var err error
	switch e.Protocol {
	case "http", "https":
		if auth, err = c.http(e.User, password); err == nil && c.CAFile != "" {
			if own.CaBundle, err = os.ReadFile(c.CAFile); err != nil {
				err = fmt.Errorf("read the authorities of --git-ca-file: %w", err)
			}
		}
	case "ssh":
		auth, err = c.ssh(e)
	}
	return &own, auth, err
}

func (c Credentials) http(user, password string) (transport.AuthMethod, error) {
	if c.TokenFile != "" {
		data, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read token: %w", err)
		}
		password = string(bytes.TrimSpace(data))
		if password == "" {
			return nil, fmt.Errorf("read token: %s is empty", c.TokenFile)
		}
	}
	switch {
	case user != "":
		return &githttp.BasicAuth{Username: user, Password: password}, nil
	case password != "":
		return &githttp.TokenAuth{Token: password}, nil
	default:
		return nil, nil
	}
}

// errPassphrase is the error about a key with a passphrase, which nobody can type.
var errPassphrase = errors.New("the key has a passphrase, and nobody is there to type it")

// ssh offers the key, and accepts only the host keys that are known. Their
// algorithms are asked for, since a server with several keys would else show
// one that is perhaps not among them.
func (c Credentials) ssh(e *transport.Endpoint) (transport.AuthMethod, error) {
	data, err := os.ReadFile(c.SSHKeyFile)
	if err != nil {
		return nil, process.WithHint(fmt.Errorf("read private key: %w", err), "name the file of a private key with --git-ssh-key")
	}
	key, err := ssh.ParsePrivateKey(data)
	if _, locked := errors.AsType[*ssh.PassphraseMissingError](err); locked {
		return nil, process.WithHint(fmt.Errorf("read private key %s: %w", c.SSHKeyFile, errPassphrase), "make a key without one for this program, and name it with --git-ssh-key: ssh-keygen -t ed25519 -N '' -f FILE")
	}
	if err != nil {
		return nil, process.WithHint(fmt.Errorf("read private key %s: %w", c.SSHKeyFile, err), "name a private key of SSH with --git-ssh-key")
	}
	auth := &gitssh.PublicKeys{User: cmp.Or(e.User, sshUser), Signer: key}
	var files []string
	if c.KnownHostsFile != "" {
		files = append(files, c.KnownHostsFile)
	}
	known, err := gitssh.NewKnownHostsDb(files...)
	if err != nil {
		return nil, process.WithHint(fmt.Errorf("read known hosts: %w", err), "use --git-known-hosts FILE")
	}
	auth.HostKeyCallback = known.HostKeyCallback()
	auth.HostKeyAlgorithms = known.HostKeyAlgorithms(net.JoinHostPort(e.Host, strconv.Itoa(cmp.Or(e.Port, gitssh.DefaultPort))))
	return auth, nil
}

// The errors of a repository in which something happened that no store did. The instances keep what
// they run until a person decides.
var (
	// ErrForeign means that the tip of the branch is not a snapshot.
	ErrForeign = errors.New("the branch holds a commit that is not a snapshot")
	// ErrRewound means that the branch went back, or is gone: it is behind what its tags, or readers,
	// have seen of it.
	ErrRewound = channel.ErrRewound
	// ErrNoRepository means that there is no repository at the URL.
	ErrNoRepository = errors.New("there is no git repository")
)

// errClosed is returned by a store that was closed.
var errClosed = errors.New("store is closed")

// errSilent means that a call was abandoned after a timeout. The caller decides about another try.
var errSilent = errors.New("the repository does not answer")

// retryable is an error after which the operation reads the repository again and tries once more.
type retryable struct{ error }

func (e retryable) Unwrap() error { return e.error }

// again makes err retryable, unless reading the repository again would not help.
func again(err error) error {
	if err == nil || final(err) {
		return err
	}
	return retryable{err}
}

// final reports whether only a person, or the caller, can help.
func final(err error) bool {
	_, killed := errors.AsType[stopped](err)
	return killed || isCorrupt(err) || isRefused(err) || errors.Is(err, errSilent) || errors.Is(err, errBusy) || errors.Is(err, ErrDeclined) || errors.Is(err, ErrForeign) || errors.Is(err, ErrRewound) ||
		errors.Is(err, ErrNoRepository) || errors.Is(err, sequence.ErrRefused) || errors.Is(err, snapshots.ErrUntrusted) || errors.Is(err, signature.ErrNoKey) || errors.Is(err, snapshots.ErrMoved)
}

// stopped is the error of a step in tests: everything after it behaves as if the process had been
// killed.
type stopped struct{ error }

func (e stopped) Unwrap() error { return e.error }

func isCorrupt(err error) bool { return errors.Is(err, snapshots.ErrCorrupt) }

// An operation is tried this often, with pauses of two seconds in all, in case of a short failure or of racing
// writers. For a longer failure the caller, who can report it, tries again.
const tries = 10

var pauses = wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Steps: tries, Cap: 500 * time.Millisecond}

// repeat runs f until it returns no error that is retryable.
func repeat(ctx context.Context, f func() error) error {
	for try, pauses := 1, pauses; ; try++ {
		err := f()
		if _, ok := errors.AsType[retryable](err); !ok {
			return err
		}
		if try == tries {
			return fmt.Errorf("after %d tries: %w", tries, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(pauses.Step()):
		}
	}
}

// These errors mean that a remote and a store do not accept each other. Another attempt is useless until a file
// changes.
var (
	// ErrDenied means that the repository does not accept the credentials.
	ErrDenied = errors.New("the repository refuses the credentials")
	// ErrUnknownHost means that an SSH server has a key that is not known.
	ErrUnknownHost = errors.New("the key of the SSH server is not among the known hosts")
	// ErrChangedHost means that an SSH server has another key than is known.
	ErrChangedHost = errors.New("the key of the SSH server is not the one that is known")
)

// explain derives from an error of a transport which side refused the other. It leaves out the server's
// message, which may repeat what it was sent.
func explain(err error, e *transport.Endpoint) error {
	key, _ := errors.AsType[*knownhosts.KeyError](err)
	negotiation, _ := errors.AsType[*ssh.AlgorithmNegotiationError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	invalid, _ := errors.AsType[x509.CertificateInvalidError](err)
	_, name := errors.AsType[x509.HostnameError](err)
	_, revoked := errors.AsType[*knownhosts.RevokedError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, transport.ErrAuthenticationRequired):
		return process.WithHint(fmt.Errorf("%w: 401", ErrDenied), httpHint(e.User))
	case errors.Is(err, transport.ErrAuthorizationFailed):
		return process.WithHint(fmt.Errorf("%w: 403", ErrDenied), "the token is known there, and must be allowed to read and write this repository")
	case strings.HasPrefix(e.Protocol, "http") && notGit(err):
		return process.WithHint(fmt.Errorf("the server does not answer like git: %w", err), "look at the URL of the store in a browser: another service, a proxy or a page for logging in may be there; a token is named by --git-token-file")
	case authority:
		return process.WithHint(err, "nobody whom this machine trusts has signed the certificate of "+e.Host+": name a file with its authority by --git-ca-file")
	case invalid.Cert != nil && invalid.Reason == x509.Expired:
		return process.WithHint(err, "the certificate of "+e.Host+" has to be renewed there, or the clock of this machine is wrong")
	case name:
		return process.WithHint(err, "write the URL of the store with a name that the certificate of "+e.Host+" is for")
	case key != nil && len(key.Want) == 0:
		return process.WithHint(fmt.Errorf("%w: %s", ErrUnknownHost, e.Host), "compare the output of ssh-keyscan with what the host publishes, and add it to the file of --git-known-hosts")
	case key != nil, revoked, negotiation != nil && strings.Contains(negotiation.What, "host key"):
		return process.WithHint(fmt.Errorf("%w: %s", ErrChangedHost, e.Host), "somebody may be in between; only if the host says that its key is new, replace it in the file of --git-known-hosts")
	case e.Protocol == "file" && strings.Contains(err.Error(), "dubious ownership"): // git says so in words alone
		return process.WithHint(err, "the repository belongs to another user than the one as whom this runs, which git refuses: give it to this user, or allow it with "+
			process.ShellCommand("git", "config", "--global", "--add", "safe.directory", e.Path))
	case e.Protocol == "ssh" && strings.Contains(err.Error(), "unable to authenticate"): // it has no type
		return process.WithHint(fmt.Errorf("%w: SSH key", ErrDenied), "the public part of the key of --git-ssh-key must be allowed to read and write there")
	default:
		return err
	}
}

// notGit reports whether a server answered with something else than the list of references of a repository, such as a
// page in HTML.
func notGit(err error) bool {
	_, unexpected := errors.AsType[*packp.ErrUnexpectedData](err)
	return unexpected || errors.Is(err, packp.ErrEmptyInput) || errors.Is(err, pktline.ErrInvalidPktLen)
}

// httpHint is the hint if the server refuses the user.
func httpHint(user string) string {
	if user == "" {
		return "name a file with a token by --git-token-file; many hosts want a user with it, as in git+https://git@HOST/PATH"
	}
	return "name a file with the token or password of " + user + " by --git-token-file"
}

// isRefused reports whether the server does not accept the store, or the store the server.
func isRefused(err error) bool {
	return errors.Is(err, ErrDenied) || errors.Is(err, ErrUnknownHost) || errors.Is(err, ErrChangedHost)
}
