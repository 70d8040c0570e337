package ui

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/difference"
)

// compared is how two snapshots differ, and which objects changed in between.
type compared struct {
	report  difference.Report
	objects []string
	inputs  bool         // the objects are known
	subject string       // of the second
	author  string       // of the second
	parent  snapshots.ID // of the second
}

// touch is what a snapshot changes, for those who search it.
type touch struct {
	text    string // lines that came and went, in lower case
	objects string
}

// mostTouched is how much of the changed lines is kept of a snapshot, in bytes.
const mostTouched = 64 << 10

// concerns reports whether the snapshot changes something with this text in it.
func (t touch) concerns(text string) bool {
	text = strings.ToLower(text)
	if kind, name, ok := strings.Cut(text, " "); ok && !strings.Contains(kind, "/") { // as in Ingress shop/web
		return strings.Contains(t.objects, text) || t.concerns(name)
	}
	return strings.Contains(t.objects, text) || strings.Contains(t.text, text) || strings.Contains(text, "/") && strings.Contains(t.text, strings.ReplaceAll(text, "/", "_"))
}

// compare compares two snapshots. One comparison is made at a time: large ones take memory.
func (a *archive) compare(ctx context.Context, from, to snapshots.ID) (compared, error) {
	key := [2]snapshots.ID{from, to}
	c, ok := a.compared.get(key)
	if ok {
		return c, nil
	}
	x, err := a.snapshot(ctx, from)
	if err != nil {
		return c, gone(from, err)
	}
	y, err := a.snapshot(ctx, to)
	if err != nil {
		return c, gone(to, err)
	}
	select {
	case a.comparing <- struct{}{}:
		defer func() { <-a.comparing }()
	case <-ctx.Done():
		return c, fmt.Errorf("other comparisons take too long: %w", ctx.Err())
	}
	d, err := difference.Compare(sideOf(x), sideOf(y))
	if err != nil {
		return c, err
	}
	c = compared{report: d.Report(from.String(), to.String()), subject: y.Manifest.Spec.Subject, author: y.Manifest.Provenance.Author, parent: y.Manifest.Spec.Parent}
	c.objects, c.inputs = changedObjects(x.Manifest.Provenance, y.Manifest.Provenance)
	a.compared.put(key, c)
	return c, nil
}

func sideOf(s snapshots.Snapshot) difference.Side {
	return difference.Side{Name: s.ID().String(), Files: s.Files, Certificates: s.Manifest.Spec.Certificates, Recipients: s.Manifest.Spec.Recipients}
}

// touched returns what a snapshot changes of the one before it.
func (a *archive) touched(ctx context.Context, id snapshots.ID) (touch, error) {
	t, ok := a.touches.get(id)
	if ok {
		return t, nil
	}
	m, err := a.manifest(ctx, id)
	if err != nil {
		return t, err
	}
	if m.Spec.Parent.IsZero() {
		return touch{objects: strings.ToLower(m.Spec.Subject)}, nil
	}
	c, err := a.compare(ctx, m.Spec.Parent, id)
	if err != nil {
		return t, err
	}
	var text strings.Builder
	for _, f := range c.report.Files {
		for line := range strings.Lines(f.Diff) {
			if text.Len() < mostTouched && (line[0] == '+' || line[0] == '-') {
				text.WriteString(line)
			}
		}
	}
	t = touch{text: strings.ToLower(text.String()), objects: strings.ToLower(strings.Join(append(c.objects, m.Spec.Subject, m.Provenance.Trigger), "\n"))}
	a.touches.put(id, t)
	return t, nil
}

// changedObjects returns the objects that came, went or changed between two compiles. It reports false
// where they cannot be known: files have no versions, and some manifests have no room for all objects.
func changedObjects(before, after snapshots.Provenance) (out []string, known bool) {
	key := func(i snapshots.Input) string {
		return strings.Join([]string{i.APIVersion, i.Kind, i.Namespace, i.Name}, "\x00")
	}
	say := func(i snapshots.Input, what string) {
		name := i.Name
		if i.Namespace != "" {
			name = i.Namespace + "/" + name
		}
		out = append(out, i.Kind+" "+name+" "+what)
	}
	was := make(map[string]snapshots.Input, len(before.Inputs))
	versions := len(before.Inputs) > 0
	for _, i := range before.Inputs {
		was[key(i)] = i
		versions = versions && i.ResourceVersion != ""
	}
	for _, i := range after.Inputs {
		old, there := was[key(i)]
		delete(was, key(i))
		switch {
		case !there:
			say(i, "came")
		case old.UID != i.UID:
			say(i, "was made anew")
		case old.ResourceVersion != i.ResourceVersion:
			say(i, "changed")
		}
	}
	for _, i := range was {
		say(i, "went")
	}
	slices.SortFunc(out, func(a, b string) int { return cmp.Compare(a, b) })
	return out, versions && before.OmittedInputs == 0 && after.OmittedInputs == 0
}

// committed is a store that has each snapshot in a commit.
type committed interface {
	// Commit returns the hash of the commit of a snapshot.
	Commit(ctx context.Context, id snapshots.ID) (string, error)
}

// commit returns the hash of the commit of a snapshot.
func (a *archive) commit(ctx context.Context, id snapshots.ID) (string, error) {
	in, ok := a.store.(committed)
	if !ok {
		return "", errNoStore
	}
	return kept(ctx, a, a.commits, id, func(ctx context.Context) (string, error) { return in.Commit(ctx, id) })
}
