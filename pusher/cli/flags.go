package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
)

// CheckAddress returns a usage error for an address that cannot be one, whatever listens there. None is fine.
func CheckAddress(flag, address string) error {
	return process.CheckAddress(flag, address, "HOST:PORT", "localhost:8081, or :8081 for all addresses of this host")
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
	process.Once(flags, to, "instances", "", "one file has all instances of a fleet", usage)
}
