package ui

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/difference"
)

// The bounds of a page with a difference: of rows in a file that is shown among others, and by itself.
const mostRows, mostRowsAlone = 400, 4000

// diffReport is an example for the description of the JSON.
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
	Unknown    bool   // which objects changed is not known
	Successive bool   // the second follows the first
	Asking     bool   // which fields wrote the lines is being asked
	NoCauses   string // why that cannot be told
}

// fileView is a file side by side.
type fileView struct {
	difference.FileReport
	ID      string
	Hunks   []hunk
	Open    bool
	Decides bool
	Cut     int // rows that are left out
}

// hunk is a piece of a file, with the objects that it comes from as far as they are known.
type hunk struct {
	Skipped int // lines between it and the hunk before
	Rows    []row
	Objects []string
	Causes  []Origin // that wrote the lines which came, where somebody compiles the objects
}

// row is a line of both sides. A number is 0 where there is none.
type row struct {
	Old, New         int
	OldText, NewText string
	Removed, Added   bool
	Why              string // the line decides: "" for all others
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
	v.addCauses(ctx, q)
	if v.Alone != "" && len(v.Files) == 0 {
		return v, notFound("The two snapshots do not differ in "+v.Alone+".", "All differences are on the page without a file.")
	}
	return v, nil
}

// file lays a file out side by side.
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

// hunks reads a unified diff into rows side by side, at most this many, and says how many are left out.
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
			_, _ = fmt.Sscanf(line, "@@ -%d,%d +%d,%d @@", &x, &n, &y, &m) // it was written so
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

// objectsIn returns the objects that a hunk names. Where only one object changed, everything comes from it.
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

// names reports whether a text has an object's name, as NAMESPACE/NAME or as backends have it.
func names(text, object string) bool {
	_, name, ok := strings.Cut(object, " ")
	if !ok {
		name = object
	}
	name, _, _ = strings.Cut(name, " ")
	return strings.Contains(text, name) || strings.Contains(text, strings.ReplaceAll(name, "/", "_"))
}
