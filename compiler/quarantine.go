package compiler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/process"
)

// settle leaves out objects until what remains may be published. HAProxy reports most
// errors of a file in one run, so that one or two rounds are usual. There are some of which
// it reports one and stops: then each object that is at fault takes a round, see drop.go.
func (c *compilation) settle(ctx context.Context) (attempt, error) {
	for round := 0; ; round++ {
		a, err := c.tryHolding(ctx, c.out, c.yielded)
		if err != nil || len(a.faults) == 0 {
			return a, err
		}
		if c.letGo(a.faults) {
			continue
		}
		wrong, err := c.ofTemplates(ctx, a)
		if err != nil {
			return a, err
		}
		if len(wrong) > 0 {
			c.reportTemplates(wrong)
			return a, ErrTemplates
		}
		usedUp := round >= maxRounds
		if dropped, err := c.drop(ctx, a, usedUp); err != nil || dropped {
			if err != nil {
				return a, err
			}
			continue
		}
		culprits, err := c.blame(ctx, a.faults)
		if err != nil {
			return a, err
		}
		if len(culprits) == 0 { // not even without any object
			c.reportTemplates(a.faults)
			return a, ErrTemplates
		}
		before := len(c.out)
		for _, culprit := range culprits {
			c.leaveOut(culprit)
		}
		for _, namespace := range c.overdrawn(culprits, usedUp) {
			checks := siftingRounds
			if usedUp || c.rounds[namespace] > patientRounds+1 {
				checks = 0
			}
			if err := c.sift(ctx, namespace, checks); err != nil {
				return attempt{}, err
			}
		}
		if len(c.out) == before && !c.banish(culprits) { // it fails whatever is left out
			return attempt{}, ErrGaveUp
		}
	}
}

// culprit is an object and what it is blamed for.
type culprit struct {
	object diag.Object
	at     diag.Position
	fault  render.Fault
}

// blame finds out which objects to leave out for faults: all those that are
// alone on a line; if there is none, the one among the objects of a line, or
// else among all objects, that makes the difference.
func (c *compilation) blame(ctx context.Context, faults []render.Fault) ([]culprit, error) {
	var alone []culprit
	for _, f := range faults {
		if objects := toBlame(f); len(objects) == 1 {
			alone = append(alone, culprit{objects[0].Object, objects[0].Position, f})
		}
	}
	if len(alone) > 0 {
		return alone, nil
	}
	var onLine []diag.Object
	for _, o := range toBlame(faults[0]) {
		onLine = append(onLine, o.Object)
	}
	candidates := [][]diag.Object{onLine, c.candidates()}
	for _, objects := range candidates {
		found, err := c.search(ctx, objects, faults[0])
		if err != nil || len(found) > 0 {
			return found, err
		}
	}
	return nil, nil
}

// toBlame returns the objects of a faulty line that may have caused the error, each once.
func toBlame(f render.Fault) []routing.Origin {
	var out []routing.Origin
	for _, o := range f.Origin.Objects {
		known := slices.ContainsFunc(out, func(other routing.Origin) bool { return other.Object == o.Object })
		if !known && (f.Namespace == "" || f.Namespace == o.Object.Namespace) {
			out = append(out, o)
		}
	}
	return out
}

// candidates returns the objects that templates see and that are still in.
func (c *compilation) candidates() []diag.Object {
	var out []diag.Object
	for _, o := range describe(c.in.Objects.Without(c.out...)) {
		out = append(out, o.Object)
	}
	slices.SortFunc(out, diag.Object.Compare)
	return slices.Compact(out) // an object may be there as itself and as content
}

// search finds the object without which, and without those after it, the rest
// passes, and with which it does not. It finds nothing if the rest does not
// pass even without all of them. Where all are ConfigMaps with authorities, the rest passes once
// no fault is laid to one of them: nobody else answers for these.
func (c *compilation) search(ctx context.Context, objects []diag.Object, fault render.Fault) ([]culprit, error) {
	authorities := !slices.ContainsFunc(objects, func(o diag.Object) bool { return o.Kind != "ConfigMap" })
	counts := func(f render.Fault) bool {
		return !authorities || slices.ContainsFunc(toBlame(f), func(o routing.Origin) bool { return slices.Contains(objects, o.Object) })
	}
	passes := func(n int) (bool, error) {
		a, err := c.try(ctx, slices.Concat(c.out, objects[n:]))
		return !slices.ContainsFunc(a.faults, counts), err
	}
	n, err := boundary(len(objects), passes)
	if err != nil || n < 0 {
		return nil, err
	}
	return []culprit{{objects[n], c.positionOf(objects[n]), fault}}, nil
}

// boundary returns the n with which the first n pass, and one more does not, if all do not;
// -1 if not even none do.
func boundary(all int, passes func(n int) (bool, error)) (int, error) {
	if all == 0 {
		return -1, nil
	}
	if ok, err := passes(0); err != nil || !ok {
		return -1, err
	}
	good, bad := 0, all // it passes with the first good ones, and does not with the first bad ones
	for bad-good > 1 {
		middle := (good + bad) / 2
		ok, err := passes(middle)
		if err != nil {
			return -1, err
		}
		if ok {
			good = middle
		} else {
			bad = middle
		}
	}
	return good, nil
}

// leaveOut takes an object out of the following rounds and reports why.
func (c *compilation) leaveOut(x culprit) {
	if !slices.Contains(c.out, x.object) {
		c.out = append(c.out, x.object)
	}
	hint := x.fault.Hint
	if place := (diag.Position{File: x.fault.Origin.Template, Line: x.fault.Origin.Line}).String(); place != "" {
		hint = "written by " + place
		if x.fault.Text != "" && !ofOthers(x.fault.Origin, x.object.Namespace) {
			hint = fmt.Sprintf("in the line %q, written by %s", x.fault.Text, place)
		}
		if x.fault.Hint != "" {
			hint = x.fault.Hint + "; " + hint
		}
	}
	at := c.positionOfValue(x)
	c.reported = append(c.reported, diag.Diagnostic{
		Severity: diag.Error, Position: at, Object: x.object, Message: x.fault.Message, Hint: hint,
	})
}

// ofOthers reports whether an object of another namespace contributed to a line. Readers of
// this object's diagnostics must then not see the line.
func ofOthers(line render.LineOrigin, namespace string) bool {
	return slices.ContainsFunc(line.Objects, func(o routing.Origin) bool { return o.Object.Namespace != namespace })
}

// positionOfValue returns the position of the annotation with the faulty value; of a kind that templates
// read, of the field that the fault names, or of the only field with the value. Otherwise it returns the
// position of the object.
func (c *compilation) positionOfValue(x culprit) diag.Position {
	for _, o := range c.in.Objects.Others {
		if o.Ref == x.object {
			if path, err := kinds.FieldPath(x.fault.Field); err == nil {
				steps := make([]any, len(path))
				for i, name := range path {
					steps[i] = name
				}
				return o.Position(steps...)
			}
			words := strings.Fields(x.fault.Text)
			var found [][]any
			inputs.EachField(o.Value.Object, func(path []any, text string) {
				if text != "" && (text == x.fault.Value || slices.Contains(words, text)) {
					found = append(found, slices.Clone(path))
				}
			})
			if len(found) != 1 {
				return x.at
			}
			return o.Position(found[0]...)
		}
	}
	for _, o := range c.in.Objects.Ingresses {
		if o.Ref == x.object {
			return annotationPosition(o.Position, o.Value.Annotations, x)
		}
	}
	for _, o := range c.in.Objects.Services {
		if o.Ref == x.object {
			return annotationPosition(o.Position, o.Value.Annotations, x)
		}
	}
	for _, o := range c.in.Objects.Gateway.Each() {
		if o.Ref == x.object {
			return annotationPosition(o.Position, o.Value.GetAnnotations(), x)
		}
	}
	return x.at
}

func annotationPosition(at func(path ...any) diag.Position, annotations map[string]string, x culprit) diag.Position {
	words := strings.Fields(x.fault.Text)
	var keys []string
	for key, value := range annotations {
		if value != "" && (value == x.fault.Value || slices.Contains(words, value)) {
			keys = append(keys, key)
		}
	}
	if len(keys) != 1 {
		return x.at
	}
	return at("metadata", "annotations", keys[0])
}

// reportTemplates reports faults that no object answers for.
func (c *compilation) reportTemplates(faults []render.Fault) {
	for _, f := range faults {
		c.reported = append(c.reported, templateDiagnostic(diag.Error, f))
	}
}

// templateDiagnostic is a fault with the place in the templates.
func templateDiagnostic(severity diag.Severity, f render.Fault) diag.Diagnostic {
	d := diag.Diagnostic{
		Severity: severity, Message: f.Message, Hint: f.Hint,
		Position: diag.Position{File: f.Origin.Template, Line: f.Origin.Line},
	}
	if f.Text != "" && d.Hint == "" {
		d.Hint = fmt.Sprintf("in the line %q", f.Text)
	}
	return d
}

// A panic while something is compiled is a mistake of ours, or of a library, that some object brings out. Whoever may write
// that object must not be able to end the compiler with it, again after each start, for everybody. So
// the object is found by halves and left out as if it were not there: whatever looks at it may panic. What it
// protects must not be served without that, so that with an object that protects something its whole namespace
// is left out.

// mostCrashes is how many objects are left out for panics in one compile. Each takes a compile for each bit of the number of
// objects.
const mostCrashes = 8

// crashes remembers objects that a compile panicked for, so that they are not searched for each time.
type crashes struct {
	lock  sync.Mutex
	known map[diag.Object]crashed
}

// crashed is an object as it was when it made a compile panic, and what is said of it.
type crashed struct {
	value any
	said  diag.Diagnostic
}

// leaveOut returns an input without the objects that are known, and forgets those that are other ones by now.
func (c *crashes) leaveOut(in Input) Input {
	if c == nil {
		return in
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	for object, known := range c.known {
		if o, ok := find(in.Objects, object); ok && o.value == known.value {
			in = in.withoutCrashed(o, known.said)
		} else {
			delete(c.known, object)
		}
	}
	return in
}

func (c *crashes) add(o anObject, said diag.Diagnostic) {
	if c == nil {
		return
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.known == nil {
		c.known = map[diag.Object]crashed{}
	}
	c.known[o.ref] = crashed{o.value, said}
}

// compileSafely is [compile] for objects of which some may make it panic.
func compileSafely(ctx context.Context, in Input, check checker) (Result, error) {
	in = in.Crashes.leaveOut(in)
	panicked := false
	for n := 0; ; n++ {
		r, err := caught(ctx, in, check)
		p, ok := errors.AsType[process.PanicError](err)
		if !ok || n == mostCrashes || ctx.Err() != nil {
			r.Panicked = panicked || ok
			return r, err
		}
		panicked = true
		in = in.forgetful() // memories may have been left in any state
		o, found := crashing(ctx, in, check)
		if !found {
			return Result{Panicked: true}, err
		}
		said := diag.Diagnostic{
			Severity: diag.Error, Object: o.ref, Position: o.at,
			Message: fmt.Sprintf("is left out, since the compiler panics for it: %v", p.Value),
			Hint:    "report it, with the object, as a mistake of hapsnap, in " + p.Place,
		}
		in.Crashes.add(o, said)
		in = in.withoutCrashed(o, said)
	}
}

func caught(ctx context.Context, in Input, check checker) (r Result, err error) {
	err = process.Caught(func() error {
		r, err = compile(ctx, in, check)
		return err
	})
	return r, err
}

// forgetful returns an input without what earlier compiles remember.
func (in Input) forgetful() Input {
	in.Memo, in.Read, in.Claims, in.Routes, in.Seals, in.Countries = nil, nil, nil, nil, nil, nil
	return in
}

// crashing finds the object without which, and without those after it, nothing panics.
func crashing(ctx context.Context, in Input, check checker) (anObject, bool) {
	all := slices.SortedFunc(slices.Values(everyObject(in.Objects)), func(a, b anObject) int { return a.ref.Compare(b.ref) })
	n, err := boundary(len(all), func(n int) (bool, error) {
		short := in
		short.Objects = in.Objects.Without(refsOf(all[n:])...)
		_, err := caught(ctx, short, check)
		_, panicked := errors.AsType[process.PanicError](err)
		return !panicked, ctx.Err()
	})
	if err != nil || n < 0 {
		return anObject{}, false
	}
	return all[n], true
}

// withoutCrashed returns an input without an object, which is reported. With one that protects something, its namespace is
// left out.
func (in Input) withoutCrashed(o anObject, said diag.Diagnostic) Input {
	gone := []anObject{o}
	in.Found = append(slices.Clone(in.Found), said)
	if options.Protects(o.annotations) != "" {
		for _, other := range everyObject(in.Objects) {
			if other.ref.Namespace != o.ref.Namespace || other.ref == o.ref || !other.routes {
				continue
			}
			gone = append(gone, other)
			in.Found = append(in.Found, diag.Diagnostic{
				Severity: diag.Error, Object: other.ref, Position: other.at,
				Message: fmt.Sprintf("is left out with all routes of namespace %s: the compiler panics for %s, which protects something", o.ref.Namespace, o.ref),
				Hint:    "delete " + o.ref.String() + ", or write it in another way",
			})
		}
	}
	in.Objects = in.Objects.Without(refsOf(gone)...)
	return in
}

// anObject is one of any kind.
type anObject struct {
	ref         diag.Object
	at          diag.Position
	annotations map[string]string
	value       any  // a pointer, by which an object is known to be the same
	routes      bool // it sends requests somewhere
}

func refsOf(objects []anObject) []diag.Object {
	out := make([]diag.Object, len(objects))
	for i, o := range objects {
		out[i] = o.ref
	}
	return out
}

func find(in inputs.Inputs, ref diag.Object) (anObject, bool) {
	all := everyObject(in)
	i := slices.IndexFunc(all, func(o anObject) bool { return o.ref == ref })
	if i < 0 {
		return anObject{}, false
	}
	return all[i], true
}

// everyObject returns all objects that people write.
func everyObject(in inputs.Inputs) []anObject {
	var out []anObject
	add := func(objects ...anObject) { out = append(out, objects...) }
	for _, o := range slices.Concat(in.Ingresses, in.Broken) {
		add(anObject{o.Ref, o.Position(), o.Value.Annotations, o.Value, true})
	}
	for _, o := range in.Services {
		add(anObject{o.Ref, o.Position(), o.Value.Annotations, o.Value, false})
	}
	for _, o := range in.Secrets {
		add(anObject{o.Ref, o.Position(), nil, o.Value, false})
	}
	for _, o := range in.ConfigMaps {
		add(anObject{o.Ref, o.Position(), nil, o.Value, false})
	}
	for _, o := range in.EndpointSlices {
		add(anObject{o.Ref, o.Position(), nil, o.Value, false})
	}
	for kind, o := range in.Gateway.Each() {
		add(anObject{o.Ref, o.Position(), o.Value.GetAnnotations(), o.Value, kind.IsRoute()})
	}
	for _, o := range in.Others {
		add(anObject{o.Ref, o.Position(), o.Value.GetAnnotations(), o.Value, false})
	}
	return out
}
