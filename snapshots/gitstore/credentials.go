package gitstore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"

	"github.com/hapsnap/hapsnap/internal/process"
)

// Credentials name files with what a remote repository asks for, and with what it
// is known by. They are read again for each connection: what is mounted from a
// Secret may change at any time.
type Credentials struct {
	// TokenFile is for https://. It is the password of the user in the URL, and
	// a bearer token where the URL has no user.
	TokenFile string
	// CAFile is for https://: certificates to trust besides the system's.
	CAFile string
	// SSHKeyFile is the private key for ssh://. It has no passphrase.
	SSHKeyFile string
	// KnownHostsFile is for ssh://; default: the user's and the system's. A host
	// that is not in it, or has another key, is not spoken to.
	KnownHostsFile string
}

// sshUser is who we are to an SSH server if the URL does not say it. Hosts of
// many repositories tell their users by the key.
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
			own.CaBundle, err = os.ReadFile(c.CAFile)
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

// ssh offers the key, and accepts only the host keys that are known. Their
// algorithms are asked for, since a server with several keys would else show
// one that is perhaps not among them.
func (c Credentials) ssh(e *transport.Endpoint) (transport.AuthMethod, error) {
	auth, err := gitssh.NewPublicKeysFromFile(cmp.Or(e.User, sshUser), c.SSHKeyFile, "")
	if err != nil {
		return nil, fmt.Errorf("read private key %s: %w", c.SSHKeyFile, err)
	}
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
