package routing

import (
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/snapshots"
)

// ofServers is what becomes of endpoints while the certificate that they are shown cannot be
// used.
const ofServers = "endpoints are shown one that nobody vouches for"

// nameSecrets gives TLS to servers the files of the Secrets that it needs. They
// are referenced even if they cannot be used as they are here: without the
// authorities that they hold when they are pushed no server is accepted, and
// another certificate than theirs is one that nobody vouches for.
func (t *translation) nameSecrets(tls *policy.TLS, secrets options.ServerSecrets, by asker) {
	if name := secrets.Authorities; name != "" {
		c, missing := t.authorityOf(by.secret(name), by.origin("backend-ca-secret"))
		tls.Authorities = c.File
		if missing {
			t.missing(c, by, "backend-ca-secret", "no endpoint is accepted")
		}
	}
	if name := secrets.Certificate; name != "" {
		c, missing := t.certificateOf(by.secret(name), by.origin("backend-client-secret"), ofServers)
		tls.Certificate = c.File
		if missing {
			t.missing(c, by, "backend-client-secret", ofServers)
		}
	}
}

// missing warns of a Secret that is not here.
func (t *translation) missing(c *Certificate, by asker, option, without string) {
	by.reportAs(t, diag.Warning, option, ": "+t.notSeen(c.Secret), without+" until it does where snapshots are pushed")
}

// secret names a Secret of the namespace of the objects.
func (a asker) secret(name string) snapshots.SecretName {
	return snapshots.SecretName{Namespace: a.ingress.Ref.Namespace, Name: name}
}
