package push

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// startSlackOfWorker is the largest error in the start of a worker. The age of a worker is reported in whole seconds.
const startSlackOfWorker = time.Second

// errNotRead is the error of a change before the instance's haproxy.cfg was read. The file may say that another pusher
// leads the instance.
var errNotRead = errors.New("it is not known yet which pusher leads the instance")

// LedByOtherError is the error of a change that this pusher may not make, because another pusher wrote the instance's
// haproxy.cfg.
type LedByOtherError struct{ By Pusher }

func (e LedByOtherError) Error() string {
	return fmt.Sprintf("another pusher leads it: %s. If that one is gone for good, start this one with --take-over", e.By)
}

// Remembered is the part of an instance's [Record] that is kept over restarts.
type Remembered struct {
	// Marked is set once a pusher with this state has written the instance's haproxy.cfg.
	Marked bool `json:"marked,omitempty"`
	// Worker is the last worker that was judged. Foreign says in which way it was started from another configuration
	// than the pusher wrote, "" if it was started from that.
	Worker  Process `json:"worker,omitzero"`
	Foreign string  `json:"foreign,omitempty"`
	// Former is the pusher that this one replaced. Follows is the version of the configuration on which Former's last
	// haproxy.cfg was posted. After a failed reload, the API puts such a file back.
	Former  Pusher `json:"former,omitzero"`
	Follows int64  `json:"follows,omitempty"`
}

// Record is what is known about one instance's haproxy.cfg, and about the configuration from which its worker was
// started. A worker names what it loaded by a line that anybody can copy. So the pusher judges a worker by what was on
// disk when the worker began. It knows that as far as it has looked: at each look, and before it repairs anything. A
// nil Record knows nothing, and treats each worker as started from the pusher's file.
type Record struct {
	mu   sync.Mutex
	kept Remembered
	// read is set once this process has read the file, and claimed once the file had this pusher's mark.
	read, claimed bool
	led           *LedByOtherError // set by the last look at the file
	// writer says when and where the leading pusher wrote the file, as the file said when it was first seen. It does
	// not change when that pusher writes again, so messages to people do not change either.
	writer string
	// clean is when the file last was as a pusher wrote it: when it was seen so, or when it was written. Between from
	// and to, another text was on disk, or may have been. what describes that text. If to is zero while what is set,
	// that text is still there.
	clean, from, to time.Time
	what            string
}

// NewRecord returns the record of an instance, with what was kept about it.
func NewRecord(kept Remembered) *Record { return &Record{kept: kept} }

// RecordView is what a [Record] knew at one time. It is a value.
type RecordView struct {
	// Remembered is what the state keeps.
	Remembered Remembered `json:"remembered,omitzero"`
	// Claimed is set if this process has seen the file with this pusher's mark, or has written it.
	Claimed bool `json:"claimed,omitempty"`
	// Leader is the other pusher that leads the instance, zero if there is none.
	Leader Pusher `json:"leader,omitzero"`
	// Wrote says when and where Leader wrote the file, as the file said when it was first seen.
	Wrote string `json:"wrote,omitempty"`
}

// LeaderText tells people who leads the instance.
func (v RecordView) LeaderText() string {
	if v.Wrote == "" {
		return v.Leader.String()
	}
	return v.Leader.String() + ", which wrote it at " + v.Wrote
}

// View returns what is known now.
func (r *Record) View() RecordView {
	if r == nil {
		return RecordView{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v := RecordView{Remembered: r.kept, Claimed: r.claimed && r.led == nil}
	if r.led != nil {
		v.Leader, v.Wrote = r.led.By, r.writer
	}
	return v
}

// Remembered returns what the state keeps.
func (r *Record) Remembered() Remembered { return r.View().Remembered }

// LedByOther reports whether another pusher leads the instance.
func (v RecordView) LedByOther() bool { return v.Leader != Pusher{} }

// Judged reports whether it is known from what configuration the worker was started. If a long push has just ended, the
// last report of the worker may be older than what the push heard from it.
func (v RecordView) Judged(info dataplane.RuntimeInfo, asked time.Time) bool {
	w, last := ProcessOf(info, asked), v.Remembered.Worker
	return !w.OtherThan(last) || asked.Before(last.Asked) && !last.OtherThan(w)
}

// Foreign says in which way a worker was started from another configuration than the pusher wrote. It returns "" if it
// was started from that, or is not judged yet.
func (v RecordView) Foreign(info dataplane.RuntimeInfo) string {
	if v.Remembered.Worker.PID != info.PID || v.Remembered.Worker.Loaded != info.LoadedNode() {
		return ""
	}
	return v.Remembered.Foreign
}

// heard takes what a worker said about itself. It ignores a worker that is not judged yet.
func (r *Record) heard(info dataplane.RuntimeInfo, asked time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := ProcessOf(info, asked); !w.OtherThan(r.kept.Worker) && asked.After(r.kept.Worker.Asked) {
		r.kept.Worker = w
	}
}

// judge says in which way a worker was started from another configuration, "" if it was not. It judges by the file as
// it was right after the worker was asked, and by what was on disk since the last answer of the previous worker.
func (r *Record) judge(info dataplane.RuntimeInfo, asked time.Time, raw dataplane.Raw) (foreign string) {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := ProcessOf(info, asked)
	if !w.OtherThan(r.kept.Worker) {
		return r.kept.Foreign
	}
	before := r.kept.Worker.Asked
	r.kept.Worker, r.kept.Foreign = w, foreignText(raw, r.kept.Marked)
	began := w.Started().Add(startSlackOfWorker)
	if r.kept.Foreign == "" && r.what != "" && r.from.Before(began) && (r.to.IsZero() || r.to.After(before)) {
		r.kept.Foreign = r.what
	}
	if !r.to.IsZero() && r.to.Before(began) {
		r.what, r.from, r.to = "", time.Time{}, time.Time{}
	}
	return r.kept.Foreign
}

// bySomebody is how the reason begins with which a [Record] calls a worker foreign that somebody changed so that only a
// new worker has everything again.
const bySomebody = "somebody "

// damaged notes that somebody changed a worker in a way that only a reload mends, so that it counts as foreign.
func (r *Record) damaged(info dataplane.RuntimeInfo, how string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.kept.Worker; w.PID == info.PID && w.Loaded == info.LoadedNode() && r.kept.Foreign == "" {
		r.kept.Foreign = how
	}
}

// IsDamage reports whether a worker is foreign because of what somebody did to it after it was started.
func IsDamage(why string) bool { return strings.HasPrefix(why, bySomebody) }

// ForeignText says for people why a worker is foreign.
func ForeignText(why string) string {
	if IsDamage(why) {
		return why
	}
	return ErrForeign.Error() + ": " + why
}

// wrote notes that the pusher has written the file. If the worker was reloaded, it was started from this file, and what
// was on disk before no longer matters.
func (r *Record) wrote(marked, reloaded bool, now time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read, r.clean = true, now
	if marked {
		r.kept.Marked, r.claimed, r.led = true, true, nil
	}
	switch {
	case reloaded:
		r.what, r.from, r.to = "", time.Time{}, time.Time{}
	case r.what != "" && r.to.IsZero():
		r.to = now
	}
}

// admit reads the file, and returns a [LedByOtherError] if it has the mark of another pusher, because that pusher leads
// the instance. This pusher may take the instance over in three cases: the mark has the id of its state, since a state
// can be moved to another place; the mark has the place of its state, since a state can be lost; or a person has
// ordered it. It may do so only before it has claimed the instance. If the mark changes later, the other pusher is
// alive.
func (r *Record) admit(raw dataplane.Raw, own Pusher, term int64, takeOver bool, now time.Time) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m, found := markOf(raw.Config.Head)
	own.Place = oneWord(own.Place)
	before := r.led
	r.led = nil
	defer func() {
		if r.led == nil || before == nil || before.By != r.led.By {
			r.writer = wroteOf(raw.Config.Head)
		}
	}()
	switch {
	case own.State == "":
	case !found && termOf(raw.Config.Head) > 0 && term == 0 && !r.claimed && !r.kept.Marked && !takeOver:
		m.Pusher = Pusher{State: "unknown", Place: fmt.Sprintf("one of several that share a state, of term %d", termOf(raw.Config.Head))}
		r.led, r.read = &LedByOtherError{m.Pusher}, true
		return *r.led
	case !found || m.Pusher == own:
	case m.Pusher == r.kept.Former && m.follows <= r.kept.Follows: // the API put that file back
	case r.claimed, m.State != own.State && !takeOver && (m.Place != own.Place || r.kept.Marked):
		r.led, r.read = &LedByOtherError{m.Pusher}, true
		return *r.led
	default:
		r.kept.Former, r.kept.Follows = m.Pusher, m.follows
	}
	if found && m.Pusher == own {
		r.kept.Marked, r.claimed = true, true
	}
	r.read = true
	// Note how long another text may have been on disk.
	what := foreignText(raw, r.kept.Marked)
	switch {
	case what == "" && r.what != "" && r.to.IsZero():
		r.to = now // somebody has put the file back
	case what != "" && r.what == "":
		r.what, r.from, r.to = what, r.clean, time.Time{}
	case what != "":
		r.to = time.Time{}
	}
	if what == "" {
		r.clean = now
	}
	return nil
}

// may returns why nothing may be changed on the instance, or nil.
func (r *Record) may() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.led != nil:
		return *r.led
	case !r.read:
		return errNotRead
	}
	return nil
}

// pusherMark begins the line by which a haproxy.cfg says which pusher wrote it.
const pusherMark = "# hapsnap pusher "

// Pusher identifies a pusher: by the id of its state, which is random, and by the place where it keeps that state. The
// zero value writes no mark.
type Pusher struct {
	State string `json:"state"`
	Place string `json:"place"`
}

// String names a pusher for people.
func (p Pusher) String() string { return fmt.Sprintf("%s (state %s)", p.Place, p.State) }

// mark is what a haproxy.cfg says about its writer.
type mark struct {
	Pusher
	// follows is the version of the configuration on which the text was posted. The API increments the version with
	// each change by anybody, and when it notices that somebody edited the file. So a text that nobody has changed
	// since it was posted has the version after follows.
	follows int64
}

// line returns the line that holds the mark.
func (m mark) line() string {
	return fmt.Sprintf("%s%s %s follows %d\n", pusherMark, m.State, oneWord(m.Place), m.follows)
}

// wroteMark begins the line in which a haproxy.cfg says when and where it was written. It begins like a mark, so that
// an older pusher, which only knows marks, removes it with the header. It has a different number of words than a mark,
// so no pusher reads it as one.
const wroteMark = pusherMark + "wrote this at "

// wroteLine returns the line that begins with wroteMark.
func wroteLine(at time.Time, host string) string {
	return fmt.Sprintf("%s%s on %s\n", wroteMark, at.UTC().Format(time.RFC3339), oneWord(host))
}

// wroteOf returns when and where a haproxy.cfg was written, for people, or "" if it does not say so.
func wroteOf(config []byte) string {
	const longest = 253 // the longest name of a host
	for l := range haproxycfg.Lines(config) {
		if !bytes.HasPrefix(l.Text, []byte("#")) {
			return ""
		}
		after, ok := bytes.CutPrefix(l.Text, []byte(wroteMark))
		words := strings.Fields(string(after))
		if !ok || len(words) != 3 || words[1] != "on" || len(words[2]) > longest {
			continue
		}
		if at, err := time.Parse(time.RFC3339, words[0]); err == nil {
			return at.UTC().Format(time.RFC3339) + " on " + oneWord(words[2])
		}
	}
	return ""
}

// longestMark bounds the id and the place in a mark, which the state keeps and people are shown. A longer one is no mark.
const longestMark = 8 << 10

// markOf returns the mark of a haproxy.cfg. Only other comments may stand before it.
func markOf(config []byte) (mark, bool) {
	for l := range haproxycfg.Lines(config) {
		line := l.Text
		if !bytes.HasPrefix(line, []byte("#")) {
			return mark{}, false
		}
		after, ok := bytes.CutPrefix(line, []byte(pusherMark))
		if !ok || len(after) > longestMark {
			continue
		}
		if words := strings.Fields(string(after)); len(words) == 4 && words[2] == "follows" {
			n, err := strconv.ParseInt(words[3], 10, 64)
			return mark{Pusher{words[0], words[1]}, n}, err == nil
		}
	}
	return mark{}, false
}

// oneWord removes everything from a text that would end a word or a line.
func oneWord(text string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f {
			return '_'
		}
		return r
	}, text)
}

// foreignText says in which way a haproxy.cfg differs from what a pusher wrote. It returns "" if it does not differ,
// and if it has no mark and marked says that no pusher ever marked it.
func foreignText(raw dataplane.Raw, marked bool) string {
	m, found := markOf(raw.Config.Head)
	version := readVersion(raw.Config.Head)
	switch {
	case !found && marked:
		return "no pusher wrote it"
	case !found:
		return ""
	case raw.Checksum != "" && raw.Checksum != raw.Config.Checksum():
		return "it was edited after it was written"
	case version != m.follows+1:
		return fmt.Sprintf("it was changed after it was written: it is version %d, and was version %d", version, m.follows+1)
	case raw.Version > version: // while a post is under way, raw.Version is lower: the file is written first
		return fmt.Sprintf("it was changed and put back: it is version %d, and the Dataplane API holds version %d", version, raw.Version)
	}
	return ""
}

// readVersion returns the version that a haproxy.cfg names, or -1 if it names none.
func readVersion(config []byte) int64 {
	for l := range haproxycfg.Lines(config) {
		line := l.Text
		if after, ok := bytes.CutPrefix(line, []byte(versionMark)); ok {
			if v, err := strconv.ParseInt(string(bytes.TrimSpace(after)), 10, 64); err == nil {
				return v
			}
		}
		if !bytes.HasPrefix(line, []byte("#")) {
			return -1
		}
	}
	return -1
}
