package ui

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots/request"
)

// Question is a request, for who can tell which objects wrote the lines that answer it.
type Question struct {
	Method, URL string
	Headers     []string // as NAME=VALUE
	Client      netip.Addr
}

// Wrote is a line with the objects and fields that it came from.
type Wrote struct {
	request.Line
	Origins []Origin `json:"origins"`
}

// Origin is an object, and its field that a line came from.
type Origin struct {
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	Field      string `json:"field,omitempty"`
	File       string `json:"file,omitempty"`
	LineNumber int    `json:"line,omitempty"`
}

// Object names it as people do.
func (o Origin) Object() string {
	return leftOut{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}.Object()
}

// Place is where it stands in a file, "" for an object of a cluster.
func (o Origin) Place() string { return placeOf(o.File, o.LineNumber) }

// said is what was answered to a question.
type said struct {
	wrote []Wrote
	err   error
}

// Objects are compiled for an answer, which may take long for many. They change.
const (
	originsAge     = 30 * time.Second
	originsTimeout = 2 * time.Minute
)

// asking is a question as a key.
type asking struct {
	method, url, headers string
	client               netip.Addr
}

func newOrigins(ctx context.Context, ask func(context.Context, Question) ([]Wrote, error), changed func()) *inquiries[asking, said] {
	if ask == nil {
		return nil
	}
	return newInquiries(ctx, changed, originsAge, originsTimeout, 0, func(ctx context.Context, key asking) said {
		f := askForm{Headers: key.headers}
		wrote, err := ask(ctx, Question{key.method, key.url, f.headers(), key.client})
		return said{wrote, err}
	})
}

// addOrigins says which objects wrote the lines of an answer. Only lines that the objects make now as the
// snapshot has them are of these objects.
func (a *answered) addOrigins(ctx context.Context, q query, f askForm, r request.Request) {
	known, ok := q.origins.of(ctx, asking{r.Method, f.Scheme + "://" + f.Host + r.Target, f.Headers, r.Client})
	switch {
	case q.origins == nil:
	case !ok:
		a.NoOrigins = noOrigins(true, "")
	case known.err != nil:
		a.NoOrigins = noOrigins(false, report.FirstLine(known.err.Error(), report.LongestMessage))
	default:
		a.Wrote = slices.DeleteFunc(slices.Clone(known.wrote), func(w Wrote) bool { return len(w.Origins) == 0 })
	}
}

// noOrigins says why nobody tells yet, or at all, which objects wrote lines, "" where they are told.
func noOrigins(asking bool, why string) string {
	switch {
	case asking:
		return "Which objects wrote the lines is being asked."
	case why != "":
		return "Which objects wrote the lines cannot be told: " + why
	}
	return ""
}

// OriginsOf are the objects that wrote a line, as far as that is known.
func (a *answered) OriginsOf(l request.Line) []Origin {
	for _, w := range a.Wrote {
		if w.File == l.File && w.Text == l.Text {
			return w.Origins
		}
	}
	return nil
}

// newLines returns what asks who wrote lines. A key is their places, each on a line.
func newLines(ctx context.Context, ask func(context.Context, []string) ([]Wrote, error), changed func()) *inquiries[string, said] {
	if ask == nil {
		return nil
	}
	return newInquiries(ctx, changed, originsAge, originsTimeout, 0, func(ctx context.Context, key string) said {
		places := strings.Split(key, "\n")
		wrote, err := ask(ctx, places)
		if err == nil && len(wrote) != len(places) {
			err = fmt.Errorf("%d lines were explained of %d", len(wrote), len(places))
		}
		return said{wrote, err}
	})
}

// written are lines of a snapshot, and who wrote them as far as that is known.
type written struct {
	places []string
	texts  []string
}

func (w *written) add(file string, line int, text string) {
	w.places, w.texts = append(w.places, placeOf(file, line)), append(w.texts, text)
}

// origins returns the objects and fields that wrote the lines, in their order. Only lines that the objects make
// now are of these objects; others have none. Asking is set while that is being asked, and why says why it cannot
// be told.
func (w *written) origins(ctx context.Context, q query) (by [][]Origin, asking bool, why string) {
	by = make([][]Origin, len(w.places))
	if q.lines == nil || len(w.places) == 0 {
		return by, false, ""
	}
	known, ok := q.lines.of(ctx, strings.Join(w.places, "\n"))
	switch {
	case !ok:
		return by, true, ""
	case known.err != nil:
		return by, false, report.FirstLine(known.err.Error(), report.LongestMessage)
	}
	for i, one := range known.wrote {
		if strings.TrimSpace(one.Text) == strings.TrimSpace(w.texts[i]) {
			by[i] = one.Origins
		}
	}
	return by, false, ""
}

// mostCaused is how many hunks of a difference are led back to fields.
const mostCaused = 100

// addCauses says which objects and fields wrote the lines that came. What went was of objects that are other now.
func (v *diffView) addCauses(ctx context.Context, q query) {
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
}
