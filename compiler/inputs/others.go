package inputs

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// builtIn are the kinds that the compiler reads whatever the configuration says.
var builtIn = []manifests.GVK{
	{APIVersion: "v1", Kind: "ConfigMap"}, {APIVersion: "v1", Kind: "Namespace"}, {APIVersion: "v1", Kind: "Secret"}, {APIVersion: "v1", Kind: "Service"},
	{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
	{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"}, {APIVersion: "networking.k8s.io/v1", Kind: "IngressClass"},
}

// RefOf names an object. The apiVersion is a part of the name for kinds that
// only the configuration names: there may be several of one name.
func RefOf(apiVersion, kind, namespace, name string) diag.Object {
	if slices.Contains(builtIn, manifests.GVK{APIVersion: apiVersion, Kind: kind}) {
		apiVersion = ""
	}
	return diag.Object{APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name}
}

// Other returns an object of a cluster as one of [Inputs].Others. Its content
// must have been trimmed, with a [Trimmer] of its kind, and must not be changed.
func Other(u *unstructured.Unstructured) Object[unstructured.Unstructured] {
	return Object[unstructured.Unstructured]{Ref: RefOf(u.GetAPIVersion(), u.GetKind(), u.GetNamespace(), u.GetName()), Value: u}
}

// kindOf returns what the configuration says of a kind, and whether it names it.
func kindOf(list []kinds.Kind, apiVersion, kind string) (kinds.Kind, bool) {
	i := slices.IndexFunc(list, func(k kinds.Kind) bool { return k.APIVersion == apiVersion && k.Kind == kind })
	if i < 0 {
		return kinds.Kind{}, false
	}
	return list[i], true
}

// other takes in the content of an object, if the configuration names its kind,
// and says whether it does.
func (g *gatherer) other(o manifests.Object) bool {
	if _, named := kindOf(g.kinds, o.APIVersion, o.Kind); !named {
		return false
	}
	if o.Namespace == "" && g.namespaced[groupKindOf(o.APIVersion, o.Kind)] {
		o.Namespace = "default"
	}
	key := identity{o.Identity(), true}
	u, known := g.before[key].(*unstructured.Unstructured)
	if !known {
		u = &unstructured.Unstructured{}
		if !g.fits(o, o.Decode(&u.Object), validation.IsDNS1123Subdomain) {
			return true
		}
		g.trimmers[o.GVK()](u.Object)
		u.SetAPIVersion(o.APIVersion) // as in a List of some kind, whose items may leave them out
		u.SetKind(o.Kind)
		if o.Namespace != "" {
			u.SetNamespace(o.Namespace)
		}
	}
	g.decoded[key] = u
	at := func(path ...any) diag.Position { return inFile(o.Position(path...)) }
	g.in.Others = append(g.in.Others, Object[unstructured.Unstructured]{Ref: ref(o), Value: u, At: at})
	return true
}

// groupKind is a kind in any version.
type groupKind struct{ group, kind string }

func groupKindOf(apiVersion, kind string) groupKind {
	group, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		group = ""
	}
	return groupKind{group, kind}
}

// namespacedKinds returns the kinds of which a CustomResourceDefinition among the
// objects says that they are in namespaces. Of others nothing is known.
func namespacedKinds(set manifests.Set) map[groupKind]bool {
	out := map[groupKind]bool{}
	for _, o := range set.Objects {
		if o.GVK() != (manifests.GVK{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}) {
			continue
		}
		var crd struct {
			Spec struct {
				Group string `json:"group"`
				Scope string `json:"scope"`
				Names struct {
					Kind string `json:"kind"`
				} `json:"names"`
			} `json:"spec"`
		}
		o.Decode(&crd) // what is wrong with it is not for us to say
		if crd.Spec.Scope == "Namespaced" {
			out[groupKind{crd.Spec.Group, crd.Spec.Names.Kind}] = true
		}
	}
	return out
}
