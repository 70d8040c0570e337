package routing

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Certificate is a TLS certificate for the hosts that name it, but for those that
// are a ServerName. Hosts are as in the Ingress, lower case, with "*." for
// wildcards, sorted.
type Certificate struct {
	File   string // "certs/shop_web-tls.pem", as crt-lists name it
	Secret snapshots.SecretName
	// Use says what it is for, as in a [snapshots.CertificateRef]: those that are
	// not for hosts have none.
	Use   snapshots.Use
	Hosts []string
	// Observed is nil if the Secret was not among the inputs.
	Observed *snapshots.ObservedCertificate
	Origin   Origin
}

// ServerName is what clients get that ask for a host over TLS, by SNI.
type ServerName struct {
	// Host is as in a Certificate.
	Host string
	// Certificates are files, among which the client's means decide; none
	// stands for the default certificate.
	Certificates []string
	// Except are the hosts that a wildcard does not stand for. Without this,
	// HAProxy would take a wildcard's certificate for a host that has one of its
	// own, if the wildcard's key is of another kind.
	Except []string
	// Clients is nil where clients are not asked for certificates.
	Clients *ClientCheck
	Origin  Origin
}

// ClientCheck asks TLS clients for a certificate of an authority, when they
// connect. Routes to which more applies have it in their [policy.Protection].
type ClientCheck struct {
	Authority string // a file, of a Certificate for that use
	// Required refuses connections without a certificate; all others than those
	// of the authority are refused in any case.
	Required bool
}

// maxFileStem leaves room in a file name for what the pusher adds.
const maxFileStem = 200

// CertificateFile returns the file that stands for the certificate of a Secret.
// A Secret's name holds no underscore, so that no two share a file; only one dot
// would survive the Dataplane API. A name that is too long for a file ends in its
// hash.
func CertificateFile(secret snapshots.SecretName) string { return secretFile("", secret) }

// AuthorityFile returns the file that stands for the authorities of a Secret. No
// Secret of a namespace "ca" has it, for no name begins with a dot.
func AuthorityFile(secret snapshots.SecretName) string { return secretFile("ca__", secret) }

func secretFile(prefix string, secret snapshots.SecretName) string {
	stem := prefix + secret.Namespace + "_" + strings.ReplaceAll(secret.Name, ".", "_")
	if len(stem) > maxFileStem {
		sum := sha256.Sum256([]byte(stem))
		stem = stem[:maxFileStem-17] + "_" + hex.EncodeToString(sum[:8])
	}
	return "certs/" + stem + ".pem"
}
