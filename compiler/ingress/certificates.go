package ingress

import (
	"crypto/x509"
	stdpem "encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/compiler/routing/ownership"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// certificates are the certificates of all Secrets that are named, for any purpose.
type certificates struct {
	*findings
	secrets inputs.Lookup[corev1.Secret]
	cfg     *Config
	files   map[string]*routing.Certificate // by file
	kinds   map[string]string               // the kinds of their keys, by file
	observe func(*corev1.Secret) *observation
}

// wherePushed says where a Secret with a certificate has to be if it is not among the objects.
func (t *certificates) wherePushed() string {
	if t.cfg.CertificatesAsSeen {
		return ""
	}
	return " where snapshots are pushed"
}

// takeDefault takes the certificate for hosts without one, if the configuration names it. It returns the file of the
// certificate.
func (t *certificates) takeDefault() string {
	name := t.cfg.DefaultCertificate
	if name == (snapshots.SecretName{}) {
		return ""
	}
	object := diag.Object{Kind: "Secret", Namespace: name.Namespace, Name: name.Name}
	c, missing := t.of(name, routing.Origin{Object: object}, hostsWithout)
	if missing {
		t.add(diag.Diagnostic{
			Severity: diag.Warning, Object: object, Message: "does not exist here, and the configuration names it as the default certificate",
			Hint: "hosts without a certificate get the fallback certificate until it does" + t.wherePushed(),
		})
	}
	return c.File
}

// hostsWithout says what hosts get while their Secret cannot be used.
const hostsWithout = "hosts that name this Secret get the default certificate"

// of returns the certificate of a Secret. It makes and checks the certificate if it is new. without says for messages
// what happens while the Secret cannot be used. missing reports that the Secret does not exist; it is only set in the
// first call.
func (t *certificates) of(name snapshots.SecretName, named routing.Origin, without string) (c *routing.Certificate, missing bool) {
	file := routing.CertificateFile(name)
	if c := t.files[file]; c != nil {
		return c, false
	}
	c = &routing.Certificate{File: file, Secret: name, Origin: named}
	t.files[file] = c
	secret, exists := t.secrets.Find(types.NamespacedName(name))
	if !exists {
		return c, !t.cfg.SecretsUnseen
	}
	observed := t.observe(secret.Value)
	if err := observed.err; err != nil {
		t.reportSecret(diag.Error, secret, "holds no certificate that can be served: "+err.Error(), without+" until it is mended")
		return c, false
	}
	c.Observed, t.kinds[file] = &observed.ObservedCertificate, observed.kind
	var refused []string
	if without != ofServers { // a client certificate for servers is not checked as a server certificate
		refused = observed.serving.Faults(t.cfg.Now)
	}
	t.add(access.CertificateWarnings(secret, observed.ObservedCertificate, t.cfg.Now, refused, "its hosts get the default certificate")...)
	return c, false
}

// takeAuthority returns the certificate authorities in the Secret that an Ingress names for its clients.
func (t *certificates) takeAuthority(by ownership.Claimant, name snapshots.SecretName, named routing.Origin) *routing.Certificate {
	c, missing := t.authorityOf(name, named)
	if missing {
		t.report(diag.Warning, by, named.Position, access.NotSeen(name, t.cfg.SecretsUnseen),
			"no certificate is accepted until it does where snapshots are pushed")
	}
	return c
}

// authorityOf returns the certificate authorities of a Secret. It makes and checks them if they are new. Without them
// no client is accepted: a snapshot that is pushed without its authorities gets an authority that signed nothing.
// missing reports that the Secret does not exist; it is only set in the first call.
func (t *certificates) authorityOf(name snapshots.SecretName, named routing.Origin) (c *routing.Certificate, missing bool) {
	file := routing.AuthorityFile(name)
	if c := t.files[file]; c != nil {
		return c, false
	}
	c = &routing.Certificate{File: file, Secret: name, Use: snapshots.UseCA, Origin: named}
	t.files[file] = c
	secret, exists := t.secrets.Find(types.NamespacedName(name))
	if !exists {
		return c, true
	}
	if _, err := live.Authorities(*secret.Value); err != nil {
		t.reportSecret(diag.Error, secret, "holds no certificate authorities: "+err.Error(), "no certificate is accepted until it is mended")
	}
	return c, false
}

// observation is what can be said about the certificate in a Secret at any time. It never changes.
type observation struct {
	snapshots.ObservedCertificate

	kind    string // the kind of its key
	serving pem.Serving
	err     error // why it cannot be served
}

func observe(secret *corev1.Secret) *observation {
	data, err := live.Certificate(*secret)
	if err != nil {
		return &observation{err: err}
	}
	leaf, err := pem.CheckKeyPair(data)
	return &observation{ObservedCertificate: snapshots.ObservedCertificate(leaf), kind: keyKind(data), serving: pem.ServingOf(data), err: err}
}

// keyKind names the kind of key of a certificate. It returns "" if that is not known. HAProxy chooses among the
// certificates of a host by the kind of key.
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

// reportSecret adds a finding about a Secret.
func (t *certificates) reportSecret(severity diag.Severity, secret inputs.Object[corev1.Secret], message, hint string) {
	t.add(diag.Diagnostic{
		Severity: severity, Position: secret.Position("data", corev1.TLSCertKey), Object: secret.Ref, Message: message, Hint: hint,
	})
}

// takeForServers takes the Secrets that are needed for TLS to servers.
func (t *certificates) takeForServers(demands []secretDemand) {
	for _, d := range demands {
		var missing bool
		if d.authority {
			_, missing = t.authorityOf(d.secret, d.spot.Origin)
		} else {
			_, missing = t.of(d.secret, d.spot.Origin, d.without)
		}
		if missing {
			t.add(d.spot.Finding(diag.Warning, ": "+access.NotSeen(d.secret, t.cfg.SecretsUnseen), d.without+" until it does where snapshots are pushed"))
		}
	}
}

// serverNames are the hosts for which TLS clients ask, and the certificates that they get.
type serverNames struct {
	*findings
	owners  *ownership.Owners
	certs   *certificates
	hosts   map[string]*virtualHost // the hosts of the merge
	tls     map[string]*tlsClaim
	clients map[string]*clientClaim
}

// clientClaim says which certificate the clients of a host are asked for when they connect, and which Ingress said so
// first.
type clientClaim struct {
	by        ownership.Claimant
	authority snapshots.SecretName
	required  bool // all Ingresses that ask for a certificate require one
	origin    routing.Origin
}

// askClients makes HAProxy ask the clients of an Ingress's hosts for certificates. HAProxy asks when they connect,
// before there is a request, so a host has one authority for all of its paths. askClients returns true if the authority
// is missing or wrong. The routes are then closed.
func (t *serverNames) askClients(c *claims, aliases []string) (refused bool) {
	asked := c.clients
	if asked.Authority == "" || c.values.Closed {
		return false
	}
	at := c.Origin(annotationPath("client-ca-secret")...)
	authority := snapshots.SecretName{Namespace: c.Ref.Namespace, Name: asked.Authority}
	hosts := slices.Concat(c.ruleHosts, aliases)
	if message, hint := t.cannotAsk(c, authority, hosts); message != "" {
		t.report(diag.Error, c.Claimant, at.Position, "annotation "+options.Prefix+"client-ca-secret "+message+"; the routes that it protects answer 503", hint)
		return true
	}
	t.certs.takeAuthority(c.Claimant, authority, at)
	for _, host := range hosts {
		host = hostname.Normal(host)
		claim := t.clients[host]
		if claim == nil {
			claim = &clientClaim{by: c.Claimant, authority: authority, required: true, origin: at}
			t.clients[host] = claim
		}
		claim.required = claim.required && asked.Check.Required && asked.Check.ErrorPage == ""
	}
	return false
}

// cannotAsk says why clients cannot be asked for certificates of an authority.
func (t *serverNames) cannotAsk(c *claims, authority snapshots.SecretName, hosts []string) (message, hint string) {
	if c.withoutHost != "" {
		return "is for hosts, and " + c.withoutHost, "clients are asked when they connect, by host: give rules with hosts"
	}
	for _, host := range hosts {
		switch s, o := t.owners.StandingOf(c.Ref.Namespace, hostname.Of(host)); {
		case s != ownership.Owns && o == nil:
			return fmt.Sprintf("asks nothing of clients of host %s, which is in a domain that is reserved for other namespaces", host), "use another host"
		case s != ownership.Owns:
			return fmt.Sprintf("asks nothing of clients of host %s: that is up to its owner, namespace %s, by %s", host, o.Namespace(), o.By.Precedes(c.Claimant)), "use a host of your own"
		}
		if claim := t.clients[hostname.Normal(host)]; claim != nil && claim.authority != authority {
			return fmt.Sprintf("cannot ask for certificates of Secret %s: clients of host %s are asked for those of Secret %s by %s",
				authority, host, claim.authority, claim.by.Precedes(c.Claimant)), "name the same Secret in both" + winnerAt(claim.origin)
		}
	}
	return "", ""
}

// clientCheck returns which certificates the clients of a host are asked for when they connect, or nil. If every Ingress
// with the host requires one, a client without a certificate cannot connect. Otherwise it can, and only its requests to
// Ingresses that require one are refused.
func (t *serverNames) clientCheck(host string) *routing.ClientCheck {
	claim := t.clients[host]
	if claim == nil {
		return nil
	}
	h := t.hosts[hostname.Of(host)]
	return &routing.ClientCheck{Authority: routing.AuthorityFile(claim.authority), Required: claim.required && (h == nil || !h.open)}
}

// tlsClaim has the Secrets that one Ingress names for a TLS host, in the order of the Ingress. Several Secrets are for
// clients that support different kinds of keys.
type tlsClaim struct {
	by      ownership.Claimant
	secrets []snapshots.SecretName
	origin  routing.Origin
}

// take claims a host for a Secret, unless an older Ingress has it.
func (t *serverNames) take(by ownership.Claimant, entry tlsEntry, host string, at routing.Origin) {
	secret, claim := entry.secret, t.tls[host]
	switch {
	case claim == nil:
		claim = &tlsClaim{by: by, origin: at}
		t.tls[host] = claim
	case slices.Contains(claim.secrets, secret):
		return
	case claim.by.Ref != by.Ref:
		t.reportLost(diag.Error, by, claim.by, at.Position,
			fmt.Sprintf("Secret %s is not used for host %s: Secret %s was named by %s", secret, host, claim.secrets[0], claim.by.Precedes(by)),
			"name the same Secret in both"+winnerAt(claim.origin))
		return
	}
	// The model refers to the certificate even if it cannot be served now. The pusher reads the Secret when it pushes a
	// snapshot, and the certificate may be mended by then.
	c, missing := t.certs.of(secret, entry.named, hostsWithout)
	if missing {
		t.certs.report(diag.Warning, by, entry.named.Position, fmt.Sprintf("Secret %s does not exist here", secret),
			"its hosts get the default certificate until it does"+t.certs.wherePushed())
	}
	t.sameKind(by, host, claim.secrets, c, at)
	claim.secrets = append(claim.secrets, secret)
	if o := c.Observed; o != nil && !hostname.Covers(o.Names, host) {
		t.report(diag.Warning, by, at.Position,
			fmt.Sprintf("the certificate in Secret %s is not for host %s but for %s", secret, host, printable.Few(o.Names, 5)),
			"clients will refuse it; renew it for this host")
	}
}

// sameKind reports a certificate whose key is of the same kind as that of an earlier certificate of the host. HAProxy
// uses the first of these that it reads, in the order of files.
func (t *serverNames) sameKind(by ownership.Claimant, host string, earlier []snapshots.SecretName, c *routing.Certificate, at routing.Origin) {
	for _, secret := range earlier {
		other := t.certs.files[routing.CertificateFile(secret)]
		if t.certs.kinds[c.File] == "" || t.certs.kinds[c.File] != t.certs.kinds[other.File] {
			continue
		}
		served, idle := other.Secret, c.Secret
		if c.File < other.File {
			served, idle = idle, served
		}
		t.report(diag.Warning, by, at.Position,
			fmt.Sprintf("Secret %s is not served for host %s: Secret %s holds a key of the same kind, %s", idle, host, served, t.certs.kinds[c.File]),
			"several certificates of a host need keys of different kinds, such as RSA and ECDSA")
		return
	}
}

// model assigns hosts to certificates. It returns the hosts that need a line of their own, sorted.
func (t *serverNames) model() []routing.ServerName {
	var out []routing.ServerName
	names := t.tlsNames()
	below := map[string][]string{}
	for _, name := range names {
		if wildcard := hostname.WildcardName(name); wildcard != "" {
			below[wildcard] = append(below[wildcard], name)
		}
	}
	for _, host := range names {
		name := routing.ServerName{Host: host, Certificates: t.filesOf(host), Clients: t.clientCheck(host), Origin: t.tlsOrigin(host)}
		name.Except = t.except(name, below[host])
		if len(name.Except) > 0 || name.Clients != nil || len(name.Certificates) == 0 && t.owners.IsApart(hostname.Of(host)) {
			out = append(out, name)
			continue
		}
		for _, file := range name.Certificates {
			t.certs.files[file].Hosts = append(t.certs.files[file].Hosts, host)
		}
	}
	return out
}

// tlsNames returns the hosts that need a line of their own in the crt-list, sorted:
//
//   - hosts with certificates,
//   - hosts whose clients are asked for certificates,
//   - hosts below a wildcard whose clients are asked for certificates, if their own clients are not,
//   - hosts below a wildcard that does not apply to them.
func (t *serverNames) tlsNames() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(t.tls)), maps.Keys(t.clients))
	if len(t.clients) > 0 {
		for host := range t.hosts {
			if !strings.HasPrefix(host, ".") && t.clients[hostname.WildcardName(host)] != nil {
				names = append(names, host)
			}
		}
	}
	for _, host := range t.owners.Apart() {
		if wildcard := hostname.WildcardName(host); t.tls[wildcard] != nil || t.clients[wildcard] != nil {
			names = append(names, host)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// filesOf returns the certificates of a host. They were named for the host, or for the wildcard that matches it.
func (t *serverNames) filesOf(host string) []string {
	if claim := t.tls[host]; claim != nil {
		return claim.files()
	}
	if claim := t.tls[hostname.WildcardName(host)]; claim != nil && !t.owners.IsApart(hostname.Of(host)) {
		return claim.files()
	}
	return nil
}

// tlsOrigin returns the origin of a host of [serverNames.tlsNames].
func (t *serverNames) tlsOrigin(host string) routing.Origin {
	if claim := t.clients[host]; claim != nil {
		return claim.origin
	}
	if claim := t.tls[host]; claim != nil {
		return claim.origin
	}
	if h := t.hosts[hostname.Of(host)]; h != nil {
		return h.origin
	}
	if o := t.owners.First(hostname.Of(host)); o != nil {
		return o.Origin()
	}
	return routing.Origin{}
}

// files returns the files of the certificates in a claim, sorted.
func (c *tlsClaim) files() []string {
	out := make([]string, len(c.secrets))
	for i, secret := range c.secrets {
		out[i] = routing.CertificateFile(secret)
	}
	slices.Sort(out)
	return out
}

// maxExcept is how many hosts a wildcard can leave out. They share its line of the crt-list, which HAProxy limits to
// 2048 words and 64 KiB. A host that does not fit gets the wildcard's certificate, unless its own has the same kind of
// key.
const (
	maxExcept      = 1000
	maxExceptBytes = 48 << 10
)

// except returns the names below a wildcard to which it does not apply. These have other certificates, or their clients
// are asked for other certificates or for none.
func (t *serverNames) except(wildcard routing.ServerName, below []string) []string {
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
