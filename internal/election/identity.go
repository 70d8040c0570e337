package election

import (
	"crypto/rand"
	"fmt"
	"os"
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
