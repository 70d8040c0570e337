package routing

import (
	"fmt"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/snapshots"
)

// nameSecrets gives TLS to servers the files of the Secrets that it needs. They
// are referenced even if they cannot be used as they are here: without the
// authorities that they hold when they are pushed no server is accepted, and
// another certificate than theirs is one that nobody vouches for.
func (t *translation) nameSecrets(tls *policy.TLS, secrets options.ServerSecrets, by asker) {
	if name := secrets.Authorities; name != "" {
		c, isNew := t.authorityOf(by.secret(name), by.origin("backend-ca-secret"))
		tls.Authorities = c.File
		t.missing(c, isNew, by, "backend-ca-secret", "no endpoint is accepted until it does where snapshots are pushed")
	}
	if name := secrets.Certificate; name != "" {
		c, isNew := t.certificateOf(by.secret(name), by.origin("backend-client-secret"))
		tls.Certificate = c.File
		t.missing(c, isNew, by, "backend-client-secret", "endpoints are shown one that nobody vouches for until it does where snapshots are pushed")
	}
}

// missing warns of a Secret that is not here, once.
func (t *translation) missing(c *Certificate, isNew bool, by asker, option, hint string) {
	if _, exists := t.secrets[c.Secret]; exists || !isNew {
		return
	}
	by.reportAs(t, diag.Warning, option, fmt.Sprintf(": Secret %s does not exist here", c.Secret), hint)
}

// secret names a Secret of the namespace of the objects.
func (a asker) secret(name string) snapshots.SecretName {
	return snapshots.SecretName{Namespace: a.ingress.Ref.Namespace, Name: name}
}
