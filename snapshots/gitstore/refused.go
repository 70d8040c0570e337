package gitstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/hapsnap/hapsnap/internal/process"
)

// The errors of a remote and a store that do not accept each other. Trying again
// does not help until somebody has changed a file.
var (
	// ErrDenied means that the repository does not accept the credentials.
	ErrDenied = errors.New("the repository refuses the credentials")
	// ErrUnknownHost means that an SSH server has a key that is not known.
	ErrUnknownHost = errors.New("the key of the SSH server is not among the known hosts")
	// ErrChangedHost means that an SSH server has another key than is known.
	ErrChangedHost = errors.New("the key of the SSH server is not the one that is known")
)

// explain tells by an error of a transport who refused whom. What a server says
// when it refuses is left out: it may repeat what it was sent.
func explain(err error, e *transport.Endpoint) error {
	key, _ := errors.AsType[*knownhosts.KeyError](err)
	negotiation, _ := errors.AsType[*ssh.AlgorithmNegotiationError](err)
	_, revoked := errors.AsType[*knownhosts.RevokedError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, transport.ErrAuthenticationRequired):
		return process.WithHint(fmt.Errorf("%w: 401", ErrDenied), httpHint(e.User))
	case errors.Is(err, transport.ErrAuthorizationFailed):
		return process.WithHint(fmt.Errorf("%w: 403", ErrDenied), "the token is known there, and must be allowed to read and write this repository")
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

// httpHint is for who is not let in at all.
func httpHint(user string) string {
	if user == "" {
		return "name a file with a token by --git-token-file; many hosts want a user with it, as in git+https://git@HOST/PATH"
	}
	return "name a file with the token or password of " + user + " by --git-token-file"
}

// isRefused reports whether one of the two does not accept the other.
func isRefused(err error) bool {
	return errors.Is(err, ErrDenied) || errors.Is(err, ErrUnknownHost) || errors.Is(err, ErrChangedHost)
}
