package validate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/scratch"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// The oldest HAProxy that the shipped templates and the Dataplane API work with.
const (
	leastMajor = 2
	leastMinor = 6
)

// ErrNoHAProxy is returned where HAProxy cannot be found or run.
var ErrNoHAProxy = errors.New("there is no haproxy to check configurations with")

// folders are where distributions keep HAProxy, and where the PATH of an
// ordinary user does not lead.
var folders = []string{"/usr/sbin", "/usr/local/sbin"}

// stagingPrefix begins the names of the folders in which configurations are checked, with
// the private keys that go with them. TrialPrefix is that of package trial.
const (
	stagingPrefix = "hapsnap-validate-"
	TrialPrefix   = "hapsnap-trial-"
)

// sweepOnce removes what is left of the folders of processes that were killed.
var sweepOnce = sync.OnceFunc(func() {
	scratch.Sweep(os.TempDir(), stagingPrefix, TrialPrefix)
	scratch.Sweep("/tmp", TrialPrefix) // where one goes if its name would be too long
})

// Checker checks with one HAProxy. It may be used by several goroutines.
type Checker struct {
	Path    string // of the executable
	Version string // such as "2.6.12-1+deb12u4"
	keys    keyRing
	trips   roundTrips
	binder  bind.Binder
}

// Find finds the executable by its name or path and asks for its version. The
// error wraps [ErrNoHAProxy], or says that the version is too old; both carry
// a hint.
func Find(ctx context.Context, name string) (*Checker, error) {
	path, err := lookUp(name)
	if err != nil {
		return nil, process.WithHint(fmt.Errorf("%w: %w", ErrNoHAProxy, err), "install HAProxy 2.6 or later, or name it with --haproxy")
	}
	out, err := exec.CommandContext(ctx, path, "-v").Output()
	if err != nil {
		return nil, process.WithHint(fmt.Errorf("%w: run %s -v: %w", ErrNoHAProxy, path, err), "name another with --haproxy")
	}
	version, err := parseVersion(out)
	if err != nil {
		return nil, process.WithHint(fmt.Errorf("%s: %w", path, err), "install HAProxy 2.6 or later, or name it with --haproxy")
	}
	sweepOnce()
	return &Checker{Path: path, Version: version}, nil
}

func lookUp(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil || strings.Contains(name, "/") {
		return path, err
	}
	for _, folder := range folders {
		if path, lookErr := exec.LookPath(filepath.Join(folder, name)); lookErr == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not on PATH", name)
}

var versionForm = regexp.MustCompile(`^HA-?Proxy version ((\d+)\.(\d+)\S*)`)

// parseVersion reads what haproxy -v says.
func parseVersion(out []byte) (string, error) {
	line, _, _ := bytes.Cut(out, []byte("\n"))
	m := versionForm.FindSubmatch(line)
	if m == nil {
		return "", fmt.Errorf("is not HAProxy: it calls itself %q", line)
	}
	major, _ := strconv.Atoi(string(m[2]))
	minor, _ := strconv.Atoi(string(m[3]))
	if major < leastMajor || major == leastMajor && minor < leastMinor {
		return "", fmt.Errorf("HAProxy %s is too old: %d.%d is the oldest that is supported", m[1], leastMajor, leastMinor)
	}
	return string(m[1]), nil
}
