package events

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxNote is how many bytes of a note the API server takes.
const maxNote = 1024

// Event is what is said of an object.
type Event struct {
	Regarding corev1.ObjectReference
	// Action is what was done when it was found out. It is no part of what makes one
	// Event another.
	Action             string
	Type, Reason, Note string
}

// Note returns a text as the note of an Event can have it.
func Note(text string) string { return Cut(strings.ToValidUTF8(text, "\uFFFD"), maxNote) }

// Cut shortens a text to a number of bytes, between two characters.
func Cut(text string, limit int) string {
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

// Name returns the name of the Event's object. It follows from what is said, so
// that a process that says the same again meets it.
func (e Event) Name() string {
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

// object names what the Event is about.
func (e Event) object() string {
	return e.Regarding.Kind + " " + e.Regarding.Namespace + "/" + e.Regarding.Name
}

// Rules returns what a recorder must be allowed to do in a namespace of objects that it
// says something of.
func Rules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}}}
}
