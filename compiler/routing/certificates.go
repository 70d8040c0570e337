package routing

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	stdpem "encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// certificate returns the certificate of a Secret that an Ingress names. It is
// referenced even if it cannot be served as it is here: it is joined when a
// snapshot is pushed, and may be mended by then.
func (t *translation) certificate(ing ingress, name snapshots.SecretName, named Origin) *Certificate {
	c, missing := t.certificateOf(name, named, hostsWithout)
	if missing {
		t.report(diag.Warning, ing, named.Position, fmt.Sprintf("Secret %s does not exist here", name),
			"its hosts get the default certificate until it does"+t.wherePushed())
	}
	return c
}

// wherePushed says where a Secret with a certificate has to be that is not here.
func (t *translation) wherePushed() string {
	if t.cfg.CertificatesAsSeen {
		return ""
	}
	return " where snapshots are pushed"
}

// defaultCertificate takes the certificate for everybody else, if the
// configuration names one.
func (t *translation) defaultCertificate() {
	name := t.cfg.DefaultCertificate
	if name == (snapshots.SecretName{}) {
		return
	}
	object := diag.Object{Kind: "Secret", Namespace: name.Namespace, Name: name.Name}
	c, missing := t.certificateOf(name, Origin{Object: object}, hostsWithout)
	t.standard = c.File
	if missing {
		t.found = append(t.found, diag.Diagnostic{
			Severity: diag.Warning, Object: object, Message: "does not exist here, and the configuration names it as the default certificate",
			Hint: "hosts without a certificate get the fallback certificate until it does" + t.wherePushed(),
		})
	}
}

// hostsWithout is what becomes of hosts while their Secret cannot be used.
const hostsWithout = "hosts that name this Secret get the default certificate"

// certificateOf returns the certificate of a Secret, which it makes and checks
// if it is new; without is what becomes of whoever names the Secret while it
// cannot be used. Missing says that the Secret is not here, once.
func (t *translation) certificateOf(name snapshots.SecretName, named Origin, without string) (c *Certificate, missing bool) {
	file := certificateFile(name)
	if c := t.certs[file]; c != nil {
		return c, false
	}
	c = &Certificate{File: file, Secret: name, Origin: named}
	t.certs[file] = c
	secret, exists := t.secrets.find(name)
	if !exists {
		return c, !t.cfg.SecretsUnseen
	}
	observed, kind, err := observe(secret.Value)
	if err != nil {
		t.reportSecret(diag.Error, secret, "holds no certificate that can be served: "+err.Error(), without+" until it is mended")
		return c, false
	}
	c.Observed, t.kinds[file] = &observed, kind
	if !t.cfg.Now.IsZero() && t.cfg.Now.After(observed.NotAfter) {
		t.reportSecret(diag.Warning, secret, "the certificate expired on "+observed.NotAfter.Format("2006-01-02"), "renew it; until then its hosts get the default certificate")
	}
	if without != ofServers { // what is shown to servers is none of theirs
		t.reportServing(secret, observed)
	}
	return c, false
}

// reportServing warns of a certificate that clients refuse, though HAProxy serves it.
func (t *translation) reportServing(secret inputs.Object[corev1.Secret], observed snapshots.ObservedCertificate) {
	data, err := live.Certificate(*secret.Value)
	if err != nil {
		return
	}
	for _, fault := range pem.ServingFaults(data, t.cfg.Now) {
		t.reportSecret(diag.Warning, secret, fmt.Sprintf("the certificate for %s %s", someNames(observed.Names), fault), "it is served, and clients may refuse it; put one for a server there")
	}
}

// someNames lists the first of the names that a certificate is for.
func someNames(names []string) string {
	const most = 3
	switch {
	case len(names) == 0:
		return "no name"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// authority returns the certificate authorities of a Secret that an Ingress names
// for its clients.
func (t *translation) authority(ing ingress, name snapshots.SecretName, named Origin) *Certificate {
	c, missing := t.authorityOf(name, named)
	if missing {
		t.report(diag.Warning, ing, named.Position, t.notSeen(name),
			"no certificate is accepted until it does where snapshots are pushed")
	}
	return c
}

// authorityOf returns the certificate authorities of a Secret, which it makes and
// checks if they are new. Without them nobody is let in, for a snapshot that is
// pushed without its authorities is given some that signed nothing. Missing says
// that the Secret is not here, once.
func (t *translation) authorityOf(name snapshots.SecretName, named Origin) (c *Certificate, missing bool) {
	file := authorityFile(name)
	if c := t.certs[file]; c != nil {
		return c, false
	}
	c = &Certificate{File: file, Secret: name, Use: snapshots.UseCA, Origin: named}
	t.certs[file] = c
	secret, exists := t.secrets.find(name)
	if !exists {
		return c, true
	}
	if _, err := live.Authorities(*secret.Value); err != nil {
		t.reportSecret(diag.Error, secret, "holds no certificate authorities: "+err.Error(), "no certificate is accepted until it is mended")
	}
	return c, false
}

// notSeen says that a Secret is not among the inputs, whether or not it could have been.
func (t *translation) notSeen(name snapshots.SecretName) string {
	if t.cfg.SecretsUnseen {
		return fmt.Sprintf("whether Secret %s exists and can be used is not checked here", name)
	}
	return fmt.Sprintf("Secret %s does not exist here", name)
}

// observe describes the certificate in a Secret, and names the kind of its key.
func observe(secret *corev1.Secret) (observed snapshots.ObservedCertificate, kind string, err error) {
	data, err := live.Certificate(*secret)
	if err != nil {
		return snapshots.ObservedCertificate{}, "", err
	}
	leaf, err := pem.CheckKeyPair(data)
	return snapshots.ObservedCertificate(leaf), keyKind(data), err
}

// keyKind names the kind of key of a certificate, "" if that cannot be told.
// HAProxy chooses by it among the certificates of a host.
func keyKind(data []byte) string {
	block, _ := stdpem.Decode(data)
	if block == nil {
		return ""
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return ""
	}
	return leaf.PublicKeyAlgorithm.String()
}

// reportSecret adds a finding on a Secret.
func (t *translation) reportSecret(severity diag.Severity, secret inputs.Object[corev1.Secret], message, hint string) {
	t.found = append(t.found, diag.Diagnostic{
		Severity: severity, Position: secret.Position("data", corev1.TLSCertKey), Object: secret.Ref, Message: message, Hint: hint,
	})
}

// maxFileStem leaves room in a file name for what the pusher adds.
const maxFileStem = 200

// certificateFile returns the file that stands for the certificate of a Secret.
// A Secret's name holds no underscore, so that no two share a file; only one dot
// would survive the Dataplane API. A name that is too long for a file ends in its
// hash.
func certificateFile(secret snapshots.SecretName) string { return secretFile("", secret) }

// authorityFile returns the file that stands for the authorities of a Secret. No
// Secret of a namespace "ca" has it, for no name begins with a dot.
func authorityFile(secret snapshots.SecretName) string { return secretFile("ca__", secret) }

func secretFile(prefix string, secret snapshots.SecretName) string {
	stem := prefix + secret.Namespace + "_" + strings.ReplaceAll(secret.Name, ".", "_")
	if len(stem) > maxFileStem {
		sum := sha256.Sum256([]byte(stem))
		stem = stem[:maxFileStem-17] + "_" + hex.EncodeToString(sum[:8])
	}
	return "certs/" + stem + ".pem"
}

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

// serverNames gives certificates their hosts, and returns those that need more
// than that, sorted.
func (t *translation) serverNames() []ServerName {
	var out []ServerName
	names := t.tlsNames()
	below := belowWildcards(names)
	for _, host := range names {
		name := ServerName{Host: host, Certificates: t.filesOf(host), Clients: t.clientCheck(host), Origin: t.tlsOrigin(host)}
		name.Except = t.except(name, below[host])
		if len(name.Except) > 0 || name.Clients != nil || len(name.Certificates) == 0 && t.isApart(hostName(host)) {
			out = append(out, name)
			continue
		}
		for _, file := range name.Certificates {
			t.certs[file].Hosts = append(t.certs[file].Hosts, host)
		}
	}
	return out
}

// tlsNames returns the hosts that TLS clients are told apart by, sorted: those
// with certificates, those whose clients are asked for certificates, and those
// whose clients are not, below a wildcard whose clients are; and those below a
// wildcard that has no say in them.
func (t *translation) tlsNames() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(t.tls)), maps.Keys(t.clients))
	if len(t.clients) > 0 {
		for host := range t.hosts {
			if !strings.HasPrefix(host, ".") && t.clients[wildcardOf(host)] != nil {
				names = append(names, host)
			}
		}
	}
	for _, host := range t.apart() {
		if wildcard := wildcardOf(host); t.tls[wildcard] != nil || t.clients[wildcard] != nil {
			names = append(names, host)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// filesOf returns the certificates of a host: those that were named for it, or
// for the wildcard that matches it.
func (t *translation) filesOf(host string) []string {
	if claim := t.tls[host]; claim != nil {
		return claim.files()
	}
	if claim := t.tls[wildcardOf(host)]; claim != nil && !t.isApart(hostName(host)) {
		return claim.files()
	}
	return nil
}

// tlsOrigin returns where a host was named that clients are told apart by.
func (t *translation) tlsOrigin(host string) Origin {
	if claim := t.clients[host]; claim != nil {
		return claim.origin
	}
	if claim := t.tls[host]; claim != nil {
		return claim.origin
	}
	if h := t.hosts[hostName(host)]; h != nil {
		return h.origin
	}
	if o := t.owners[hostName(host)]; o != nil {
		return originOf(o.by, o.path...)
	}
	return Origin{}
}

// files returns the certificates of a claim, in the order of their files.
func (c *tlsClaim) files() []string {
	out := make([]string, len(c.secrets))
	for i, secret := range c.secrets {
		out[i] = certificateFile(secret)
	}
	slices.Sort(out)
	return out
}

// belowWildcards returns the names that a wildcard would match, by wildcard.
func belowWildcards(names []string) map[string][]string {
	out := map[string][]string{}
	for _, name := range names {
		if wildcard := wildcardOf(name); wildcard != "" {
			out[wildcard] = append(out[wildcard], name)
		}
	}
	return out
}

// wildcardOf returns the wildcard that matches a name, "" if none can.
func wildcardOf(name string) string {
	_, parent, ok := strings.Cut(name, ".")
	if !ok || strings.HasPrefix(name, "*.") {
		return ""
	}
	return "*." + parent
}

// maxExcept is how many hosts a wildcard can leave out: they share its line of a
// crt-list, which HAProxy limits to 2048 words and 64 KiB. The names that are
// left over get the wildcard's certificate if its key is of another kind.
const (
	maxExcept      = 1000
	maxExceptBytes = 48 << 10
)

// except returns the names below a wildcard that are not its own: those with
// other certificates, and those whose clients are asked for others, or for none.
func (t *translation) except(wildcard ServerName, below []string) []string {
	var checked, others []string
	for _, name := range below {
		switch {
		case wildcard.Clients != nil || t.clients[name] != nil:
			checked = append(checked, name)
		case !slices.Equal(t.filesOf(name), wildcard.Certificates):
			others = append(others, name)
		}
	}
	out, size := append(checked, others...), 0
	for i, name := range out {
		if size += len(name) + 2; i == maxExcept || size > maxExceptBytes {
			return out[:i]
		}
	}
	return out
}
