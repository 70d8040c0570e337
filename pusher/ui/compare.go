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

// compared is the difference of two snapshots, and the objects that changed between them.
type compared struct {
	report  difference.Report
	objects []string
	inputs  bool         // whether the objects are known
	subject string       // of the second
	author  string       // of the second
	parent  snapshots.ID // of the second
}

// touch is what a snapshot changes, for a search of the history.
type touch struct {
	text    string // lines that were added or removed, in lower case
	objects string
}

// mostTouched is how many bytes of the changed lines of a snapshot are kept for searches.
const mostTouched = 64 << 10

// concerns reports whether the change contains a text.
func (t touch) concerns(text string) bool {
	text = strings.ToLower(text)
	if kind, name, ok := strings.Cut(text, " "); ok && !strings.Contains(kind, "/") { // as in Ingress shop/web
		return strings.Contains(t.objects, text) || t.concerns(name)
	}
	return strings.Contains(t.objects, text) || strings.Contains(t.text, text) || strings.Contains(text, "/") && strings.Contains(t.text, strings.ReplaceAll(text, "/", "_"))
}

// compare compares two snapshots. One comparison is made at a time, and those that wait hold no snapshot: large ones
// take memory.
func (a *archive) compare(ctx context.Context, from, to snapshots.ID) (compared, error) {
	key := [2]snapshots.ID{from, to}
	c, ok := a.compared.get(key)
	if ok {
		return c, nil
	}
	if ctx.Value(nowait{}) != nil { // who does not wait learns at once that one of them was not read
		if _, _, err := a.both(ctx, from, to); err != nil {
			return c, err
		}
	}
	select {
	case a.comparing <- struct{}{}:
		defer func() { <-a.comparing }()
	case <-ctx.Done():
		return c, fmt.Errorf("other comparisons take too long: %w", ctx.Err())
	}
	if c, ok := a.compared.get(key); ok { // another goroutine made it meanwhile
		return c, nil
	}
	x, y, err := a.both(ctx, from, to)
	if err != nil {
		return c, err
	}
	d, err := difference.Compare(difference.SideOf(x.ID().String(), x), difference.SideOf(y.ID().String(), y))
	if err != nil {
		return c, err
	}
	c = compared{report: d.Report(from.String(), to.String()), subject: y.Manifest.Spec.Subject, author: y.Manifest.Provenance.Author, parent: y.Manifest.Spec.Parent}
	c.objects, c.inputs = changedObjects(x.Manifest.Provenance, y.Manifest.Provenance)
	a.compared.put(key, c)
	return c, nil
}

// both returns two snapshots.
func (a *archive) both(ctx context.Context, from, to snapshots.ID) (x, y snapshots.Snapshot, err error) {
	if x, err = a.snapshot(ctx, from); err != nil {
		return x, y, gone(from, err)
	}
	if y, err = a.snapshot(ctx, to); err != nil {
		return x, y, gone(to, err)
	}
	return x, y, nil
}

// touched returns what a snapshot changes compared with its parent.
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

// changedObjects returns the objects that were added, removed or changed between two compiles. It reports false if
// they are not known: files have no versions, and a manifest has no room for very many objects.
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

// committed is a store that keeps each snapshot in a commit.
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

// mostRows is how many rows of a file are shown among other files, and mostRowsAlone of a file by itself.
const mostRows, mostRowsAlone = 400, 4000

// diffReport is the example for the description of the JSON.
var diffReport = difference.Report{}

// diffView is what the page of a difference shows.
type diffView struct {
	A, B       snapshots.ID
	Report     difference.Report
	Files      []fileView
	Objects    []string // that changed between the two, as far as that is known
	Subject    string   // of the second
	By         string
	CommitA    string
	CommitB    string
	Alone      string // the only file that is shown, "" for all
	Unknown    bool   // set if it is not known which objects changed
	Successive bool   // set if the second is the child of the first
	Asking     bool   // set while the compiler is asked which fields wrote the lines
	NoCauses   string // why the fields are not known
}

// fileView is a file side by side.
type fileView struct {
	difference.FileReport
	ID      string
	Hunks   []hunk
	Open    bool
	Decides bool
	Cut     int // rows that are not shown
}

// hunk is a part of a file, with the objects that caused it as far as they are known.
type hunk struct {
	Skipped int // lines between it and the hunk before
	Rows    []row
	Objects []string
	Causes  []Origin // fields that wrote the added lines, if a compiler is asked
}

// row is a line of both sides. A number is 0 where there is none.
type row struct {
	Old, New         int
	OldText, NewText string
	Removed, Added   bool
	Why              string // why this line decides the class of the change, "" for all other lines
}

func diffOf(ctx context.Context, q query) (diffView, error) {
	a, b := q.text("a"), q.text("b")
	if a == "" || b == "" {
		return diffView{}, problem{400, "Two snapshots are to be named.", "Select two in the history."}
	}
	from, _, err := q.snapshot(ctx, a)
	if err != nil {
		return diffView{}, err
	}
	to, _, err := q.snapshot(ctx, b)
	if err != nil {
		return diffView{}, err
	}
	c, err := q.archive.compare(ctx, from, to)
	if err != nil {
		return diffView{}, err
	}
	v := diffView{
		A: from, B: to, Report: c.report, Objects: c.objects, Unknown: !c.inputs, Subject: c.subject, By: c.author, Successive: c.parent == from,
		CommitA: q.commit(ctx, from), CommitB: q.commit(ctx, to), Alone: q.values.Get("file"),
	}
	for n, f := range c.report.Files {
		if v.Alone == "" || v.Alone == f.Path {
			v.Files = append(v.Files, v.file(n, f))
		}
	}
	// The compiler is asked only about added lines. The objects that wrote the removed lines have changed since.
	var lines written
	var of []*hunk
	for f := range v.Files {
		for h := range v.Files[f].Hunks {
			hunk := &v.Files[f].Hunks[h]
			at := slices.IndexFunc(hunk.Rows, func(r row) bool { return r.Added && strings.TrimSpace(r.NewText) != "" })
			if why := slices.IndexFunc(hunk.Rows, func(r row) bool { return r.Added && r.Why != "" }); why >= 0 {
				at = why
			}
			if at >= 0 && len(of) < mostCaused {
				of = append(of, hunk)
				lines.add(v.Files[f].Path, hunk.Rows[at].New, hunk.Rows[at].NewText)
			}
		}
	}
	by, asking, why := lines.origins(ctx, q)
	for i, hunk := range of {
		hunk.Causes = by[i]
	}
	v.Asking, v.NoCauses = asking, why
	if v.Alone != "" && len(v.Files) == 0 {
		return v, notFound("The two snapshots do not differ in "+v.Alone+".", "All differences are on the page without a file.")
	}
	return v, nil
}

// file returns a file side by side.
func (v diffView) file(n int, f difference.FileReport) fileView {
	most := mostRows
	if v.Alone != "" {
		most = mostRowsAlone
	}
	out := fileView{FileReport: f, ID: fmt.Sprintf("file-%d", n+1)}
	d := v.Report.Decides
	out.Decides = d != nil && d.File == f.Path
	out.Hunks, out.Cut = hunks(f.Diff, most)
	for i := range out.Hunks {
		h := &out.Hunks[i]
		h.Objects = objectsIn(*h, v.Objects)
		for r := range h.Rows {
			row := &h.Rows[r]
			if out.Decides && (d.Side == "a" && row.Removed && row.Old == d.Line || d.Side == "b" && row.Added && row.New == d.Line) {
				row.Why = map[string]string{"reload": "this line takes the reload", "runtime": "this line is changed at run time"}[v.Report.Verdict]
			}
		}
	}
	out.Open = v.Alone != "" || out.Decides || n < 3
	return out
}

// hunks reads a unified diff into at most this many rows, side by side. It returns how many rows are left out.
func hunks(text string, most int) (out []hunk, left int) {
	rows, x, y, end := 0, 0, 0, 1
	var removed, added []row
	flush := func() {
		for i := range max(len(removed), len(added)) {
			if rows == most {
				left++
				continue
			}
			var r row
			if i < len(removed) {
				r.Old, r.OldText, r.Removed = removed[i].Old, removed[i].OldText, true
			}
			if i < len(added) {
				r.New, r.NewText, r.Added = added[i].New, added[i].NewText, true
			}
			rows++
			last := &out[len(out)-1]
			last.Rows = append(last.Rows, r)
		}
		removed, added = nil, nil
	}
	header := 2
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case header > 0:
			header--
		case strings.HasPrefix(line, "@@ "):
			if len(out) > 0 {
				flush()
			}
			var n, m int
			_, _ = fmt.Sscanf(line, "@@ -%d,%d +%d,%d @@", &x, &n, &y, &m) // package difference wrote the line
			out = append(out, hunk{Skipped: max(0, x-end)})
			end = x + n
		case len(out) == 0 || line == "":
		case line[0] == '-':
			removed = append(removed, row{Old: x, OldText: line[1:]})
			x++
		case line[0] == '+':
			added = append(added, row{New: y, NewText: line[1:]})
			y++
		case line[0] == ' ':
			flush()
			if rows < most {
				last := &out[len(out)-1]
				last.Rows = append(last.Rows, row{Old: x, New: y, OldText: line[1:], NewText: line[1:]})
				rows++
			} else {
				left++
			}
			x, y = x+1, y+1
		}
	}
	if len(out) > 0 {
		flush()
	}
	return slices.DeleteFunc(out, func(h hunk) bool { return len(h.Rows) == 0 }), left
}

// objectsIn returns the objects that a hunk names. If only one object changed, it caused every hunk.
func objectsIn(h hunk, all []string) []string {
	if len(all) == 1 {
		return all
	}
	var text strings.Builder
	for _, r := range h.Rows {
		if r.Removed || r.Added {
			text.WriteString(r.OldText + "\n" + r.NewText + "\n")
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(object string) bool { return !names(text.String(), object) })
}

// names reports whether a text contains an object's name, as NAMESPACE/NAME or as the names of backends have it.
func names(text, object string) bool {
	_, name, ok := strings.Cut(object, " ")
	if !ok {
		name = object
	}
	name, _, _ = strings.Cut(name, " ")
	return strings.Contains(text, name) || strings.Contains(text, strings.ReplaceAll(name, "/", "_"))
}
