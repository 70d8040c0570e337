package announce

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// The reasons of Events.
const (
	// LeftOut means that the object, or the part of it that the note names, is not
	// in the configuration.
	LeftOut = "LeftOut"
	// Faulty means that it is, and that its author should know something.
	Faulty = "Faulty"
	// Accepted means that an object that had been left out no longer is.
	Accepted = "Accepted"
)

// action is what was done when an Event was found out.
const action = "Compile"

// maxNote is how many bytes of a note the API server takes.
const maxNote = 1024

// Event is what is said of an object.
type Event struct {
	Regarding          corev1.ObjectReference
	Type, Reason, Note string
}

// Events returns what is to be said of the objects of a compile, each thing once,
// in the order of the diagnostics.
func Events(in inputs.Inputs, found []diag.Diagnostic) []Event {
	known := references(in)
	var out []Event
	seen := map[string]bool{}
	for _, d := range found {
		regarding, ok := known[d.Object]
		if !ok {
			continue
		}
		e := Event{Regarding: regarding, Type: corev1.EventTypeWarning, Reason: Faulty, Note: note(d)}
		if d.Severity == diag.Error {
			e.Reason = LeftOut
		}
		if d.Position.File == "" {
			e.Regarding.FieldPath = d.Position.Field
		}
		if name := e.name(); !seen[name] {
			seen[name] = true
			out = append(out, e)
		}
	}
	return out
}

// good returns what is to be said of objects that are there, had been left out
// and are not any more.
func good(in inputs.Inputs, before, after map[diag.Object]bool) []Event {
	var out []Event
	for object, regarding := range references(in) {
		if before[object] && !after[object] {
			out = append(out, Event{Regarding: regarding, Type: corev1.EventTypeNormal, Reason: Accepted, Note: "nothing of it is left out any more"})
		}
	}
	slices.SortFunc(out, func(a, b Event) int { return strings.Compare(a.name(), b.name()) })
	return out
}

// leftOut returns the objects that errors were found on.
func leftOut(found []diag.Diagnostic) map[diag.Object]bool {
	out := map[diag.Object]bool{}
	for _, d := range found {
		if d.Severity == diag.Error {
			out[d.Object] = true
		}
	}
	return out
}

// note returns what is wrong, where, and what to do about it.
func note(d diag.Diagnostic) string {
	text := d.Message
	if d.Position.File == "" && d.Position.Field != "" {
		text = d.Position.Field + ": " + text
	}
	if d.Hint != "" {
		text += "; hint: " + d.Hint
	}
	return cut(strings.ToValidUTF8(text, "\uFFFD"), maxNote)
}

// cut shortens a text to a number of bytes, between two characters.
func cut(text string, limit int) string {
	const more = "…"
	if len(text) <= limit {
		return text
	}
	end := limit - len(more)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}

// name returns the name of the Event's object. It follows from what is said, so
// that whoever says the same again meets it.
func (e Event) name() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{
		string(e.Regarding.UID), e.Regarding.Kind, e.Regarding.FieldPath, e.Type, e.Reason, e.Note,
	}, "\x00")))
	suffix := "." + hex.EncodeToString(sum[:8])
	name := e.Regarding.Name
	name = strings.TrimRight(name[:min(len(name), validation.DNS1123SubdomainMaxLength-len(suffix))], "-.") + suffix
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "hapsnap" + suffix
	}
	return name
}

// namespace returns where the Event is kept; those of objects without a namespace
// are in default.
func (e Event) namespace() string {
	if e.Regarding.Namespace == "" {
		return metav1.NamespaceDefault
	}
	return e.Regarding.Namespace
}

// references returns what Events name the objects of a cluster by.
func references(in inputs.Inputs) map[diag.Object]corev1.ObjectReference {
	out := map[diag.Object]corev1.ObjectReference{}
	networking, core := networkingv1.SchemeGroupVersion.String(), corev1.SchemeGroupVersion.String()
	refer(out, networking, in.Ingresses)
	refer(out, networking, in.Broken)
	refer(out, networking, in.Classes)
	refer(out, core, in.Services)
	refer(out, core, in.Secrets)
	refer(out, core, in.ConfigMaps)
	for _, o := range in.Others {
		refer(out, o.Value.GetAPIVersion(), []inputs.Object[unstructured.Unstructured]{o})
	}
	return out
}

func refer[T any](out map[diag.Object]corev1.ObjectReference, apiVersion string, objects []inputs.Object[T]) {
	for _, o := range objects {
		m, ok := any(o.Value).(metav1.Object)
		if !ok || m.GetUID() == "" || o.At != nil { // from a file
			continue
		}
		out[o.Ref] = corev1.ObjectReference{
			APIVersion: apiVersion, Kind: o.Ref.Kind, Namespace: o.Ref.Namespace, Name: o.Ref.Name, UID: m.GetUID(),
		}
	}
}
