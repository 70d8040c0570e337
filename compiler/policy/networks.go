package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"
)

// Networks are networks of clients: those that are written out, and those of
// lists.
type Networks struct {
	Prefixes []netip.Prefix
	Lists    []NetworkList
}

// Any reports whether any network or list is named. A list counts even if it
// is empty.
func (n Networks) Any() bool { return len(n.Prefixes)+len(n.Lists) > 0 }

// NetworkList names a list of networks: one key of a ConfigMap. Without a
// Namespace it is one of the namespace of whoever names it.
type NetworkList struct {
	Namespace, ConfigMap, Key string
}

// String returns "namespace/configmap/key".
func (l NetworkList) String() string {
	name := l.ConfigMap + "/" + l.Key
	if l.Namespace != "" {
		name = l.Namespace + "/" + name
	}
	return name
}

// File is the file of a snapshot that holds the list. Names and keys may have
// characters that a file may not, so that a hash tells the lists apart.
func (l NetworkList) File() string {
	const most = 150
	readable := strings.NewReplacer(".", "_", "/", "_").Replace(l.String())
	sum := sha256.Sum256([]byte(l.String()))
	return "files/networks_" + readable[:min(len(readable), most)] + "_" + hex.EncodeToString(sum[:6]) + ".list"
}
