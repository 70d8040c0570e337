package announce

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/events"
)

// The reasons of Events.
const (
	// LeftOut means that the object, or the part of it that the note names, is not
	// in the configuration.
	LeftOut = "LeftOut"
	// Faulty means that it is in the configuration, and that its author should know about a fault.
	Faulty = "Faulty"
	// Accepted means that an object that had been left out no longer is.
	Accepted = "Accepted"
)

// action names what was done when the fault of an Event was found.
const action = "Compile"

// Events returns the Events for the objects of a compile, each once, in the order of the diagnostics.
func Events(in inputs.Inputs, found []diag.Diagnostic) []events.Event {
	known := references(in)
	var out []events.Event
	seen := map[string]bool{}
	for _, d := range found {
		regarding, ok := known[d.Object]
		if !ok {
			continue
		}
		e := events.Event{Regarding: regarding, Action: action, Type: corev1.EventTypeWarning, Reason: Faulty, Note: note(d)}
		if d.Severity == diag.Error {
			e.Reason = LeftOut
		}
		if d.Position.File == "" {
			e.Regarding.FieldPath = d.Position.Field
		}
		if name := e.Name(); !seen[name] {
			seen[name] = true
			out = append(out, e)
		}
	}
	return out
}

// good returns the Events for objects that had been left out, still exist and are in the configuration
// again.
func good(in inputs.Inputs, before, after map[diag.Object]bool) []events.Event {
	var out []events.Event
	for object, regarding := range references(in) {
		if before[object] && !after[object] {
			out = append(out, events.Event{Regarding: regarding, Action: action, Type: corev1.EventTypeNormal, Reason: Accepted, Note: "no part of it is left out any more"})
		}
	}
	slices.SortFunc(out, func(a, b events.Event) int { return strings.Compare(a.Name(), b.Name()) })
	return out
}

// leftOut returns the objects with errors.
func leftOut(found []diag.Diagnostic) map[diag.Object]bool {
	out := map[diag.Object]bool{}
	for _, d := range found {
		if d.Severity == diag.Error {
			out[d.Object] = true
		}
	}
	return out
}

// note returns the fault, its place, and the hint.
func note(d diag.Diagnostic) string {
	text := d.Message
	if d.Position.File == "" && d.Position.Field != "" {
		text = d.Position.Field + ": " + text
	}
	if d.Hint != "" {
		text += "; hint: " + d.Hint
	}
	return events.Note(text)
}

// references returns the references by which Events name the objects of a cluster.
func references(in inputs.Inputs) map[diag.Object]corev1.ObjectReference {
	out := map[diag.Object]corev1.ObjectReference{}
	networking, core := networkingv1.SchemeGroupVersion.String(), corev1.SchemeGroupVersion.String()
	refer(out, networking, in.Ingresses)
	refer(out, networking, in.Broken)
	refer(out, networking, in.Classes)
	refer(out, core, in.Services)
	refer(out, core, in.Secrets)
	refer(out, core, in.ConfigMaps)
	for _, o := range in.Gateway.Each() {
		if o.At == nil {
			referTo(out, inputs.GatewayVersion, o.Ref, o.Value)
		}
	}
	for _, o := range in.Others {
		refer(out, o.Value.GetAPIVersion(), []inputs.Object[unstructured.Unstructured]{o})
	}
	return out
}

func refer[T any](out map[diag.Object]corev1.ObjectReference, apiVersion string, objects []inputs.Object[T]) {
	for _, o := range objects {
		if m, ok := any(o.Value).(metav1.Object); ok && o.At == nil { // not from a file
			referTo(out, apiVersion, o.Ref, m)
		}
	}
}

func referTo(out map[diag.Object]corev1.ObjectReference, apiVersion string, ref diag.Object, m metav1.Object) {
	if m.GetUID() != "" {
		out[ref] = corev1.ObjectReference{APIVersion: apiVersion, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, UID: m.GetUID()}
	}
}
