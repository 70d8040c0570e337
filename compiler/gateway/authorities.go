package gateway

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

// mostAuthorityBytes bounds the authorities of one port or policy. All that browsers trust have 220 KiB.
const mostAuthorityBytes = 256 << 10

// authoritiesKey is where a ConfigMap has them.
const authoritiesKey = "ca.crt"

// authorities are the certificate authorities of ConfigMaps, each set of them once.
type authorities struct {
	world      *attach.World
	configMaps map[types.NamespacedName]inputs.Object[corev1.ConfigMap]
	unread     []diag.Object
	leftOut    []diag.Object
	asked      map[types.NamespacedName]bool
	files      map[string]routing.Authority
	// known is what was read, once, and validation what comes of what Gateways ask of clients.
	known      map[types.NamespacedName]authority
	validation map[*gatewayv1.FrontendTLSValidation]askedAuthority
	// read are the bytes of ConfigMaps by their namespaces, and kept those of files by the namespace of who
	// asked first. Most is how many each may be.
	read, kept map[string]int
	most       int
}

// authority is what a ConfigMap has: certificates in PEM, or why there are none.
type authority struct {
	certificates [][]byte
	origin       routing.Origin
	why          string
}

// askedAuthority is a file, and what is wrong with references.
type askedAuthority struct {
	file string
	why  attach.Verdict
}

func newAuthorities(in inputs.Inputs, world *attach.World, most int) *authorities {
	return &authorities{
		world:      world,
		unread:     in.Unread,
		leftOut:    in.LeftOut,
		configMaps: inputs.ByName(in.ConfigMaps), asked: map[types.NamespacedName]bool{},
		files: map[string]routing.Authority{}, most: most,
		known: map[types.NamespacedName]authority{}, validation: map[*gatewayv1.FrontendTLSValidation]askedAuthority{},
		read: map[string]int{}, kept: map[string]int{},
	}
}

// authority returns the file of the authorities that an object refers to, and what is wrong with a reference.
// Those that lead nowhere are left out; the file is "" if none is left.
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
		found := a.of(types.NamespacedName{Namespace: to.Namespace, Name: to.Name})
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

// warn reports the authorities on whose account HAProxy trusts nothing: they are intermediate ones, and the
// files that have them lack what has signed them.
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

// of returns the authorities of a ConfigMap.
func (a *authorities) of(name types.NamespacedName) authority {
	found, is := a.known[name]
	if !is {
		a.asked[name] = true
		found = a.parse(name)
		a.known[name] = found
	}
	return found
}

func (a *authorities) parse(name types.NamespacedName) authority {
	c, exists := a.configMaps[name]
	switch {
	case exists:
	case slices.Contains(a.unread, diag.Object{Kind: "ConfigMap", Namespace: name.Namespace, Name: name.Name}):
		return authority{why: "may not be read by the compiler, so that nobody knows whether it exists"}
	case slices.Contains(a.leftOut, diag.Object{Kind: "ConfigMap", Namespace: name.Namespace, Name: name.Name}):
		return authority{why: "is left out, since HAProxy refuses it, or it has a secret in it"}
	default:
		return authority{why: "does not exist"}
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

// keep makes a file of certificates for a namespace, each once, or says why there is none.
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
		if !slices.Contains(known.Origins, o) {
			known.Origins = append(known.Origins, o)
		}
	}
	slices.SortFunc(known.Origins, routing.Origin.Compare)
	a.files[made.File] = known
	return made.File, ""
}
