package routing

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/snapshots"
)

// tlsClaim is what serves a TLS host: the Secrets that one Ingress named for it,
// in its order. Several are for clients of different kinds of keys.
type tlsClaim struct {
	by      ingress
	secrets []snapshots.SecretName
	origin  Origin
}

// tlsEntry takes the hosts of one entry of spec.tls for its Secret. An entry
// without a Secret asks for the default certificate, which every host gets.
func (t *translation) tlsEntry(ing ingress, i int, entry networkingv1.IngressTLS) {
	if entry.SecretName == "" {
		return
	}
	path := []any{"spec", "tls", i}
	secret := snapshots.SecretName{Namespace: ing.Ref.Namespace, Name: entry.SecretName}
	hosts, positions := entry.Hosts, func(j int) []any { return sub(path, "hosts", j) }
	if len(hosts) == 0 {
		hosts, positions = ruleHosts(ing.Value.Spec.Rules), func(int) []any { return sub(path, "secretName") }
	}
	if len(hosts) == 0 {
		t.report(diag.Error, ing, ing.Position(sub(path, "secretName")...),
			fmt.Sprintf("Secret %s is not used: neither the tls entry nor a rule names a host", secret), "list the hosts in tls.hosts")
	}
	for j, host := range hosts {
		if host == "" { // left out by denyTLS
			continue
		}
		t.tlsHost(ing, secret, normalHost(host), originOf(ing, positions(j)...), originOf(ing, sub(path, "secretName")...))
	}
}

// ruleHosts returns the hosts of rules, each once.
func ruleHosts(rules []networkingv1.IngressRule) []string {
	var hosts []string
	for _, rule := range rules {
		if rule.Host != "" && !slices.Contains(hosts, rule.Host) {
			hosts = append(hosts, rule.Host)
		}
	}
	return hosts
}

// tlsHost takes one host for a Secret, unless an older Ingress has it.
func (t *translation) tlsHost(ing ingress, secret snapshots.SecretName, host string, at, named Origin) {
	if !t.mayDecide(ing, at.Position, "Secret "+secret.String(), host) {
		return
	}
	claim := t.tls[host]
	switch {
	case claim == nil:
		claim = &tlsClaim{by: ing, origin: at}
		t.tls[host] = claim
	case slices.Contains(claim.secrets, secret):
		return
	case claim.by.Ref != ing.Ref:
		t.reportLost(diag.Error, ing, claim.by, at.Position,
			fmt.Sprintf("Secret %s is not used for host %s: Secret %s was named by %s", secret, host, claim.secrets[0], precedes(claim.by, ing)),
			"name the same Secret in both"+winnerAt(claim.origin))
		return
	}
	c := t.certificate(ing, secret, named)
	t.sameKind(ing, host, claim.secrets, c, at)
	claim.secrets = append(claim.secrets, secret)
	if o := c.Observed; o != nil && !covers(o.Names, host) {
		t.report(diag.Warning, ing, at.Position,
			fmt.Sprintf("the certificate in Secret %s is not for host %s but for %s", secret, host, strings.Join(o.Names, ", ")),
			"clients will refuse it; renew it for this host")
	}
}

// sameKind reports a certificate that is for the same clients as an earlier one
// of the host. HAProxy takes the first that it reads, in the order of files.
func (t *translation) sameKind(ing ingress, host string, earlier []snapshots.SecretName, c *Certificate, at Origin) {
	for _, secret := range earlier {
		other := t.certs[certificateFile(secret)]
		if t.kinds[c.File] == "" || t.kinds[c.File] != t.kinds[other.File] {
			continue
		}
		served, idle := other.Secret, c.Secret
		if c.File < other.File {
			served, idle = idle, served
		}
		t.report(diag.Warning, ing, at.Position,
			fmt.Sprintf("Secret %s is not served for host %s: Secret %s holds a key of the same kind, %s", idle, host, served, t.kinds[c.File]),
			"several certificates of a host need keys of different kinds, such as RSA and ECDSA")
		return
	}
}
