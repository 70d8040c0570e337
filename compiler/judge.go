package compiler

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/admission"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/objectname"
)

// Judge says what would happen to an object if it were written. It publishes nothing. Until the first compile it only
// judges what does not depend on other objects. Several goroutines may use it.
//
// The author of a review may not be allowed to read Secrets. So no verdict depends on the content of a Secret, or on
// whether a Secret exists.
//
// An Ingress is judged in three steps. Each step takes place only if the previous one found nothing. First the Ingress
// is checked alone (ingress.Mistakes), which waits for nothing. Then it is translated together with the other objects.
// Then HAProxy checks its part of the configuration alone (see judge_batch.go). Waiting reviews are judged together.
// Each gets the same verdict as if it were judged alone.
type Judge struct {
	check    *validate.Checker
	override func(*config.Config)
	sets     templateSets
	probed   probeMemo
	passed   passedMemo
	turn     chan struct{} // held while a batch is judged
	slow     chan struct{} // held by a review that must not delay the others
	queue    reviewQueue
	gateways gatewayQueue

	mu     sync.Mutex
	newest compiled
}

// compiled is the input of the last compile, and its result.
type compiled struct {
	source  Source
	classes []inputs.Object[networkingv1.IngressClass]
	found   []diag.Diagnostic
	err     error
}

// errTooEarly is the error until the first compile has ended.
var errTooEarly = errors.New("nothing was compiled yet")

// stuckAfter is the time after which the judge counts as stuck, if reviews waited and none was judged. Reviews that run
// out of time after that are not asked to come again.
const stuckAfter = time.Minute

// NewJudge returns a Judge for a loop. override puts the same values over a reviewed configuration that are put over
// the one in use. It may be nil. Until the first compile, the failure policy is that of the source.
func NewJudge(source Source, check *validate.Checker, override func(*config.Config)) *Judge {
	if override == nil {
		override = func(*config.Config) {}
	}
	return &Judge{
		probed: probeMemo{unpublished: true},
		check:  check, override: override, turn: make(chan struct{}, 1), slow: make(chan struct{}, 1),
		newest: compiled{source: source, err: errTooEarly},
	}
}

// Compiled takes the result of the last compile, and the classes of Ingresses at that time. A nil Judge ignores it.
func (j *Judge) Compiled(source Source, classes []inputs.Object[networkingv1.IngressClass], found []diag.Diagnostic, err error) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.newest = compiled{source: source, classes: classes, found: found, err: err}
}

func (j *Judge) now() compiled {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.newest
}

// FailsClosed reports whether an object is denied if it cannot be judged.
func (j *Judge) FailsClosed() bool {
	return j.now().source.Config.Admission.FailurePolicy == config.FailClosed
}

// Ingress judges an Ingress. It accepts an Ingress that is not ours, or whose namespace is not read.
func (j *Judge) Ingress(ctx context.Context, ing *networkingv1.Ingress) (admission.Verdict, error) {
	newest := j.now()
	rules := Input{Config: newest.source.Config, SecretsUnseen: true}.ingresses(nil)
	if !ingress.IsOurs(ing, newest.classes, rules) {
		if errors.Is(newest.err, errTooEarly) { // the class of the Ingress may be ours
			return admission.Verdict{}, unable(errTooEarly)
		}
		return admission.Verdict{}, nil
	}
	object := inputs.Object[networkingv1.Ingress]{
		Ref:   diag.Object{Kind: "Ingress", Namespace: ing.Namespace, Name: ing.Name},
		Value: ing,
	}
	mistakes := ingress.Mistakes(object, rules)
	if errors.Is(newest.err, errTooEarly) {
		// It may also be unknown which namespaces are read. Then an Ingress with mistakes is refused even if nobody
		// will read it.
		return ofObject(object.Ref, mistakes, nil), unableIf(len(mistakes) == 0, errTooEarly)
	}
	if c := newest.source.Config; len(mistakes) > 0 && c.NamespaceSelector == "" {
		read := inputs.NewSelector(c, nil).Objects(inputs.Inputs{Ingresses: []inputs.Object[networkingv1.Ingress]{object}})
		if len(read.Ingresses) == 0 {
			mistakes = nil
		}
		return ofObject(object.Ref, mistakes, nil), nil
	}
	r := j.queue.add(ctx, object, mistakes)
	defer j.queue.leave(r)
	turn := j.turn
	for {
		select {
		case o := <-r.done:
			return o.verdict, o.err
		case <-ctx.Done():
			return j.outOfTime(r)
		case turn <- struct{}{}:
			turn = nil // batches go on until no review waits
			go j.batches()
		}
	}
}

// outOfTime says why there is no verdict. If the verdict is only late, the client has to send the object again,
// whatever the failure policy says. Otherwise an Ingress could get in unchecked because it, or another one, kept the
// judge busy. If the judge is stuck, the failure policy decides.
func (j *Judge) outOfTime(r *reviewOf) (admission.Verdict, error) {
	if why := j.queue.why(r); why != nil {
		return admission.Verdict{}, unable(why)
	}
	return admission.Verdict{}, &admission.UnableError{Reason: "it ran out of time", Again: !j.queue.stuck(r, stuckAfter)}
}

// unable returns an error for the author of the review that says why there is no verdict. Only the log names other
// objects.
func unable(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &admission.UnableError{Reason: "it ran out of time", Err: err, Again: true}
	}
	reason := "the compiler cannot check at the moment, and its log says why"
	switch {
	case errors.Is(err, errTooEarly):
		reason = errTooEarly.Error()
	case errors.Is(err, inputs.ErrIncomplete):
		reason = "not all objects are known yet"
	case errors.Is(err, ErrTemplates), errors.Is(err, ErrGaveUp):
		reason = "nothing can be compiled at the moment"
	}
	return &admission.UnableError{Reason: reason, Err: err}
}

func unableIf(is bool, err error) error {
	if is {
		return unable(err)
	}
	return nil
}

// Configuration judges a configuration. It uses the objects that are watched for the configuration in use. Objects that
// only the new configuration needs are missing.
func (j *Judge) Configuration(ctx context.Context, document []byte) (admission.Verdict, error) {
	newest := j.now()
	c, found := config.Parse(admission.ConfigKey, document)
	if len(found) > 0 {
		return admission.Verdict{Faults: found}, nil
	}
	j.override(&c)
	faults, err := j.check.Settings(ctx, c)
	if faults = append(c.Check(), faults...); err != nil || len(faults) > 0 {
		var found []diag.Diagnostic
		for _, f := range faults {
			found = append(found, diag.Diagnostic{Severity: diag.Error, Message: f.Error(), Hint: f.Hint})
		}
		return admission.Verdict{Faults: found}, unableIf(err != nil, err)
	}
	if errors.Is(newest.err, errTooEarly) {
		return admission.Verdict{}, unable(errTooEarly)
	}
	select {
	case j.slow <- struct{}{}:
		defer func() { <-j.slow }()
	case <-ctx.Done():
		return admission.Verdict{}, &admission.UnableError{Reason: "it ran out of time", Again: true}
	}
	w, err := j.world(ctx, newest)
	if err != nil {
		return admission.Verdict{}, unable(err)
	}
	before, after := w.input(w.objects), w.input(inputs.NewSelector(c, w.objects.Namespaces).Objects(w.objects))
	after.Config = c
	v, err := j.compared(ctx, diag.Object{}, before, after)
	return v, unableIf(err != nil, err)
}

// compared compiles before and after a change, and returns what the change means for an object.
func (j *Judge) compared(ctx context.Context, object diag.Object, before, after Input) (admission.Verdict, error) {
	r, err := Compile(ctx, before, j.check)
	was := compiled{found: r.Diagnostics, err: err}
	if err != nil && !errors.Is(err, ErrTemplates) && !errors.Is(err, ErrGaveUp) {
		return admission.Verdict{}, err
	}
	r, err = Compile(ctx, after, j.check)
	return verdict(object, was, r.Diagnostics, err)
}

// reviewOf is the review of an Ingress that waits for its verdict.
type reviewOf struct {
	ctx      context.Context //nolint:containedctx // a queue of calls: each has its own deadline
	ingress  inputs.Object[networkingv1.Ingress]
	mistakes []diag.Diagnostic // found in the object alone
	done     chan outcomeOf    // takes one outcome

	since time.Time
	why   error                  // why it could not be judged so far
	asked []types.NamespacedName // ConfigMaps that the Ingress names
}

type outcomeOf struct {
	verdict admission.Verdict
	err     error
}

// reviewQueue has the reviews that wait, oldest first.
type reviewQueue struct {
	mu      sync.Mutex
	waiting []*reviewOf
	late    time.Time // since when reviews have run out of time without a verdict
}

func (q *reviewQueue) add(ctx context.Context, ing inputs.Object[networkingv1.Ingress], mistakes []diag.Diagnostic) *reviewOf {
	r := &reviewOf{ctx: ctx, ingress: ing, mistakes: mistakes, done: make(chan outcomeOf, 1), since: time.Now()}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, r)
	return r
}

// leave removes a review, whether or not it was judged.
func (q *reviewQueue) leave(r *reviewOf) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, func(o *reviewOf) bool { return o == r })
}

// take removes up to n reviews. It takes from each namespace in turn, so that a namespace with many reviews does not
// delay the others.
func (q *reviewQueue) take(n int) []*reviewOf {
	q.mu.Lock()
	defer q.mu.Unlock()
	var namespaces []string
	of := map[string][]*reviewOf{}
	for _, r := range q.waiting {
		if r.ctx.Err() != nil {
			continue // the client has gone
		}
		namespace := r.ingress.Ref.Namespace
		if of[namespace] == nil {
			namespaces = append(namespaces, namespace)
		}
		of[namespace] = append(of[namespace], r)
	}
	var out []*reviewOf
	for round := 0; len(out) < n; round++ {
		before := len(out)
		for _, namespace := range namespaces {
			if round < len(of[namespace]) && len(out) < n {
				out = append(out, of[namespace][round])
			}
		}
		if len(out) == before {
			break
		}
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(o *reviewOf) bool { return slices.Contains(out, o) })
	return out
}

// back puts back reviews that could not be judged so far, and notes why.
func (q *reviewQueue) back(reviews []*reviewOf, why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range reviews {
		r.why = why
	}
	q.waiting = append(slices.Clone(reviews), q.waiting...)
}

func (q *reviewQueue) why(r *reviewOf) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return r.why
}

// asked returns the ConfigMaps for which reviews wait.
func (q *reviewQueue) asked() routing.Asked {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []types.NamespacedName
	for _, r := range q.waiting {
		if len(all) < maxAskedFor {
			all = objectname.Union(all, r.asked)
		}
	}
	return routing.Asked{ConfigMaps: all}
}

// maxAskedFor limits how many ConfigMaps are watched at a time only because reviews name them.
const maxAskedFor = 100

// deliver gives a review its verdict.
func (q *reviewQueue) deliver(r *reviewOf, v admission.Verdict, err error) {
	if unable, is := errors.AsType[*admission.UnableError](err); !is || !unable.Again {
		q.mu.Lock()
		q.late = time.Time{}
		q.mu.Unlock()
	}
	select {
	case r.done <- outcomeOf{v, err}:
	default: // it has a verdict already
	}
}

// stuck records that a review ran out of time. It reports whether all reviews have, for so long.
func (q *reviewQueue) stuck(r *reviewOf, after time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.late.IsZero() {
		q.late = r.since
	}
	return time.Since(q.late) > after
}

// verdict says what the compile of a review means for the reviewed object. The zero Object stands for the
// configuration. Errors that existed before do not count, except those of the object itself: an author who changes an
// object has to fix it. If verdict returns an error, there is no verdict.
func verdict(object diag.Object, before compiled, found []diag.Diagnostic, err error) (admission.Verdict, error) {
	switch {
	case errors.Is(err, ErrTemplates), errors.Is(err, ErrGaveUp):
		if before.err != nil {
			return admission.Verdict{}, fmt.Errorf("nothing can be compiled at the moment: %w", before.err)
		}
		// The author of an Ingress must not learn anything about other objects or the templates.
		known := errorsOf(before.found)
		faults := []diag.Diagnostic{{Severity: diag.Error, Message: "nothing could be compiled with this: " + err.Error()}}
		for _, d := range found {
			if d.Severity == diag.Error && !known[d] && (object == diag.Object{} || d.Object == object) {
				faults = append(faults, d)
			}
		}
		return admission.Verdict{Faults: faults}, nil
	case err != nil:
		return admission.Verdict{}, err
	}
	return ofObject(object, found, errorsOf(before.found)), nil
}

// ofObject says what findings mean for an object. known are errors that existed before.
func ofObject(object diag.Object, found []diag.Diagnostic, known map[diag.Diagnostic]bool) admission.Verdict {
	var v admission.Verdict
	for _, d := range found {
		isError := d.Severity == diag.Error
		switch {
		case object != diag.Object{} && d.Object == object:
			if d.Position.File != "" {
				continue // the finding is about the object in a file, which the reviewed one replaces
			}
			d.Object = diag.Object{} // the reader knows which object it is
			if isError && !d.Conflict {
				v.Faults = append(v.Faults, d)
			} else {
				v.Warnings = append(v.Warnings, d)
			}
		case isError && !known[d]:
			v.Warnings = append(v.Warnings, d) // the review harms another object
		}
	}
	if len(v.Faults) > 0 {
		v.Warnings = nil // a denied object is not written, so warnings do not matter
	}
	return forAsker(object, v)
}

// errorsOf returns the errors among diagnostics.
func errorsOf(found []diag.Diagnostic) map[diag.Diagnostic]bool {
	out := map[diag.Diagnostic]bool{}
	for _, d := range found {
		if d.Severity == diag.Error {
			out[d] = true
		}
	}
	return out
}

// lossElsewhere is the only message if the reviewed object would cause objects of other namespaces to be left out.
var lossElsewhere = diag.Diagnostic{
	Severity: diag.Error, Message: "an object of another namespace would lose something to this one",
	Hint: "its author gets a message that says what; use a host or a path that nobody else has",
}

// forAsker removes from a verdict what the author of the object may not be allowed to know: the names of objects in
// other namespaces, and what is wrong with them. Anybody who may create an Ingress can ask about any host without
// leaving a trace. The author of a configuration may know everything.
func forAsker(object diag.Object, v admission.Verdict) admission.Verdict {
	if (object == diag.Object{}) {
		return v
	}
	v.Faults, v.Warnings = ownWords(object.Namespace, v.Faults), ownWords(object.Namespace, v.Warnings)
	return v
}

// ownWords returns findings in the form that an author in a namespace may read.
func ownWords(namespace string, found []diag.Diagnostic) []diag.Diagnostic {
	var out []diag.Diagnostic
	for _, d := range found {
		if d.Object.Namespace != namespace && (d.Object != diag.Object{}) {
			d = lossElsewhere
		}
		message, hint := withoutNames(d.Message, namespace), withoutNames(d.Hint, namespace)
		if message != d.Message || hint != d.Hint {
			hint = otherPlaces.ReplaceAllString(hint, "")
		}
		d.Message, d.Hint = message, hint
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

var (
	// objectNames matches the kind, the namespace and the name of an object in a message.
	objectNames = regexp.MustCompile(`\b(Ingress|Service|Secret|ConfigMap|EndpointSlice|Gateway|ListenerSet|[A-Z]+Route|BackendTLSPolicy) ([a-z0-9][a-z0-9-]*)/[a-z0-9][a-z0-9.:-]*`)
	// namespaceNames matches a message's words for a namespace with its name.
	namespaceNames = regexp.MustCompile(`\b(to|of|in|have|by|for|from) (?:the )?namespace ([a-z0-9][a-z0-9-]*)`)
	// otherPlaces matches the position of an older claim.
	otherPlaces = regexp.MustCompile(`;? ?the other is at \S+`)
)

// withoutNames removes the names of objects of other namespaces, and the names of these namespaces, from a text. It
// only looks at the form of the text. If it looked at what exists, the answer would show whether a guessed name exists.
func withoutNames(text, namespace string) string {
	text = objectNames.ReplaceAllStringFunc(text, func(name string) string {
		m := objectNames.FindStringSubmatch(name)
		if m[2] == namespace {
			return name
		}
		article := "a "
		if strings.ContainsAny(m[1][:1], "AEIOU") {
			article = "an "
		}
		return article + m[1] + " of another namespace"
	})
	return namespaceNames.ReplaceAllStringFunc(text, func(name string) string {
		m := namespaceNames.FindStringSubmatch(name)
		if m[2] == namespace {
			return name
		}
		return m[1] + " another namespace"
	})
}
