package election

import (
	"crypto/rand"
	"fmt"
)

// Identity returns a name for this process that no other has, not even one that
// follows it under the same host name: it must not mistake the Lease of the one
// before for its own.
func Identity(host string) string {
	return fmt.Sprintf("%s_%s", host, rand.Text()[:10])
}
