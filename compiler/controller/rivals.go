package controller

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Two compilers that publish different content to one store undo each other's work for ever, unless a Lease lets only one
// publish. So each writes a mark into the trigger of its snapshots, which says who it is. The mark is no field of its own,
// since pushers refuse a manifest with a field that they do not know; they accept any text as a trigger.
//
// The rules:
//
//   - If a compiler in another place replaces our snapshot, it is an error at once. A snapshot from the same place may be
//     what a former leader sent before its term ended, or may come from the process that a rolling update replaces. It is
//     an error if the same process does it again after we published once more. Without a Lease it is also an error if we
//     still run at the next look: nobody replaces us then, and who has no change of its own would never publish again.
//   - The compiler that began first goes on. The other one stops once the first replaced its snapshots twice: somebody
//     added it later, and it serves nobody yet. If both went on, hosts would come and go. If both stopped, changes of the
//     one that serves would stop too.
//   - It stops until the other one has published nothing for rivalQuiet. In a rolling update without a Lease the compiler
//     that began first ends, and nobody restarts the new one.
//   - Snapshots without a mark, such as those of "compiler render -o", do not count.

// rivalQuiet is how long another compiler must publish nothing until it is considered gone.
const rivalQuiet = time.Hour

// mark says which process made a snapshot.
type mark struct {
	run           string    // the process, by chance
	began         time.Time // when compilers at that place began to publish, as far as they know
	configuration string    // the short digest of the CompilerConfig
	machine       string
	objects       string // where its objects come from
}

// markTime has milliseconds, for compilers that are started by one script.
const markTime = "2006-01-02T15:04:05.000Z"

var markForm = regexp.MustCompile(`^[^;]*; compiler ([0-9a-f]{12}) since (\S+), configuration ([0-9a-f]{10}), on (\S+), of (.*)$`)

// newMark returns the mark of a process that begins now.
func newMark(objects fmt.Stringer, now time.Time) mark {
	run := make([]byte, 6)
	_, _ = rand.Read(run) // which never fails
	machine, err := os.Hostname()
	if err != nil {
		machine = ""
	}
	m := mark{run: hex.EncodeToString(run), began: now.UTC().Truncate(time.Millisecond), machine: cmp.Or(machine, "unknown")}
	if objects != nil {
		m.objects = objects.String()
	}
	return m
}

// trigger returns what made a snapshot, followed by the mark of its compiler.
func (m mark) trigger(trigger string) string {
	return fmt.Sprintf("%s; compiler %s since %s, configuration %s, on %s, of %s", trigger, m.run, m.began.Format(markTime), m.configuration, m.machine, m.objects)
}

// parseMark reads what trigger wrote; ok is false for a snapshot that somebody made in another way.
func parseMark(trigger string) (m mark, ok bool) {
	parts := markForm.FindStringSubmatch(trigger)
	if parts == nil {
		return mark{}, false
	}
	began, err := time.Parse(markTime, parts[2])
	return mark{run: parts[1], began: began, configuration: parts[3], machine: parts[4], objects: parts[5]}, err == nil
}

// before reports whether this compiler goes on, of two. Both get the same answer.
func (m mark) before(other mark) bool {
	return cmp.Or(m.began.Compare(other.began), cmp.Compare(m.run, other.run)) < 0
}

// configurationDigest returns the short digest of a configuration, by which people tell two apart.
func configurationDigest(c config.Config) string {
	text, err := json.Marshal(c)
	if err != nil {
		text = []byte(err.Error()) // a plain value has none
	}
	h := sha256.New()
	h.Write(text)
	return snapshots.DigestOf(h).Short()
}

// RivalReport is another compiler that publishes to the same store.
type RivalReport struct {
	Run           string       `json:"run"` // of the process
	Since         time.Time    `json:"since"`
	Machine       string       `json:"machine"`
	Objects       string       `json:"objects"`       // where its objects come from
	Configuration string       `json:"configuration"` // its short digest
	Same          bool         `json:"sameConfiguration"`
	Snapshot      snapshots.ID `json:"snapshot"` // the newest of it that was seen
	// Yields is set in the one of the two that publishes nothing meanwhile, and Until says until when,
	// unless the other one publishes again.
	Yields bool      `json:"yields"`
	Until  time.Time `json:"until"`
}

// String says who it is.
func (r RivalReport) String() string {
	configuration := "another configuration, " + r.Configuration
	if r.Same {
		configuration = "the same configuration"
	}
	text := fmt.Sprintf("another compiler publishes to this store: it runs on %s with the objects of %s and %s, and made %s", r.Machine, r.Objects, configuration, r.Snapshot)
	if r.Yields {
		text += "; it was there first, so this one publishes nothing until " + r.Until.UTC().Format(time.RFC3339)
	}
	return text
}

// rivalHint says what a person can do.
const rivalHint = "stop one of the two, or give it a store or a branch of its own; after that, a restart has this one publish at once"

// RivalError is why a draft is not published while another compiler publishes.
type RivalError struct{ RivalReport }

// Error says who publishes, and what to do.
func (e *RivalError) Error() string { return e.String() + "; " + rivalHint }

// rivals is what a compiler knows about other compilers. A new term as leader only keeps its own mark: between two terms,
// others of the same Lease may have published.
type rivals struct {
	own     mark
	elected bool // by a Lease, so that the machine may be another one for the same place
	ours    snapshots.ID
	seen    snapshots.ID            // the newest by another one
	times   map[string]int          // how often each of them replaced our snapshots
	counted map[string]snapshots.ID // which snapshot of ours each replaced last
	current *RivalReport            // nil: none
	// doubt is a process at our place without a Lease that replaced our snapshot once, and doubted is when we saw that.
	doubt   *RivalReport
	doubted time.Time
}

// term begins a term.
func (r *rivals) term(elected bool) {
	*r = rivals{own: r.own, elected: elected, times: map[string]int{}, counted: map[string]snapshots.ID{}}
}

// until returns when the other compiler is considered gone; zero if there is none.
func (r *rivals) until() time.Time {
	if r.current == nil {
		return time.Time{}
	}
	return r.current.Until
}

// observe checks who made the newest snapshot of the store, and reports whether that says something new about another
// compiler. The inputs are those of our last compile.
func (r *rivals) observe(head snapshots.Snapshot, inputs []snapshots.Input, now time.Time) bool {
	other, marked := parseMark(head.Manifest.Provenance.Trigger)
	if !marked || other.run == r.own.run {
		return false
	}
	same := r.samePlace(other, head.Manifest.Provenance.Inputs, inputs)
	id := head.ID()
	switch {
	case r.ours.IsZero():
		if same && other.began.Before(r.own.began) {
			r.own.began = other.began // we go on where that process ended
		}
		return false
	case id == r.seen, id.Revision <= r.ours.Revision, id.Short == r.ours.Short:
		return false
	}
	r.seen = id
	who := other.run
	if !same {
		who = other.objects + " " + other.began.Format(markTime) // also after a restart
	}
	if r.counted[who] != r.ours {
		r.counted[who] = r.ours
		r.times[who]++
	}
	again := r.times[who] > 1
	found := &RivalReport{
		Run: other.run, Since: other.began, Machine: other.machine, Objects: other.objects, Configuration: other.configuration,
		Same: other.configuration == r.own.configuration, Snapshot: id, Yields: again && !r.own.before(other), Until: now.Add(rivalQuiet),
	}
	r.doubt = nil
	if same && !again {
		if !r.elected {
			r.doubt, r.doubted = found, now
		}
		return false
	}
	before := r.current
	r.current = found
	return before == nil || before.Run != other.run || before.Yields != r.current.Yields
}

// stillRuns reports whether there is another process at our place, now that we look again and its snapshot is still the
// newest.
func (r *rivals) stillRuns(newest snapshots.ID, now time.Time) bool {
	if r.doubt == nil || r.doubt.Snapshot != newest || now.Sub(r.doubted) < headInterval/2 {
		return false
	}
	r.current, r.doubt = r.doubt, nil
	r.current.Until = now.Add(rivalQuiet)
	return true
}

// samePlace reports whether a mark may be that of an earlier process, or of one with the same Lease. The names of two
// clusters may be equal, since each process may know its API server by an address inside its cluster; but two clusters
// have no object in common.
func (r *rivals) samePlace(other mark, theirs, ours []snapshots.Input) bool {
	if other.objects != r.own.objects || !r.elected {
		return other.objects == r.own.objects && other.machine == r.own.machine
	}
	known := map[string]bool{}
	for _, in := range theirs {
		known[in.UID] = in.UID != ""
	}
	return slices.ContainsFunc(ours, func(in snapshots.Input) bool { return known[in.UID] }) || len(ours) == 0
}

// observeHead checks whether another compiler made the newest snapshot, and reports it once.
func (l *loop) observeHead(head snapshots.Snapshot, now time.Time) {
	l.rivals.own.configuration = configurationDigest(l.Source.Config)
	var inputs []snapshots.Input
	if l.pending != nil {
		inputs = l.pending.Draft.Provenance.Inputs
	} else {
		inputs = l.previous.Manifest.Provenance.Inputs
	}
	l.reportRival(l.rivals.observe(head, inputs, now), now)
}

// reportRival says who else publishes, in the log only if that is new.
func (l *loop) reportRival(news bool, now time.Time) {
	rival := l.rivals.current
	l.Status.rival(rival, now)
	if news {
		l.metrics.rivals.Set(1)
		l.Log.Error("another compiler publishes to this store, and each undoes what the other one published",
			"machine", rival.Machine, "objects", rival.Objects, "configuration", rival.Configuration, "ours", l.rivals.own.configuration,
			"snapshot", rival.Snapshot.String(), "stops", rival.Yields, "hint", rivalHint)
	}
}

// yields returns an error if another compiler goes first, else nil. It returns nil for a draft that the store holds
// already.
func (l *loop) yields(head snapshots.Snapshot, draft snapshots.Draft) error {
	rival := l.rivals.current
	if rival == nil || !rival.Yields || head.Manifest.Spec.Digest == draft.Digest() {
		return nil
	}
	return &RivalError{*rival}
}

// leader reports whether this process is the one that publishes.
type leader interface {
	// Term returns a context that ends when this process ceases to lead, and false if it does not lead. This process
	// does not give up the lead before end is called.
	Term(ctx context.Context) (during context.Context, end context.CancelFunc, leading bool)
	// Changed receives when this process may have begun or ceased to lead.
	Changed() <-chan struct{}
}

// alone is the leader where there is one process only.
type alone struct{}

func (alone) Term(ctx context.Context) (context.Context, context.CancelFunc, bool) {
	return ctx, func() {}, true
}

func (alone) Changed() <-chan struct{} { return nil }

// headInterval is how often a leader checks whether the store still holds what it published. A former leader can change
// that, with a snapshot that it sent before its term ended and that arrives later, and so can another compiler.
const headInterval = 30 * time.Second

// elected finds out whether this process leads. A new leader publishes the draft that it has ready. If it has none, since
// it published its draft in an earlier term, another leader may have published since. So it compiles again, and publishes
// the result if that is not the head.
func (l *loop) elected(ctx context.Context, now time.Time) {
	_, end, leading := l.Leader.Term(ctx)
	end()
	l.leads = leading
	l.Status.leads(leading)
	_, only := l.Leader.(alone)
	l.verify = now.Add(headInterval)
	l.rivals.term(!only)
	l.Status.rival(nil, now)
	l.metrics.rivals.Set(0)
	switch {
	case leading && l.pending != nil:
		l.republish.now(now)
	case leading:
		l.debounce.change(now)
	}
}

// publishWhileLeading publishes the pending draft, unless this process does not lead any more. It gives up when the
// process ceases to lead.
func (l *loop) publishWhileLeading(ctx context.Context) {
	during, end, leading := l.Leader.Term(ctx)
	defer end()
	if !leading {
		l.leads = false
		l.Status.leads(false)
		return
	}
	l.publish(during)
}

// verifyHead checks who made the store's newest snapshot, if that is not the one that this process published last. Then
// it compiles again. Without a Lease it does not compile: no former leader can have sent that snapshot late, but a person
// may have published it.
func (l *loop) verifyHead(ctx context.Context) {
	l.verify = time.Now().Add(headInterval)
	ids, err := l.Store.IDs(ctx)
	newest := newestOf(ids)
	if err != nil || newest == l.Status.Head() {
		return
	}
	if !l.rivals.ours.IsZero() && newest != l.rivals.seen {
		if head, err := l.Store.Get(ctx, newest); err == nil {
			l.observeHead(head, time.Now())
		}
	}
	if l.rivals.stillRuns(newest, time.Now()) {
		l.reportRival(true, time.Now())
	}
	if _, only := l.Leader.(alone); only || l.Status.Ready() != nil || l.pending != nil {
		return
	}
	l.Log.Warn("the newest snapshot of the store is not the one that was published, compiling again", "snapshot", newest.String(), "published", l.Status.Head().String())
	l.debounce.change(time.Now())
}
