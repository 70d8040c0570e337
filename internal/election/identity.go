package election

import (
	"crypto/rand"
	"fmt"
	"os"
	"strings"
)

// OwnIdentity is the [Identity] of this process on this host.
func OwnIdentity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the name of this host: %w", err)
	}
	return Identity(host), nil
}

// Identity returns a name for this process that no other has, not even one that
// follows it under the same host name: it must not mistake the Lease of the one
// before for its own.
func Identity(host string) string {
	return fmt.Sprintf("%s_%s", host, rand.Text()[:10])
}

// SplitName returns the parts of the name of a Lease as users write it,
// NAMESPACE/NAME, and whether it is one.
func SplitName(text string) (namespace, name string, ok bool) {
	namespace, name, ok = strings.Cut(text, "/")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, "/")
}
