package gateway

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// certificates are the certificates of Secrets.
type certificates struct {
	secrets inputs.Index[corev1.Secret]
	unseen  bool                           // no Secret is read
	now     time.Time                      // zero if expiry does not count
	warn    func(...diag.Diagnostic)       // reports each diagnostic once
	byFile  map[string]routing.Certificate // the certificates that were asked for
}

func newCertificates(secrets []inputs.Object[corev1.Secret], cfg Config, warn func(...diag.Diagnostic)) *certificates {
	return &certificates{secrets: inputs.ByName(secrets), unseen: cfg.SecretsUnseen, now: cfg.Now, warn: warn, byFile: map[string]routing.Certificate{}}
}

// served is like [certificates.certificate], for certificates that clients get.
func (t *certificates) served(name, namespace string, origin routing.Origin) (c routing.Certificate, why string) {
	c, why = t.certificate(name, namespace, origin)
	if c.Observed != nil {
		secret, _ := t.secrets.Find(types.NamespacedName(c.Secret))
		data, _ := live.Certificate(*secret.Value) // the observation says that there is one
		t.warn(access.CertificateWarnings(secret, *c.Observed, t.now, pem.ServingOf(data).Faults(t.now), "clients get the fallback certificate")...)
	}
	if why == absent {
		why += "; clients get the fallback certificate until it does where snapshots are pushed"
	}
	return c, why
}

// absent says that a Secret does not exist.
const absent = "does not exist here"

// certificate returns the certificate of a Secret, and says why it cannot be served now. The model refers to it anyway,
// since the pusher reads the Secret when it pushes a snapshot, and the Secret may be mended by then.
func (t *certificates) certificate(name, namespace string, origin routing.Origin) (c routing.Certificate, why string) {
	secret := snapshots.SecretName{Namespace: namespace, Name: name}
	c = routing.Certificate{File: routing.CertificateFile(secret), Secret: secret, Origin: origin}
	found, exists := t.secrets.Find(types.NamespacedName(secret))
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

// serverNames returns which clients of some listeners of a port get which certificates. A wildcard in HAProxy stands
// for only one label, while that of a listener stands for any number. So the result also has each name of a certificate
// that only a listener's wildcard matches.
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
				if message, _ := hostname.Check(hostname.Normal(name)); message == "" && host != l.Host && b.owners.Of(host) == i {
					add(hostname.Shown(host), l, c.File)
				}
			}
		}
	}
	below := map[string][]string{} // hosts by what follows their first label
	for host := range byHost {
		if label, _, _ := strings.Cut(host, "."); label != "" && label != "*" {
			below[host[len(label):]] = append(below[host[len(label):]], host)
		}
	}
	var out []routing.ServerName
	for _, n := range byHost {
		if suffix, wild := strings.CutPrefix(n.Host, "*"); wild {
			n.Except = slices.Sorted(slices.Values(below[suffix]))
		}
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, c routing.ServerName) int { return cmp.Compare(a.Host, c.Host) })
	return out
}

// mostAuthorityBytes is the largest size of the authorities for one port or policy. All authorities that browsers trust
// have 220 KiB together.
const mostAuthorityBytes = 256 << 10

// authoritiesKey is the key of the authorities in a ConfigMap.
const authoritiesKey = "ca.crt"

// authorities are the certificate authorities of ConfigMaps, each set only once.
type authorities struct {
	world      *attach.World
	configMaps inputs.Lookup[corev1.ConfigMap]
	leftOut    map[types.NamespacedName]bool
	files      map[string]routing.Authority
	origins    map[fileOrigin]bool // of the files
	// known are the ConfigMaps that were read. validation has the results for what Gateways ask of clients.
	known      map[types.NamespacedName]authority
	validation map[*gatewayv1.FrontendTLSValidation]askedAuthority
	// read counts the bytes of ConfigMaps by their namespaces. kept counts the bytes of files by the namespace that
	// asked first. most is the limit for both.
	read, kept map[string]int
	most       int
}

// authority is the content of a ConfigMap: certificates in PEM, or the reason why there are none.
type authority struct {
	certificates [][]byte
	origin       routing.Origin
	why          string
}

// askedAuthority is the file for a set of references, and what is wrong with them.
type askedAuthority struct {
	file string
	why  attach.Verdict
}

func newAuthorities(in inputs.Inputs, world *attach.World, most int) *authorities {
	return &authorities{
		world:      world,
		configMaps: in.LookupConfigMaps(), leftOut: inputs.ConfigMapsOf(in.LeftOut),
		files: map[string]routing.Authority{}, origins: map[fileOrigin]bool{}, most: most,
		known: map[types.NamespacedName]authority{}, validation: map[*gatewayv1.FrontendTLSValidation]askedAuthority{},
		read: map[string]int{}, kept: map[string]int{},
	}
}

// authority returns the file with the authorities to which an object refers, and says what is wrong with the
// references. It leaves out references that lead nowhere. If none is left, file is "".
func (a *authorities) authority(by diag.Object, refs []attach.Reference, invalidKind string) (file string, why attach.Verdict) {
	var all [][]byte
	var origins []routing.Origin
	wrong := func(reason, message string) {
		if why.Fine() {
			why = attach.Verdict{Reason: reason, Message: message}
		}
	}
	for _, to := range refs {
		if to.Group != "" || to.Kind != "ConfigMap" {
			wrong(invalidKind, fmt.Sprintf("authorities are in a ConfigMap, and not in a %s/%s", cmp.Or(to.Group, "core"), to.Kind))
			continue
		}
		if !a.world.Permitted(by.Kind, by.Namespace, to) {
			wrong(string(gatewayv1.ListenerReasonRefNotPermitted), fmt.Sprintf("no ReferenceGrant of the namespace %s permits the reference to ConfigMap %s/%s", to.Namespace, to.Namespace, to.Name))
			continue
		}
		name := types.NamespacedName{Namespace: to.Namespace, Name: to.Name}
		found, is := a.known[name]
		if !is {
			found = a.parse(name)
			a.known[name] = found
		}
		if found.why != "" {
			wrong(string(gatewayv1.ListenerReasonInvalidCACertificateRef), fmt.Sprintf("ConfigMap %s/%s %s", to.Namespace, to.Name, found.why))
			continue
		}
		all, origins = append(all, found.certificates...), append(origins, found.origin)
	}
	if len(all) == 0 {
		return "", why
	}
	file, fault := a.keep(by.Namespace, all, origins)
	if fault != "" {
		wrong(string(gatewayv1.ListenerReasonInvalidCACertificateRef), fault)
	}
	return file, why
}

// warn reports intermediate authorities in files that do not have the authorities which signed them. HAProxy trusts
// nothing because of such an authority.
func (a *authorities) warn(f *findings) {
	said := map[string]bool{}
	for _, file := range slices.Sorted(maps.Keys(a.files)) {
		lone := pem.WithoutRoot(a.files[file].PEM)
		for _, o := range a.files[file].Origins {
			for _, c := range a.known[types.NamespacedName{Namespace: o.Object.Namespace, Name: o.Object.Name}].certificates {
				if subject, is := lone[string(c)]; is && !said[o.Object.String()+subject] {
					said[o.Object.String()+subject] = true
					f.report(diag.Warning, o.Object, o.Position, fmt.Sprintf("the authority %q is an intermediate one, and what has signed it is not among the authorities: HAProxy trusts no certificate of it", subject), "add the certificates up to the one that signs itself")
				}
			}
		}
	}
}

func (a *authorities) parse(name types.NamespacedName) authority {
	c, exists := a.configMaps.Find(name)
	switch {
	case exists:
	case a.leftOut[name]:
		return authority{why: "is left out, since HAProxy refuses it, or it has a secret in it"}
	default:
		why, _ := a.configMaps.Missing(name)
		return authority{why: why}
	}
	data, has := c.Value.Data[authoritiesKey]
	if !has {
		return authority{why: "has no key " + authoritiesKey}
	}
	if a.most > 0 && a.read[name.Namespace]+len(data) > a.most {
		return authority{why: fmt.Sprintf("is one of those of its namespace whose authorities have more than %d bytes together", a.most)}
	}
	a.read[name.Namespace] += len(data)
	text, err := pem.ParseAuthorities([]byte(data))
	if err != nil {
		return authority{why: fmt.Sprintf("has no certificate authorities under %s: %v", authoritiesKey, err)}
	}
	at := []any{"data", authoritiesKey}
	certificates := bytes.SplitAfter(text, []byte("-----END CERTIFICATE-----\n"))
	return authority{certificates: certificates[:len(certificates)-1], origin: routing.Origin{Object: c.Ref, Position: c.Position(at...), Field: manifests.FieldPath(at)}}
}

// keep makes a file of certificates for a namespace, with each certificate once. Otherwise it says why there is no
// file.
func (a *authorities) keep(namespace string, certificates [][]byte, origins []routing.Origin) (file, why string) {
	var text []byte
	seen := map[string]bool{}
	for _, c := range certificates {
		if !seen[string(c)] {
			seen[string(c)] = true
			text = append(text, c...)
		}
		if len(text) > mostAuthorityBytes {
			return "", fmt.Sprintf("the authorities have more than %d bytes together", mostAuthorityBytes)
		}
	}
	made := routing.NewAuthority(text)
	known, is := a.files[made.File]
	if is && !bytes.Equal(known.PEM, text) {
		return "", "the authorities have the digest of others"
	}
	if !is {
		if a.most > 0 && a.kept[namespace]+len(text) > a.most {
			return "", fmt.Sprintf("the authorities for the namespace %s have more than %d bytes together", namespace, a.most)
		}
		a.kept[namespace] += len(text)
		known = made
	}
	for _, o := range origins {
		if key := (fileOrigin{made.File, o}); !a.origins[key] {
			a.origins[key] = true
			known.Origins = append(known.Origins, o)
		}
	}
	a.files[made.File] = known
	return made.File, ""
}

// fileOrigin is a file of authorities, with one of the objects that the authorities come from.
type fileOrigin struct {
	file string
	routing.Origin
}

// sort sorts the origins of the files. It runs once all are known.
func (a *authorities) sort() {
	for _, f := range a.files {
		slices.SortFunc(f.Origins, routing.Origin.Compare)
	}
}

// askClients finds out which listeners of a Gateway ask clients for certificates. Only listeners that end TLS do.
// Listeners whose authorities cannot be used are not served.
func (t *gateways) askClients(g *attach.Gateway) {
	if g.Value.Spec.TLS == nil || g.Value.Spec.TLS.Frontend == nil {
		return
	}
	frontend := *g.Value.Spec.TLS.Frontend
	for _, l := range g.All() {
		if !l.EndsTLS() || !l.Accepted.Fine() {
			continue
		}
		asked := frontend.Default.Validation
		if i := slices.IndexFunc(frontend.PerPort, func(p gatewayv1.TLSPortConfig) bool { return p.Port == l.Spec.Port }); i >= 0 {
			asked = frontend.PerPort[i].TLS.Validation
		}
		if asked == nil {
			continue
		}
		refuse := func(reason gatewayv1.ListenerConditionReason, message string) {
			l.Accepted = attach.Verdict{Reason: string(reason), Message: message}
		}
		switch asked.Mode {
		case "", gatewayv1.AllowValidOnly, gatewayv1.AllowInsecureFallback:
		default:
			refuse(gatewayv1.ListenerReasonUnsupportedValue, fmt.Sprintf("the mode %q for certificates of clients is not supported", asked.Mode))
			continue
		}
		var refs []attach.Reference
		for _, ref := range asked.CACertificateRefs {
			refs = append(refs, attach.ReferenceOf("", g.Ref.Namespace, &ref.Group, &ref.Kind, ref.Namespace, ref.Name))
		}
		found, known := t.authorities.validation[asked]
		if !known {
			found.file, found.why = t.authorities.authority(g.Ref, refs, string(gatewayv1.ListenerReasonInvalidCACertificateKind))
			t.authorities.validation[asked] = found
		}
		if l.Resolved.Fine() {
			l.Resolved = found.why
		}
		if found.file == "" {
			refuse(gatewayv1.ListenerReasonNoValidCACertificate, cmp.Or(found.why.Message, "no authority is named")+"; without one no certificate of a client can be checked")
			continue
		}
		insecure := asked.Mode == gatewayv1.AllowInsecureFallback
		l.Clients = &routing.ClientCheck{Authority: found.file, Required: !insecure, Any: insecure}
	}
}

// insecure reports whether a port of a Gateway accepts clients without a valid certificate although it asks for one.
func insecure(g *attach.Gateway) bool {
	if g.Value.Spec.TLS == nil || g.Value.Spec.TLS.Frontend == nil {
		return false
	}
	is := func(c gatewayv1.TLSConfig) bool {
		return c.Validation != nil && c.Validation.Mode == gatewayv1.AllowInsecureFallback
	}
	frontend := g.Value.Spec.TLS.Frontend
	return is(frontend.Default) || slices.ContainsFunc(frontend.PerPort, func(p gatewayv1.TLSPortConfig) bool { return is(p.TLS) })
}

// showServers finds the certificate that a Gateway shows to servers over TLS.
func (t *gateways) showServers(g *attach.Gateway) {
	if g.Value.Spec.TLS == nil || g.Value.Spec.TLS.Backend == nil || g.Value.Spec.TLS.Backend.ClientCertificateRef == nil {
		return
	}
	ref := *g.Value.Spec.TLS.Backend.ClientCertificateRef
	to := attach.ReferenceOf("Secret", g.Ref.Namespace, ref.Group, ref.Kind, ref.Namespace, ref.Name)
	at := []any{"spec", "tls", "backend", "clientCertificateRef"}
	wrong := func(reason gatewayv1.GatewayConditionReason, message string) {
		g.Resolved = attach.Verdict{Reason: string(reason), Message: message}
		t.report(diag.Warning, g.Ref, g.Position(at...), message+"; servers that ask for a certificate get none that they trust", "")
	}
	switch {
	case to.Group != "" || to.Kind != "Secret":
		wrong(gatewayv1.GatewayReasonInvalidClientCertificateRef, fmt.Sprintf("a certificate is in a Secret, and not in a %s/%s", cmp.Or(to.Group, "core"), to.Kind))
	case !t.world.Permitted(g.Ref.Kind, g.Ref.Namespace, to):
		wrong(gatewayv1.GatewayReasonRefNotPermitted, fmt.Sprintf("no ReferenceGrant of the namespace %s permits the reference to Secret %s/%s", to.Namespace, to.Namespace, to.Name))
	default:
		c, why := t.certificates.certificate(to.Name, to.Namespace, routing.Origin{Object: g.Ref, Position: g.Position(at...), Field: manifests.FieldPath(at)})
		g.Shown = c.File
		if c.Observed != nil {
			secret, _ := t.certificates.secrets.Find(types.NamespacedName(c.Secret))
			t.addNew(access.CertificateWarnings(secret, *c.Observed, t.cfg.Now, nil, "servers that ask for it may refuse it")...)
		}
		if why != "" {
			wrong(gatewayv1.GatewayReasonInvalidClientCertificateRef, fmt.Sprintf("Secret %s/%s %s", to.Namespace, to.Name, why))
		}
	}
}
