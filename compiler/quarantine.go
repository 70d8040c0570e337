package compiler

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// settle leaves out objects until the rest can be published. HAProxy reports most errors of a file in one run, so one
// or two rounds are usual. For some kinds of errors HAProxy stops at the first one, and each faulty object takes a
// round of its own, see drop.go.
func (c *compilation) settle(ctx context.Context) (attempt, error) {
	for round := 0; ; round++ {
		a, err := c.tryHolding(ctx, c.out, c.givenUp)
		if err != nil || len(a.faults) == 0 {
			return a, err
		}
		if c.releaseHosts(a.faults) {
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
		if len(culprits) == 0 { // it fails even without any object
			c.reportTemplates(a.faults)
			return a, ErrTemplates
		}
		if wronged, err := c.wronged(ctx, culprits); err != nil {
			return a, err
		} else if len(wronged) > 0 && !usedUp {
			c.putBack(wronged)
			found, err := c.search(ctx, c.candidates(), a.faults[0])
			if err != nil {
				return a, err
			}
			if len(found) > 0 {
				culprits = found
			}
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
		if len(c.out) == before && !c.banish(culprits) { // nothing more can be left out
			return attempt{}, ErrGaveUp
		}
	}
}

// culprit is an object, with the fault that it causes.
type culprit struct {
	object diag.Object
	at     diag.Position
	fault  render.Fault
}

// blame returns the objects to leave out because of faults. These are the objects that are alone on a faulty line. If
// there are none, it searches for the object that makes the difference: first among the objects of the first faulty
// line, then among all objects.
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

// suspicion is what is known about a message that HAProxy repeats after the object was left out whose line the message
// named.
type suspicion struct {
	blamed []diag.Object // who may not be at fault
	seen   int           // in how many rounds the message occurred
}

// credulousRounds is how many rounds with the same message pass before wronged checks the objects that were blamed. It
// is a power of 2, and smaller than patientRounds.
const credulousRounds = 4

// number matches the parts in which a message differs from the same message about another line.
var number = regexp.MustCompile(`\d+`)

// wronged returns objects that were left out, or are about to be, for a fault that is not theirs. HAProxy names a line
// in its messages, and may quote what a tenant wrote. If a quote were ever taken for the line, the fault would stay,
// and each round would leave out another innocent object. So if a message is repeated, then after 4 rounds, 8, 16 and
// so on, wronged compiles only the objects that were blamed. If HAProxy accepts these, they are not at fault.
func (c *compilation) wronged(ctx context.Context, culprits []culprit) ([]diag.Object, error) {
	now := map[string]bool{}
	for _, x := range culprits {
		message := number.ReplaceAllString(x.fault.Message, "")
		of := c.suspicions[message]
		if of == nil {
			of = &suspicion{}
			c.suspicions[message] = of
		}
		if !now[message] {
			of.seen++
		}
		now[message] = true
		of.blamed = append(of.blamed, x.object)
	}
	var out []diag.Object
	for _, message := range slices.Sorted(maps.Keys(now)) {
		of := c.suspicions[message]
		if of.seen < credulousRounds || of.seen&(of.seen-1) != 0 {
			continue
		}
		without := slices.DeleteFunc(c.candidates(), func(o diag.Object) bool { return slices.Contains(of.blamed, o) })
		left := slices.DeleteFunc(slices.Clone(c.out), func(o diag.Object) bool { return slices.Contains(of.blamed, o) })
		a, err := c.try(ctx, slices.Concat(left, without))
		if err != nil {
			return nil, err
		}
		if len(a.faults) == 0 {
			out = append(out, of.blamed...)
		}
		of.blamed = nil
	}
	return out, nil
}

// putBack takes back objects that were left out for a fault that is not theirs.
func (c *compilation) putBack(objects []diag.Object) {
	isOne := func(o diag.Object) bool { return slices.Contains(objects, o) }
	c.out = slices.DeleteFunc(c.out, isOne)
	c.reported = slices.DeleteFunc(c.reported, func(d diag.Diagnostic) bool { return isOne(d.Object) })
	for namespace := range c.rounds {
		if slices.ContainsFunc(objects, func(o diag.Object) bool { return o.Namespace == namespace }) {
			delete(c.rounds, namespace)
		}
	}
	for _, o := range objects {
		delete(c.givenUp.routes, o)
		if !slices.ContainsFunc(c.out, func(other diag.Object) bool { return other.Namespace == o.Namespace }) {
			delete(c.givenUp.hosts, o.Namespace)
		}
	}
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

// candidates returns the objects that templates read and that are not left out.
func (c *compilation) candidates() []diag.Object {
	var out []diag.Object
	for _, o := range describe(c.in.Objects.Without(c.out...)) {
		out = append(out, o.Object)
	}
	slices.SortFunc(out, usersLast)
	return slices.Compact(out) // an object may occur as itself and as content of another one
}

// search finds an object that makes the compile fail. With this object and those before it, the compile fails; with
// only those before it, it passes. search finds nothing if the compile fails without any of the objects. If all objects
// are ConfigMaps with certificate authorities, only faults about those count, since no other object can cause such a
// fault.
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

// boundary returns an n for which the first n objects pass and the first n+1 do not. The caller knows that all objects
// together do not pass. boundary returns -1 if there are no objects, or if it does not even pass without objects.
func boundary(all int, passes func(n int) (bool, error)) (int, error) {
	if all == 0 {
		return -1, nil
	}
	if ok, err := passes(0); err != nil || !ok {
		return -1, err
	}
	good, bad := 0, all // the first good objects pass, the first bad objects do not
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

// leaveOut leaves an object out of the following rounds, and reports why.
func (c *compilation) leaveOut(x culprit) {
	if !slices.Contains(c.out, x.object) {
		c.out = append(c.out, x.object)
	}
	hint := x.fault.Hint
	if place := (diag.Position{File: x.fault.Origin.Template, Line: x.fault.Origin.Line}).String(); place != "" {
		hint = "written by " + place
		line := templateLine{x.fault.Origin.Template, x.fault.Origin.Line, x.object.Kind}
		if c.blamed == nil {
			c.blamed = map[templateLine]map[diag.Object]bool{}
		}
		if c.blamed[line] == nil {
			c.blamed[line] = map[diag.Object]bool{}
		}
		c.blamed[line][x.object] = true
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

// templateLine is a line of a template, and the kind of the objects that it writes.
type templateLine struct {
	template string
	line     int
	kind     string
}

// fewForMistake is how many objects of a kind, which are all that there are, tell that the template is wrong, not they.
const fewForMistake = 3

// reportMistakes reports each line of a template for which all objects of a kind are left out. The objects say so too, and
// each for itself, but it is the template that somebody has to mend.
func (c *compilation) reportMistakes() {
	if len(c.blamed) == 0 {
		return
	}
	left := map[string]bool{}
	for _, o := range c.candidates() {
		left[o.Kind] = true
	}
	byPlace := func(a, b templateLine) int {
		return cmp.Or(cmp.Compare(a.template, b.template), cmp.Compare(a.line, b.line), cmp.Compare(a.kind, b.kind))
	}
	for _, line := range slices.SortedFunc(maps.Keys(c.blamed), byPlace) {
		objects := c.blamed[line]
		if left[line.kind] || len(objects) < fewForMistake {
			continue
		}
		c.reported = append(c.reported, diag.Diagnostic{
			Severity: diag.Warning, Position: diag.Position{File: line.template, Line: line.line},
			Message: fmt.Sprintf("%d objects of kind %s are left out for what this line writes, and none is left", len(objects), line.kind),
			Hint:    "mend this line, if not all of them are wrong",
		})
	}
}

// ofOthers reports whether an object of another namespace contributed to a line. If so, readers of this object's
// diagnostics must not see the line.
func ofOthers(line render.LineOrigin, namespace string) bool {
	return slices.ContainsFunc(line.Objects, func(o routing.Origin) bool { return o.Object.Namespace != namespace })
}

// positionOfValue returns the position of the annotation with the faulty value. For an object that only templates read,
// it is the position of the field that the fault names, or of the only field with the value. Otherwise it is the
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
			words := map[string]bool{} // a line and an object may have 100,000
			for word := range strings.FieldsSeq(x.fault.Text) {
				words[word] = true
			}
			var found [][]any
			inputs.EachField(o.Value.Object, func(path []any, text string) {
				if text != "" && (text == x.fault.Value || words[text]) && len(found) < 2 {
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

// reportTemplates reports faults that no object causes.
func (c *compilation) reportTemplates(faults []render.Fault) {
	for _, f := range faults {
		c.reported = append(c.reported, templateDiagnostic(diag.Error, f))
	}
}

// templateDiagnostic returns the diagnostic of a fault, with the place in the templates.
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
