package ingress

import (
	"crypto/x509"
	stdpem "encoding/pem"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/ownership"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// certificates are those of Secrets that are named, whatever for.
type certificates struct {
	*findings
	secrets inputs.Lookup[corev1.Secret]
	cfg     *Config
	files   map[string]*routing.Certificate // by file
	kinds   map[string]string               // of their keys, by file
	observe func(*corev1.Secret) *observation
}

// take returns the certificate of a Secret that an Ingress names. It is
// referenced even if it cannot be served as it is here: it is joined when a
// snapshot is pushed, and may be mended by then.
func (t *certificates) take(by ownership.Claimant, name snapshots.SecretName, named routing.Origin) *routing.Certificate {
	c, missing := t.of(name, named, hostsWithout)
	if missing {
		t.report(diag.Warning, by, named.Position, fmt.Sprintf("Secret %s does not exist here", name),
			"its hosts get the default certificate until it does"+t.wherePushed())
	}
	return c
}

// wherePushed says where a Secret with a certificate has to be that is not here.
func (t *certificates) wherePushed() string {
	if t.cfg.CertificatesAsSeen {
		return ""
	}
	return " where snapshots are pushed"
}

// takeDefault takes the certificate for everybody else, if the configuration names one, and returns
// its file.
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

// hostsWithout is what becomes of hosts while their Secret cannot be used.
const hostsWithout = "hosts that name this Secret get the default certificate"

// of returns the certificate of a Secret, which it makes and checks
// if it is new; without is what becomes of whoever names the Secret while it
// cannot be used. Missing says that the Secret is not here, once.
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
	if without != ofServers { // what is shown to servers is no certificate of a server
		refused = observed.serving.Faults(t.cfg.Now)
	}
	t.add(access.CertificateWarnings(secret, observed.ObservedCertificate, t.cfg.Now, refused, "its hosts get the default certificate")...)
	return c, false
}

// takeAuthority returns the certificate authorities of a Secret that an Ingress names
// for its clients.
func (t *certificates) takeAuthority(by ownership.Claimant, name snapshots.SecretName, named routing.Origin) *routing.Certificate {
	c, missing := t.authorityOf(name, named)
	if missing {
		t.report(diag.Warning, by, named.Position, access.NotSeen(name, t.cfg.SecretsUnseen),
			"no certificate is accepted until it does where snapshots are pushed")
	}
	return c
}

// authorityOf returns the certificate authorities of a Secret, which it makes and
// checks if they are new. Without them nobody is let in, for a snapshot that is
// pushed without its authorities is given some that signed nothing. Missing says
// that the Secret is not here, once.
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

// observation is what there is to say of the certificate in a Secret, whenever it is asked. Nobody changes it.
type observation struct {
	snapshots.ObservedCertificate

	kind    string // of its key
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
func (t *certificates) reportSecret(severity diag.Severity, secret inputs.Object[corev1.Secret], message, hint string) {
	t.add(diag.Diagnostic{
		Severity: severity, Position: secret.Position("data", corev1.TLSCertKey), Object: secret.Ref, Message: message, Hint: hint,
	})
}

// takeForServers takes the Secrets that TLS towards servers needs.
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
