package gitstore

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
)

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
	return killed || isCorrupt(err) || isRefused(err) || errors.Is(err, errSilent) || errors.Is(err, ErrForeign) || errors.Is(err, ErrRewound) ||
		errors.Is(err, ErrNoRepository) || errors.Is(err, sequence.ErrRefused) || errors.Is(err, snapshots.ErrUntrusted) || errors.Is(err, signature.ErrNoKey) || errors.Is(err, snapshots.ErrMoved)
}

// stopped is the error of a step in tests: everything after it behaves as if the process had been
// killed.
type stopped struct{ error }

func (e stopped) Unwrap() error { return e.error }

func isCorrupt(err error) bool { return errors.Is(err, snapshots.ErrCorrupt) }

// How often an operation is tried, and the pauses in between: two seconds in all, for a short failure
// of the repository or racing writers. The caller, who can report it, waits out a repository that is
// gone.
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

// The errors of a remote and a store that do not accept each other. Another try does not help until
// somebody has changed a file.
var (
	// ErrDenied means that the repository does not accept the credentials.
	ErrDenied = errors.New("the repository refuses the credentials")
	// ErrUnknownHost means that an SSH server has a key that is not known.
	ErrUnknownHost = errors.New("the key of the SSH server is not among the known hosts")
	// ErrChangedHost means that an SSH server has another key than is known.
	ErrChangedHost = errors.New("the key of the SSH server is not the one that is known")
)

// explain derives from an error of a transport who refused whom. It leaves out what a server says when
// it refuses, which may repeat what it was sent.
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
	case e.Protocol == "ssh" && strings.Contains(err.Error(), "unable to authenticate"): // it has no type
		return process.WithHint(fmt.Errorf("%w: SSH key", ErrDenied), "the public part of the key of --git-ssh-key must be allowed to read and write there")
	default:
		return err
	}
}

// httpHint is the hint for somebody whom the server does not let in.
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
