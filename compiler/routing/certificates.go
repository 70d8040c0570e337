package routing

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// tlsClaim is the Secret that serves a TLS host, and the Ingress that said so.
type tlsClaim struct {
	by     ingress
	secret snapshots.SecretName
	origin Origin
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
	if winner, taken := t.tls[host]; taken {
		if winner.secret != secret {
			t.report(diag.Error, ing, at.Position,
				fmt.Sprintf("Secret %s is not used for host %s: Secret %s was named by %s", secret, host, winner.secret, precedes(winner.by, ing)),
				"name the same Secret in both"+winnerAt(winner.origin))
		}
		return
	}
	t.tls[host] = tlsClaim{ing, secret, at}
	c := t.certificate(ing, secret, named)
	c.Hosts = append(c.Hosts, host)
	if o := c.Observed; o != nil && !covers(o.Names, host) {
		t.report(diag.Warning, ing, at.Position,
			fmt.Sprintf("the certificate in Secret %s is not for host %s but for %s", secret, host, strings.Join(o.Names, ", ")),
			"clients will refuse it; renew it for this host")
	}
}

// certificate returns the certificate of a Secret, which it makes and checks
// if it is new. It is referenced even if it cannot be served as it is here: it
// is joined when a snapshot is pushed, and may be mended by then.
func (t *translation) certificate(ing ingress, name snapshots.SecretName, named Origin) *Certificate {
	if c := t.certs[name]; c != nil {
		return c
	}
	c := &Certificate{File: certificateFile(name), Secret: name, Origin: named}
	t.certs[name] = c
	secret, exists := t.secrets[name]
	if !exists {
		t.report(diag.Warning, ing, named.Position, fmt.Sprintf("Secret %s does not exist here", name),
			"its hosts get the default certificate until it does where snapshots are pushed")
		return c
	}
	observed, err := observe(secret.Value)
	if err != nil {
		t.reportSecret(diag.Error, secret, "holds no certificate that can be served: "+err.Error(),
			"hosts that name this Secret get the default certificate until it is mended")
		return c
	}
	c.Observed = &observed
	if !t.cfg.Now.IsZero() && t.cfg.Now.After(observed.NotAfter) {
		t.reportSecret(diag.Warning, secret, "the certificate expired on "+observed.NotAfter.Format("2006-01-02"), "renew it")
	}
	return c
}

// observe describes the certificate in a Secret.
func observe(secret *corev1.Secret) (snapshots.ObservedCertificate, error) {
	pem, err := live.Certificate(*secret)
	if err != nil {
		return snapshots.ObservedCertificate{}, err
	}
	return snapshots.CheckKeyPair(pem)
}

// reportSecret adds a finding on a Secret.
func (t *translation) reportSecret(severity diag.Severity, secret inputs.Object[corev1.Secret], message, hint string) {
	t.found = append(t.found, diag.Diagnostic{
		Severity: severity, Position: secret.Position("data", corev1.TLSCertKey), Object: secret.Ref, Message: message, Hint: hint,
	})
}

// maxFileStem leaves room in a file name for what the pusher adds.
const maxFileStem = 200

// certificateFile returns the file that stands for a Secret. A Secret's name
// holds no underscore, so that no two share a file; only one dot would survive
// the Dataplane API. A name that is too long for a file ends in its hash.
func certificateFile(secret snapshots.SecretName) string {
	stem := secret.Namespace + "_" + strings.ReplaceAll(secret.Name, ".", "_")
	if len(stem) > maxFileStem {
		sum := sha256.Sum256([]byte(stem))
		stem = stem[:maxFileStem-17] + "_" + hex.EncodeToString(sum[:8])
	}
	return "certs/" + stem + ".pem"
}
