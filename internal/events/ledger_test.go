package events

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func said(object, text string) Event {
	return Event{Regarding: corev1.ObjectReference{Kind: "Ingress", Name: object, UID: types.UID(object)}, Type: "Warning", Reason: "LeftOut", Note: text}
}

func accepted(object string) Event {
	return Event{Regarding: corev1.ObjectReference{Kind: "Ingress", Name: object, UID: types.UID(object)}, Type: "Normal", Reason: "Accepted", Note: "good"}
}

// drain writes all Events that are due, and returns each with how often it was written before.
func (l *ledger) drain(now time.Time) []string {
	var out []string
	for {
		w, before, ok := l.next(now)
		if !ok {
			return out
		}
		out = append(out, fmt.Sprintf("%s %s %d", w.Regarding.Name, w.Note, before))
		l.wrote(w.name, now)
	}
}

// An Event that holds is written once, however often it is found, and again before the API server forgets it.
// An Event that comes and goes is not written each time.
func TestEventsAreSaidOnce(t *testing.T) {
	t.Parallel()
	l := newLedger()
	begin := time.Unix(1e9, 0)
	bad, other := said("web", "bad"), said("api", "bad")
	for _, step := range []struct {
		at            time.Duration
		lasting, once []Event
		want          string
	}{
		{0, []Event{bad}, nil, "[web bad 0]"},
		{time.Second, []Event{bad}, nil, "[]"},
		{2 * time.Second, []Event{bad, other}, nil, "[api bad 0]"},
		{3 * time.Second, []Event{bad, other}, nil, "[]"},
		{4 * time.Second, []Event{other}, []Event{accepted("web")}, "[web good 0]"},
		{5 * time.Second, []Event{other}, nil, "[]"},
		{6 * time.Second, []Event{bad, other}, nil, "[]"},                  // too early
		{time.Minute, []Event{other}, []Event{accepted("web")}, "[]"},      // too early as well
		{10 * time.Minute, []Event{other}, nil, "[web good 1]"},            // written now, as it was still pending
		{11 * time.Minute, []Event{bad, other}, nil, "[web bad 1]"},        // it is there again
		{29 * time.Minute, []Event{bad, other}, nil, "[]"},                 // nothing is new
		{31 * time.Minute, []Event{bad, other}, nil, "[api bad 1]"},        // it still holds
		{42 * time.Minute, []Event{bad, other}, nil, "[web bad 2]"},        // it still holds
		{43 * time.Minute, nil, nil, "[]"},                                 // it is gone
		{4 * time.Hour, []Event{bad, other}, nil, "[web bad 0 api bad 0]"}, // the API server and the ledger have forgotten it
	} {
		now := begin.Add(step.at)
		l.wish(step.lasting, step.once, now)
		if got := fmt.Sprint(l.drain(now)); got != step.want {
			t.Errorf("after %s: %s, want %s", step.at, got, step.want)
		}
	}
}

// If an object is left out again before the Event that it is good was written, that Event is never written.
func TestWhatIsOverIsNotSaid(t *testing.T) {
	t.Parallel()
	l := newLedger()
	now := time.Unix(1e9, 0)
	l.wish(nil, []Event{accepted("web"), accepted("api")}, now)
	l.wish([]Event{said("web", "bad")}, nil, now.Add(time.Second))
	if got := fmt.Sprint(l.drain(now.Add(time.Second))); got != "[web bad 0 api good 0]" {
		t.Error(got)
	}
}

// A process that does not lead writes nothing. What it could have said once two hours ago it forgets, and does not say
// when it leads at last.
func TestOldNewsIsNotSaid(t *testing.T) {
	t.Parallel()
	l := newLedger()
	begin := time.Unix(1e9, 0)
	for n := range 100 {
		l.wish([]Event{said("api", "bad")}, []Event{accepted(fmt.Sprintf("web-%03d", n))}, begin.Add(time.Duration(n)*time.Hour))
	}
	if len(l.wishes) > 3 {
		t.Errorf("%d Events are kept, want one that holds, and those of two hours", len(l.wishes))
	}
	if got := fmt.Sprint(l.drain(begin.Add(100 * time.Hour))); got != "[api bad 0 web-099 good 0]" {
		t.Errorf("a new leader says %s", got)
	}
	l.wish(nil, []Event{accepted("web")}, begin.Add(200*time.Hour))
	if got := fmt.Sprint(l.drain(begin.Add(203 * time.Hour))); got != "[]" {
		t.Errorf("a leader that compiled nothing since says %s", got)
	}
}

func TestNotesAreSafe(t *testing.T) {
	t.Parallel()
	if got := Note("pinned by \x1b]0;x\a\u202eann\xff"); got != `pinned by \x1b]0;x\a\u202eann\xff` {
		t.Error(got)
	}
}
