package gateway

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/gateway/layout"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// certificates are those of Secrets.
type certificates struct {
	secrets map[types.NamespacedName]inputs.Object[corev1.Secret]
	unseen  bool                           // no Secret is looked at
	now     time.Time                      // zero for none
	warn    func(...diag.Diagnostic)       // each once
	byFile  map[string]routing.Certificate // that were asked for
}

func newCertificates(secrets []inputs.Object[corev1.Secret], cfg Config, warn func(...diag.Diagnostic)) *certificates {
	return &certificates{secrets: inputs.ByName(secrets), unseen: cfg.SecretsUnseen, now: cfg.Now, warn: warn, byFile: map[string]routing.Certificate{}}
}

// served is [certificates.certificate] for clients.
func (t *certificates) served(name, namespace string, origin routing.Origin) (c routing.Certificate, why string) {
	c, why = t.certificate(name, namespace, origin)
	if c.Observed != nil {
		secret := t.secrets[types.NamespacedName(c.Secret)]
		data, _ := live.Certificate(*secret.Value) // as it was observed
		t.warn(access.CertificateWarnings(secret, *c.Observed, t.now, pem.ServingOf(data).Faults(t.now), "clients get the fallback certificate")...)
	}
	if why == absent {
		why += "; clients get the fallback certificate until it does where snapshots are pushed"
	}
	return c, why
}

// absent says of a Secret that it is not there.
const absent = "does not exist here"

// certificate returns the certificate of a Secret, and why it cannot be served now. It is referred to
// all the same: it is joined when a snapshot is pushed, and may be mended by then.
func (t *certificates) certificate(name, namespace string, origin routing.Origin) (c routing.Certificate, why string) {
	secret := snapshots.SecretName{Namespace: namespace, Name: name}
	c = routing.Certificate{File: routing.CertificateFile(secret), Secret: secret, Origin: origin}
	found, exists := t.secrets[types.NamespacedName(secret)]
	switch {
	case !exists && t.unseen:
	case !exists:
		why = absent
	default:
		data, err := live.Certificate(*found.Value)
		if err == nil {
			var observed snapshots.ObservedCertificate
			leaf, fault := pem.CheckKeyPair(data)
			observed, err = snapshots.ObservedCertificate(leaf), fault
			c.Observed = &observed
		}
		if err != nil {
			c.Observed, why = nil, "holds no certificate that can be served: "+err.Error()
		}
	}
	if _, known := t.byFile[c.File]; !known {
		t.byFile[c.File] = c
	}
	return c, why
}

// serverNames returns which clients of some listeners of a bind get which certificates. HAProxy takes a wildcard for one
// label. So each name of a certificate that only its listener takes is there too.
func serverNames(b *bind, some func(*attach.Listener) bool) []routing.ServerName {
	byHost := map[string]*routing.ServerName{}
	add := func(host string, l *attach.Listener, file string) {
		n := byHost[host]
		if n == nil {
			n = &routing.ServerName{Host: host, Origin: l.Origin}
			byHost[host] = n
		}
		if !slices.Contains(n.Certificates, file) {
			n.Certificates = append(n.Certificates, file)
		}
	}
	for i, l := range b.of {
		if !some(l) {
			continue
		}
		for _, c := range l.Certificates {
			add(hostname.Shown(l.Host), l, c.File)
			if c.Observed == nil || !hostname.IsWildcard(l.Host) {
				continue
			}
			for _, name := range c.Observed.Names {
				host := hostname.Of(name)
				if message, _ := hostname.Check(hostname.Normal(name)); message == "" && host != l.Host && layout.Owner(b.listeners, host) == i {
					add(hostname.Shown(host), l, c.File)
				}
			}
		}
	}
	var out []routing.ServerName
	for _, n := range byHost {
		if suffix, wild := strings.CutPrefix(n.Host, "*"); wild {
			for other := range byHost {
				label, below := strings.CutSuffix(other, suffix)
				if below && label != "" && label != "*" && !strings.Contains(label, ".") {
					n.Except = append(n.Except, other)
				}
			}
			slices.Sort(n.Except)
		}
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, c routing.ServerName) int { return cmp.Compare(a.Host, c.Host) })
	return out
}
