package cli

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
)

// onceFlag is a flag with a path that has no use for a second one. Who gives it twice means both, as with kubectl and Helm, and
// the last one alone would count: everything of the other one would be gone.
type onceFlag struct {
	to      *string
	given   bool
	instead string // what to do where there are two
}

// once declares a flag that takes one path.
func once(flags *pflag.FlagSet, to *string, name, instead, usage string) {
	flags.Var(&onceFlag{to: to, instead: instead}, name, usage)
}

// String returns the path.
func (f *onceFlag) String() string {
	if f.to == nil {
		return ""
	}
	return *f.to
}

// Type is the word for the value in help texts.
func (f *onceFlag) Type() string { return "string" }

// Set takes a path, and no other one after it.
func (f *onceFlag) Set(path string) error {
	if f.given && path != *f.to {
		return fmt.Errorf("%q is named already: %s", *f.to, f.instead)
	}
	*f.to, f.given = path, true
	return nil
}

// CheckAddress returns a usage error for an address that cannot be one, whatever listens there. None is fine.
func CheckAddress(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	n, notNumber := strconv.Atoi(port) // a port may have a name
	valid := err == nil && (notNumber != nil || n >= 0 && n <= 65535)
	if address != "" && !valid {
		return process.WithHint(process.Usage("--%s: %q is not HOST:PORT", flag, address), "write it with a port and without http://, such as localhost:8081, or :8081 for all addresses of this host")
	}
	return nil
}

// checkFleetFile returns a usage error for a directory in place of the file with the Fleet: all manifests in it would be
// taken for fleets.
func checkFleetFile(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() { // who reads the file says what else is wrong with it
		return process.WithHint(process.Usage("--instances: %s is a directory", path), "name the file with the Fleet")
	}
	return nil
}

// checkStatePlace returns a usage error for a place that holds no state of a pusher that runs.
func checkStatePlace(state string) error {
	if !strings.HasPrefix(state, configmapstore.Scheme) {
		return nil
	}
	return process.WithHint(process.Usage("--state: %q: the state holds what is not for everybody, and is in no ConfigMap", state), "use secret:NAMESPACE/NAME, or a file; --status configmap:NAMESPACE/NAME is for the status, without secrets")
}

// checkReadable returns why a file that a flag names cannot be read. None is fine.
func checkReadable(flag, path string) error {
	if path == "" {
		return nil
	}
	if _, err := os.ReadFile(path); err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	return nil
}

// addFleet declares --instances.
func addFleet(flags *pflag.FlagSet, to *string, usage string) {
	once(flags, to, "instances", "one file has all instances of a fleet", usage)
}
