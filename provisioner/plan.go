package provisioner

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configured "github.com/hapsnap/hapsnap/compiler/config/gateways"
)

// World is what Gateways ask for, as the cluster has it.
type World struct {
	Classes    []*gatewayv1.GatewayClass
	Gateways   []*gatewayv1.Gateway
	Sets       []*gatewayv1.ListenerSet
	Namespaces map[string]labels.Set // with their labels
}

// Rules say what Gateways may ask for. The operator sets them.
type Rules struct {
	// Controller is the controllerName of the classes.
	Controller string
	// Namespaces may have fleets; all may if it is empty. Selector selects among them by labels.
	Namespaces []string
	Selector   labels.Selector
	// MaxFleets is how many fleets a namespace may have, and MaxPorts how many ports a fleet may have.
	MaxFleets, MaxPorts int
	// Ports may be opened. Reserved are the ports that the pods of a fleet need themselves, with their purpose.
	Ports    []PortRange
	Reserved map[int]string
	// Labels and Annotations are the keys that spec.infrastructure may add to objects.
	Labels, Annotations []string
}

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last int }

// ParsePorts reads ports and ranges, such as 80 and 1024-65535.
func ParsePorts(list []string) ([]PortRange, error) {
	var out []PortRange
	for _, text := range list {
		first, last, isRange := strings.Cut(text, "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.Atoi(first)
		b, errB := strconv.Atoi(last)
		if errA != nil || errB != nil || a < 1 || b > 65535 || a > b {
			return nil, fmt.Errorf("%q is neither a port nor a range of ports", text)
		}
		out = append(out, PortRange{a, b})
	}
	return out, nil
}

// Fleet is a fleet that should exist, or one that Gateways name and do not get.
type Fleet struct {
	Name types.NamespacedName
	// Gateways name it, the oldest first.
	Gateways []*gatewayv1.Gateway
	// Class is the class of the oldest Gateway.
	Class string
	// Ports are those of the listeners, sorted.
	Ports []int
	// Labels and Annotations are for the objects in the namespace of the Gateways.
	Labels, Annotations map[string]string
	// Left is what the Gateways ask for and do not get.
	Left []string
	// Refused says why nothing is made or changed. Existing objects stay.
	Refused string
}

// Plan returns the fleets that Gateways name, by name. If not all may exist, those that were made before come
// first.
func Plan(w World, r Rules, made map[types.NamespacedName]Record) []Fleet {
	classes := map[string]*gatewayv1.GatewayClass{}
	for _, c := range w.Classes {
		classes[c.Name] = c
	}
	named := map[types.NamespacedName]*Fleet{}
	for _, g := range slices.SortedFunc(slices.Values(w.Gateways), older) {
		text := configured.FleetOf(g)
		if text == "" {
			continue
		}
		name := types.NamespacedName{Namespace: g.Namespace, Name: strings.TrimPrefix(text, g.Namespace+"/")}
		class := classes[string(g.Spec.GatewayClassName)]
		_, there := made[name]
		if class == nil && !there || class != nil && string(class.Spec.ControllerName) != r.Controller {
			continue // another controller's, as far as known
		}
		f := named[name]
		if f == nil {
			f = &Fleet{Name: name, Class: string(g.Spec.GatewayClassName)}
			named[name] = f
		}
		f.Gateways = append(f.Gateways, g)
		switch {
		case class == nil:
			f.refuse(fmt.Sprintf("there is no GatewayClass %s: the fleet stays as it is", g.Spec.GatewayClassName))
		case class.Spec.ParametersRef != nil:
			f.refuse(fmt.Sprintf("GatewayClass %s has parameters, which are not supported", class.Name))
		}
	}
	all := slices.SortedFunc(maps.Values(named), func(a, b *Fleet) int {
		_, madeA := made[a.Name]
		_, madeB := made[b.Name]
		return cmp.Or(-compareBool(madeA, madeB), older(a.Gateways[0], b.Gateways[0]))
	})
	count := map[string]int{}
	for name := range made {
		count[name.Namespace]++
	}
	for _, f := range all {
		f.judge(w, r)
		if _, there := made[f.Name]; there || f.Refused != "" {
			continue
		}
		if count[f.Name.Namespace]++; count[f.Name.Namespace] > r.MaxFleets {
			f.refuse(fmt.Sprintf("the namespace %s has %d fleets already, with those that are gone and left a store, and may have no more", f.Name.Namespace, r.MaxFleets))
		}
	}
	out := make([]Fleet, 0, len(all))
	for _, f := range all {
		out = append(out, *f)
	}
	slices.SortFunc(out, func(a, b Fleet) int { return strings.Compare(a.Name.String(), b.Name.String()) })
	return out
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func older[O metav1.Object](a, b O) int {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(at.Compare(bt.Time), strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
}

// refuse keeps the first reason.
func (f *Fleet) refuse(why string) { f.Refused = cmp.Or(f.Refused, why) }

func (f *Fleet) leave(format string, args ...any) {
	f.Left = append(f.Left, fmt.Sprintf(format, args...))
}

// judge decides what a fleet has, and whether it may exist.
func (f *Fleet) judge(w World, r Rules) {
	if problems := validation.IsDNS1035Label(f.Name.Name); len(problems) > 0 {
		f.refuse(fmt.Sprintf("%q is no name of a fleet: use lower case letters, digits and hyphens, and begin with a letter", f.Name.Name))
	}
	namespace := f.Name.Namespace
	switch of, known := w.Namespaces[namespace]; {
	case len(r.Namespaces) > 0 && !slices.Contains(r.Namespaces, namespace):
		f.refuse(fmt.Sprintf("the namespace %s may have no fleets of its own", namespace))
	case r.Selector != nil && !r.Selector.Empty() && (!known || !r.Selector.Matches(of)):
		f.refuse(fmt.Sprintf("the labels of the namespace %s do not let it have fleets of its own", namespace))
	}
	f.open(w, r)
	if len(f.Ports) == 0 {
		f.refuse("no listener has a port that may be opened")
	}
	f.Labels, f.Annotations = map[string]string{}, map[string]string{}
	for _, g := range f.Gateways {
		if i := g.Spec.Infrastructure; i != nil {
			bring(f, g, "labels", i.Labels, r.Labels, f.Labels)
			bring(f, g, "annotations", i.Annotations, r.Annotations, f.Annotations)
		}
	}
	// A label has one value, so only one Gateway owns a fleet.
	if len(f.Gateways) == 1 {
		f.Labels[gatewayv1.GatewayNameLabelKey] = cut(f.Gateways[0].Name, validation.LabelValueMaxLength)
	}
	f.Labels[gatewayv1.GatewayClassNameLabelKey] = cut(f.Class, validation.LabelValueMaxLength)
}

// bring copies the labels or annotations that a Gateway may add. If several Gateways have the same key, the
// oldest one wins.
func bring[K, V ~string](f *Fleet, g *gatewayv1.Gateway, field string, from map[K]V, allowed []string, to map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(from)) {
		key := string(k)
		if !configured.MayBring(key, allowed) {
			f.leave("Gateway %s: %s of infrastructure.%s is not among those that Gateways may bring", g.Name, key, field)
			continue
		}
		if _, there := to[key]; !there {
			to[key] = string(from[k])
		}
	}
}

// open returns the ports of a fleet: those of its Gateways first, then those of the ListenerSets that they
// allow.
func (f *Fleet) open(w World, r Rules) {
	asked := map[int]bool{}
	add := func(by string, port int, protocol gatewayv1.ProtocolType) {
		if protocol == gatewayv1.UDPProtocolType || asked[port] {
			return // the status of its listeners says that UDP is not supported
		}
		asked[port] = true
		switch what, taken := r.Reserved[port]; {
		case taken:
			f.leave("%s: the port %d is that of %s in the pods of the fleet", by, port, what)
		case !slices.ContainsFunc(r.Ports, func(p PortRange) bool { return p.First <= port && port <= p.Last }):
			f.leave("%s: the port %d may not be opened", by, port)
		case len(f.Ports) >= r.MaxPorts:
			f.leave("%s: the port %d is one more than the %d that a fleet may have", by, port, r.MaxPorts)
		default:
			f.Ports = append(f.Ports, port)
		}
	}
	for _, g := range f.Gateways {
		for _, l := range g.Spec.Listeners {
			add("Gateway "+g.Name, int(l.Port), l.Protocol)
		}
	}
	for _, s := range slices.SortedFunc(slices.Values(w.Sets), older) {
		for _, g := range f.Gateways {
			if !attaches(s, g, w.Namespaces) {
				continue
			}
			for _, l := range s.Spec.Listeners {
				add("ListenerSet "+s.Namespace+"/"+s.Name, int(l.Port), l.Protocol)
			}
		}
	}
	slices.Sort(f.Ports)
}

// attaches reports whether a ListenerSet names a Gateway that allows ListenerSets of its namespace.
func attaches(s *gatewayv1.ListenerSet, g *gatewayv1.Gateway, namespaces map[string]labels.Set) bool {
	ref := s.Spec.ParentRef
	if ref.Group != nil && *ref.Group != gatewayv1.GroupName || ref.Kind != nil && *ref.Kind != "Gateway" || string(ref.Name) != g.Name {
		return false
	}
	if of := s.Namespace; ref.Namespace == nil && of != g.Namespace || ref.Namespace != nil && string(*ref.Namespace) != g.Namespace {
		return false
	}
	return configured.AllowsSets(g, s.Namespace, namespaces)
}

// nameOf returns the beginning of the names of a fleet's objects: FLEET-CLASS. For a fleet with the name of its
// Gateway that is the name that GEP-1762 requires. The chart has room for 40 characters.
func nameOf(fleet, class string) string {
	return cut(fleet+"-"+strings.ReplaceAll(class, ".", "-"), 40)
}

// storeOf returns the namespace of the snapshots of a fleet. Its digest distinguishes a/b-c from a-b/c.
func storeOf(namespace, name string) string {
	const end = "-store"
	whole := namespace + "/" + name
	return withDigest(strings.ReplaceAll(whole, "/", "-"), whole, validation.DNS1123LabelMaxLength-len(end)) + end
}

// cut shortens a name to a number of characters, with a digest of the whole.
func cut(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	return withDigest(name, name, limit)
}

func withDigest(text, whole string, limit int) string {
	sum := sha256.Sum256([]byte(whole))
	digest := "-" + hex.EncodeToString(sum[:4])
	return strings.TrimRight(text[:min(len(text), limit-len(digest))], "-.") + digest
}
