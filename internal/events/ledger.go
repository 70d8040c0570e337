package events

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/internal/printable"
)

// maxNote is how many bytes of a note the API server takes.
const maxNote = 1024

// Event is something to say about an object.
type Event struct {
	Regarding corev1.ObjectReference
	// Action is what was done when this was found out. Events that differ only in their action are the same.
	Action             string
	Type, Reason, Note string
}

// Note makes a text safe to show, and shortens it so that it fits the note of an Event.
func Note(text string) string { return Cut(printable.Text(text), maxNote) }

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

// Name returns the name of the Event's object. It is made of the content, so that a process that writes the
// same Event again finds it.
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

// namespace returns the namespace of the Event. It is default for objects without a namespace.
func (e Event) namespace() string {
	if e.Regarding.Namespace == "" {
		return metav1.NamespaceDefault
	}
	return e.Regarding.Namespace
}

// object returns the kind and name of the object that the Event is about.
func (e Event) object() string {
	return e.Regarding.Kind + " " + e.Regarding.Namespace + "/" + e.Regarding.Name
}

// Rules returns the permissions that a recorder needs in a namespace with objects on which it writes Events.
func Rules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}}}
}

// The times of Events. By default the API server keeps an Event for an hour since it was last written.
const (
	// refresh is the age at which an Event that still holds is renewed.
	refresh = 30 * time.Minute
	// pause is the shortest time between two renewals of an Event, for objects that become good and bad in
	// turns.
	pause = 5 * time.Minute
	// forget is the age at which the API server has deleted an Event.
	forget = 2 * time.Hour
)

// wish is an Event that should be there.
type wish struct {
	Event
	name  string
	since time.Time // since when it has been wished for without a break
	once  bool      // it is not repeated while it holds
}

// stale reports whether an Event to be said once is so old that the API server would have deleted it by now.
func (w wish) stale(now time.Time) bool { return w.once && now.Sub(w.since) >= forget }

// record says what was written of an Event.
type record struct {
	at    time.Time
	count int32 // how often it was written
}

// subject is an object, and what was done with it.
type subject struct {
	uid    types.UID
	action string
}

func (e Event) subject() subject { return subject{e.Regarding.UID, e.Action} }

// ledger decides which Event is written next. Callers pass the time to its methods.
type ledger struct {
	wishes []wish
	said   map[string]record // by the name of the Event
	// refused are Events that the API server did not take, by their names. retried is set if next returned one of them last.
	refused map[string]Refusal
	retried bool
	turns   Turns
}

func newLedger() ledger { return ledger{said: map[string]record{}, refused: map[string]Refusal{}} }

// wish replaces the Events that should be there. A lasting Event that was wished for before keeps its time. An
// Event to be said once stays until it is written.
func (l *ledger) wish(lasting, once []Event, now time.Time) {
	before := map[string]wish{}
	for _, w := range l.wishes {
		before[w.name] = w
	}
	var next []wish
	add := func(e Event, once bool) {
		w := wish{Event: e, name: e.Name(), since: now, once: once}
		if old, ok := before[w.name]; ok && !once {
			w.since = old.since
		}
		next = append(next, w)
		delete(before, w.name)
	}
	for _, e := range lasting {
		add(e, false)
	}
	for _, e := range once {
		add(e, true)
	}
	// An Event to be said once that was not written yet stays, unless the same action found something else
	// wrong with its object, or it is stale: a process that does not lead for months writes none.
	faulty := map[subject]bool{}
	for _, e := range lasting {
		faulty[e.subject()] = true
	}
	for _, w := range l.wishes {
		if _, left := before[w.name]; left && w.once && l.said[w.name].at.Before(w.since) && !faulty[w.subject()] && !w.stale(now) {
			next = append(next, w)
		}
	}
	l.wishes = next
	there := map[string]bool{}
	for _, w := range next {
		there[w.Regarding.Namespace] = true
	}
	l.turns.Keep(there)
	for name, r := range l.said {
		if now.Sub(r.at) > forget {
			delete(l.said, name)
		}
	}
	for name, r := range l.refused {
		if now.Sub(r.Until) > forget {
			delete(l.refused, name)
		}
	}
}

// next returns the Event to write now, and how often it was written before. Namespaces take turns: in one of them, somebody
// may make new faults all the time, quicker than Events are written. Objects in no namespace take turns with them, also with the
// namespace default, in which their Events are. Those that the API server refused take turns with all others: there may be so
// many of them that some are due all the time.
func (l *ledger) next(now time.Time) (w wish, before int32, ok bool) {
	w, ok = l.due(now)
	if again, late := l.dueAgain(now); late && (!ok || !l.retried) {
		w, ok, l.retried = again, true, true
	} else {
		l.retried = false
	}
	if ok {
		l.turns.Took(w.Regarding.Namespace)
	}
	return w, l.said[w.name].count, ok
}

// due returns the Event to write now among those that were not refused: of the namespace whose turn it is, new ones before
// renewals.
func (l *ledger) due(now time.Time) (next wish, ok bool) {
	isNext := false // next is new
	for _, w := range l.wishes {
		if _, refused := l.refused[w.name]; refused {
			continue
		}
		isNew := l.isNew(w, now)
		if !isNew && !l.isOld(w, now) {
			continue
		}
		turn := -1
		if ok {
			turn = l.turns.Compare(w.Regarding.Namespace, next.Regarding.Namespace)
		}
		if turn < 0 || turn == 0 && isNew && !isNext {
			next, ok, isNext = w, true, isNew
		}
	}
	return next, ok
}

// dueAgain returns the Event that waits longest for another try.
func (l *ledger) dueAgain(now time.Time) (next wish, ok bool) {
	if len(l.refused) == 0 {
		return wish{}, false // nearly always
	}
	for _, w := range l.wishes {
		r, refused := l.refused[w.name]
		if refused && !now.Before(r.Until) && (l.isNew(w, now) || l.isOld(w, now)) && (!ok || r.Until.Before(l.refused[next.name].Until)) {
			next, ok = w, true
		}
	}
	return next, ok
}

// isNew reports whether an Event was not written since it is wished for.
func (l *ledger) isNew(w wish, now time.Time) bool {
	r, said := l.said[w.name]
	return !w.stale(now) && (!said || r.at.Before(w.since) && now.Sub(r.at) >= pause)
}

// isOld reports whether an Event has to be renewed.
func (l *ledger) isOld(w wish, now time.Time) bool {
	return !w.once && now.Sub(l.said[w.name].at) >= refresh
}

// wrote records that an Event was written, or that it never can be.
func (l *ledger) wrote(name string, now time.Time) {
	delete(l.refused, name)
	l.said[name] = record{at: now, count: l.said[name].count + 1}
}
