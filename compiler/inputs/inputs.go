// Package inputs holds the Kubernetes objects that one compile is made from, as typed values that know
// their positions, and gathers them from manifests. It holds objects of the kinds that the
// configuration names with their content, as it is written.
//
// An object that breaks its schema gets a diagnostic and is left out; objects of kinds that the
// compiler does not read are counted. This package also decides which objects the configuration
// selects, in the same way for files and for a cluster. Packages ingress and gateway decide what the objects mean.
//
// # Decisions
//
// Objects of the kinds that the configuration names are kept as content, in addition to the typed value
// of a kind that is read anyway. Their schema is not known, so that a probe cannot tell a mistake of a
// template from one of an object. So what fails at an object counts as the object's fault, and the
// template is executed again without it: a loop that fails at many of them needs few rounds. A template
// that asks for a kind which the configuration does not name makes a mistake: a misspelt kind would
// otherwise have no objects, for ever and without a word.
//
// What a cluster selects is selected here once more, by the same function as for files, so that a
// directory and a cluster that hold the same give the same.
package inputs

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Object is one object of a known type. Value is shared and must not be
// changed. At finds the position of a field, as names and indices lead to it;
// it is nil for objects that do not come from files.
type Object[T any] struct {
	Ref   diag.Object
	Value *T
	At    func(path ...any) diag.Position
}

// Position returns the place of a field, or of its nearest parent; the name of
// the field if the object does not come from a file.
func (o Object[T]) Position(path ...any) diag.Position {
	if o.At == nil {
		return diag.Position{Field: manifests.FieldPath(path)}
	}
	return o.At(path...)
}

// Inputs is what one compile is made from, in any order; no two objects of a
// list have the same name.
type Inputs struct {
	Ingresses []Object[networkingv1.Ingress]
	// Broken are Ingresses that break their schema, with what could be read of them. They are not
	// served; those that protect something are kept closed.
	Broken         []Object[networkingv1.Ingress]
	Classes        []Object[networkingv1.IngressClass]
	Services       []Object[corev1.Service]
	Secrets        []Object[corev1.Secret]
	ConfigMaps     []Object[corev1.ConfigMap]
	EndpointSlices []Object[discoveryv1.EndpointSlice]
	// Namespaces are here for their labels.
	Namespaces []Object[corev1.Namespace]
	// Gateway are the objects of the Gateway API.
	Gateway GatewayAPI
	// Unread are single objects that the API server does not let be read. Whether they are there is not known.
	Unread []diag.Object
	// LeftOut are the ConfigMaps that Without left out, for faults that were reported of them.
	LeftOut []diag.Object
	// Others are the objects of the kinds that the configuration names, with their content, also
	// objects of the kinds above.
	Others []Object[unstructured.Unstructured]
}

// Values returns the plain values of objects.
func Values[T any](objects []Object[T]) []T {
	out := make([]T, len(objects))
	for i, o := range objects {
		out[i] = *o.Value
	}
	return out
}

// Without returns the inputs without the given objects.
func (in Inputs) Without(refs ...diag.Object) Inputs {
	if len(refs) == 0 {
		return in
	}
	out := make(map[diag.Object]bool, len(refs))
	for _, ref := range refs {
		out[ref] = true
	}
	return Inputs{
		Ingresses:      without(in.Ingresses, out),
		Broken:         without(in.Broken, out),
		Classes:        without(in.Classes, out),
		Services:       without(in.Services, out),
		Secrets:        without(in.Secrets, out),
		ConfigMaps:     without(in.ConfigMaps, out),
		EndpointSlices: without(in.EndpointSlices, out),
		Namespaces:     without(in.Namespaces, out),
		Gateway:        in.Gateway.without(out),
		Unread:         in.Unread,
		LeftOut:        slices.Concat(in.LeftOut, slices.DeleteFunc(slices.Clone(refs), func(o diag.Object) bool { return o.Kind != "ConfigMap" })),
		Others:         without(in.Others, out),
	}
}

// and returns the inputs followed by more, which it may share memory with.
func (in Inputs) and(more Inputs) Inputs {
	return Inputs{
		Ingresses:      append(in.Ingresses, more.Ingresses...),
		Broken:         append(in.Broken, more.Broken...),
		Classes:        append(in.Classes, more.Classes...),
		Services:       append(in.Services, more.Services...),
		Secrets:        append(in.Secrets, more.Secrets...),
		ConfigMaps:     append(in.ConfigMaps, more.ConfigMaps...),
		EndpointSlices: append(in.EndpointSlices, more.EndpointSlices...),
		Namespaces:     append(in.Namespaces, more.Namespaces...),
		Gateway:        in.Gateway.and(more.Gateway),
		Unread:         append(in.Unread, more.Unread...),
		LeftOut:        append(in.LeftOut, more.LeftOut...),
		Others:         append(in.Others, more.Others...),
	}
}

func without[T any](objects []Object[T], out map[diag.Object]bool) []Object[T] {
	return slices.DeleteFunc(slices.Clone(objects), func(o Object[T]) bool { return out[o.Ref] })
}

// Provenance lists the objects as a snapshot's manifest records them, sorted. It leaves out
// EndpointSlices, unless templates read them, since they are live data, and Namespaces, which only
// decide what is read.
func (in Inputs) Provenance() []snapshots.Input {
	out := make([]snapshots.Input, 0, len(in.Ingresses)+len(in.Classes)+len(in.Services)+len(in.Secrets)+len(in.ConfigMaps)+len(in.Others))
	// If each list is sorted, as it comes from a cluster, all of them are: sorting takes one look at each then.
	out = in.Gateway.record(out)
	out = record(out, networkingv1.SchemeGroupVersion.String(), in.Ingresses)
	out = record(out, networkingv1.SchemeGroupVersion.String(), in.Classes)
	out = record(out, corev1.SchemeGroupVersion.String(), in.ConfigMaps)
	out = record(out, corev1.SchemeGroupVersion.String(), in.Secrets)
	out = record(out, corev1.SchemeGroupVersion.String(), in.Services)
	for _, o := range in.Others {
		out = record(out, o.Value.GetAPIVersion(), []Object[unstructured.Unstructured]{o})
	}
	slices.SortFunc(out, snapshots.Input.Compare)
	return slices.CompactFunc(out, func(a, b snapshots.Input) bool { return a.Compare(b) == 0 })
}

func record[T any](out []snapshots.Input, apiVersion string, objects []Object[T]) []snapshots.Input {
	for _, o := range objects {
		input := snapshots.Input{APIVersion: apiVersion, Kind: o.Ref.Kind, Namespace: o.Ref.Namespace, Name: o.Ref.Name}
		if m, ok := any(o.Value).(metav1.Object); ok {
			input.UID, input.ResourceVersion = string(m.GetUID()), m.GetResourceVersion()
		}
		out = append(out, input)
	}
	return out
}

// contentFields are the fields of an object as field selectors see them: a missing field is empty.
type contentFields map[string]any

// Has is that of [k8s.io/apimachinery/pkg/fields.Fields].
func (c contentFields) Has(field string) bool { return c.Get(field) != "" }

// Get returns the text of a field with a plain value, or "".
func (c contentFields) Get(field string) string {
	value, _ := lookup(c, strings.Split(field, "."))
	text, _ := scalar(value)
	return text
}

// lookup returns the value at a path of names, and whether there is one.
func lookup(content map[string]any, path []string) (any, bool) {
	var at any = content
	for _, name := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return nil, false
		}
		if at, ok = m[name]; !ok {
			return nil, false
		}
	}
	return at, true
}

// scalar returns the text of a plain value of an object's content, as it is
// written in YAML, and whether it is one.
func scalar(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool, int64:
		return fmt.Sprint(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	}
	return "", false
}

// EachField calls do for every plain value of an object's content that its author chose, in the order
// of names and elements. It leaves out names and the like, which stand in too many places to identify
// anything. Do must not keep the path.
func EachField(content map[string]any, do func(path []any, text string)) {
	for _, name := range slices.Sorted(maps.Keys(content)) {
		switch name {
		case "apiVersion", "kind":
		case "metadata":
			for _, part := range []string{"annotations", "labels"} {
				value, _ := lookup(content, []string{name, part})
				eachScalar(value, []any{name, part}, do)
			}
		default:
			eachScalar(content[name], []any{name}, do)
		}
	}
}

func eachScalar(value any, path []any, do func(path []any, text string)) {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			eachScalar(v[name], append(path, name), do)
		}
	case []any:
		for i, element := range v {
			eachScalar(element, append(path, i), do)
		}
	default:
		if text, ok := scalar(v); ok {
			do(path, text)
		}
	}
}

// lastApplied is the annotation in which kubectl keeps a copy of the whole object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Trimmer returns a function that removes fields from an object of a kind, to save memory: those that
// the configuration lists for the kind, and those that only the API server and kubectl use.
func Trimmer(kind kinds.Kind) func(content map[string]any) {
	paths := [][]string{{"metadata", "managedFields"}, {"metadata", "annotations", lastApplied}}
	for _, text := range kind.Drop {
		if path, err := kinds.FieldPath(text); err == nil { // as the configuration was checked
			paths = append(paths, path)
		}
	}
	return func(content map[string]any) {
		for _, path := range paths {
			drop(content, path)
		}
	}
}

// Trim removes from an object what a [Trimmer] removes in any case.
func Trim(object metav1.Object) {
	object.SetManagedFields(nil)
	delete(object.GetAnnotations(), lastApplied)
}

// drop removes a field from a value; in a list, from every element.
func drop(value any, path []string) {
	switch v := value.(type) {
	case map[string]any:
		if len(path) == 1 {
			delete(v, path[0])
			return
		}
		drop(v[path[0]], path[1:])
	case []any:
		for _, element := range v {
			drop(element, path)
		}
	}
}

// OfOneAge returns the inputs without the creation times of objects from files. The author of a manifest can write any time
// there; only an API server sets it itself.
func (in Inputs) OfOneAge() Inputs {
	in.Ingresses = ageless(in.Ingresses)
	in.Broken = ageless(in.Broken)
	in.Services = ageless(in.Services)
	in.Gateway = in.Gateway.ageless()
	return in
}

// ageless returns objects without creation times, as far as they are from files. Values are shared, so
// that it copies those that it changes.
func ageless[T any, P metaObject[T]](objects []Object[T]) []Object[T] {
	out := objects
	for i, o := range objects {
		if created := P(o.Value).GetCreationTimestamp(); o.At == nil || created.IsZero() {
			continue
		}
		if &out[0] == &objects[0] {
			out = append([]Object[T]{}, objects...)
		}
		value := *o.Value
		P(&value).SetCreationTimestamp(metav1.Time{})
		out[i].Value = &value
	}
	return out
}

// Index finds objects of a list by name. It does not copy them.
type Index[T any] map[types.NamespacedName]*Object[T]

// ByName returns objects by their names.
func ByName[T any](objects []Object[T]) Index[T] {
	out := make(Index[T], len(objects))
	for i, o := range objects {
		out[types.NamespacedName{Namespace: o.Ref.Namespace, Name: o.Ref.Name}] = &objects[i]
	}
	return out
}

// Find returns an object, and whether it exists.
func (x Index[T]) Find(name types.NamespacedName) (o Object[T], exists bool) {
	if found := x[name]; found != nil {
		return *found, true
	}
	return o, false
}

// Lookup finds objects by name, and remembers which ones it was asked for.
type Lookup[T any] struct {
	byName Index[T]
	unread map[types.NamespacedName]bool // of ConfigMaps
	asked  map[types.NamespacedName]bool
}

// NewLookup returns a Lookup among objects.
func NewLookup[T any](objects []Object[T]) Lookup[T] {
	return Lookup[T]{byName: ByName(objects), asked: map[types.NamespacedName]bool{}}
}

// LookupConfigMaps returns a Lookup among the ConfigMaps.
func (in Inputs) LookupConfigMaps() Lookup[corev1.ConfigMap] {
	l := NewLookup(in.ConfigMaps)
	l.unread = ConfigMapsOf(in.Unread)
	return l
}

// ConfigMapsOf returns the names of the ConfigMaps among objects.
func ConfigMapsOf(objects []diag.Object) map[types.NamespacedName]bool {
	out := map[types.NamespacedName]bool{}
	for _, o := range objects {
		if o.Kind == "ConfigMap" {
			out[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = true
		}
	}
	return out
}

// Missing says why Find did not find a ConfigMap, as "does not exist", and what helps.
func (l Lookup[T]) Missing(name types.NamespacedName) (why, hint string) {
	if l.unread[name] {
		return "may not be read by the compiler, so that nobody knows whether it exists", "give the compiler the roles that compiler rbac prints, or correct the name"
	}
	return "does not exist", "create it, or correct the name"
}

// Find returns an object, and whether it exists.
func (l Lookup[T]) Find(name types.NamespacedName) (o Object[T], exists bool) {
	l.asked[name] = true
	return l.byName.Find(name)
}

// Names returns the names that were looked for, sorted.
func (l Lookup[T]) Names() []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(l.asked), objectname.Compare)
}
