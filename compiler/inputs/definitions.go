package inputs

import (
	"maps"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/gateway-api/pkg/consts"

	"github.com/hapsnap/hapsnap/internal/manifests"
)

// DefinitionVersion and DefinitionKind are those of the objects that define the kinds of a cluster's Gateway API.
const (
	DefinitionVersion = "apiextensions.k8s.io/v1"
	DefinitionKind    = "CustomResourceDefinition"
)

// Definition is what is read of the CustomResourceDefinition of a kind of the Gateway API: from which bundle it
// is, and which versions the cluster serves.
type Definition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              DefinitionSpec `json:"spec"`
}

// DefinitionSpec names a kind and its versions.
type DefinitionSpec struct {
	Group string `json:"group"`
	Names struct {
		Kind string `json:"kind"`
	} `json:"names"`
	Versions []struct {
		Name   string `json:"name"`
		Served bool   `json:"served"`
	} `json:"versions"`
}

// Bundle returns the version of the bundle, such as "v1.6.3", or "".
func (d *Definition) Bundle() string { return d.Annotations[consts.BundleVersionAnnotation] }

// IsExperimental reports whether the definition is of the experimental channel.
func (d *Definition) IsExperimental() bool {
	return d.Annotations[consts.ChannelAnnotation] == "experimental"
}

// Serves returns the versions that the cluster serves.
func (d *Definition) Serves() []string {
	var out []string
	for _, v := range d.Spec.Versions {
		if v.Served {
			out = append(out, v.Name)
		}
	}
	return out
}

// Strip takes out what no compile looks at.
func (d *Definition) Strip() {
	d.ObjectMeta = metav1.ObjectMeta{
		Name: d.Name, UID: d.UID, ResourceVersion: d.ResourceVersion,
		Annotations: map[string]string{consts.BundleVersionAnnotation: d.Bundle(), consts.ChannelAnnotation: d.Annotations[consts.ChannelAnnotation]},
	}
}

// GatewayDefinitions returns the names of the CustomResourceDefinitions of the kinds that are read.
func GatewayDefinitions() []string {
	var out []string
	for _, kind := range gatewayKinds {
		out = append(out, kind.Definition())
	}
	return out
}

// definition adds the definition of a kind of the Gateway API, and reports whether it is one.
func (g *gatherer) definition(o manifests.Object) bool {
	if !slices.Contains(GatewayDefinitions(), o.Name) {
		return false
	}
	d, known := g.before[identity{o.Identity(), false}].(*Definition)
	if !known {
		d = &Definition{}
		_ = o.Decode(d) // it has far more than what is read, and its faults are for others to tell
		d.Strip()
	}
	g.decoded[identity{o.Identity(), false}] = d
	g.in.Gateway.Definitions = append(g.in.Gateway.Definitions, Object[Definition]{Ref: ref(o), Value: d})
	return true
}

// unknownField is an annotation of objects that a cluster has: a field of theirs that the compiler does not know.
// The API server has a later version of the API then. It exists in this process only.
const unknownField = "gateway.hapsnap.dev/unknown-field"

// fieldForm is the form of a field's path. What a tenant writes into the annotation is shown to people.
var fieldForm = regexp.MustCompile(`^spec[A-Za-z0-9_.\[\]-]{0,200}$`)

// NoteUnknown takes note of the first field of an object of a cluster that is not known, such as "spec.rules[0].x",
// or that there is none: "".
func NoteUnknown(object metav1.Object, field string) {
	annotations := maps.Clone(object.GetAnnotations())
	delete(annotations, unknownField)
	if field != "" && !fieldForm.MatchString(field) {
		field = "spec"
	}
	if field != "" {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[unknownField] = field
	}
	object.SetAnnotations(annotations)
}

// UnknownField returns what [NoteUnknown] has noted, or "".
func UnknownField(object metav1.Object) string {
	if field := object.GetAnnotations()[unknownField]; fieldForm.MatchString(field) {
		return field
	}
	return ""
}
