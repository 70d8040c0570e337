package ui

import (
	"context"
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
		a.NoOrigins = "Which objects wrote the lines is being asked."
	case known.err != nil:
		a.NoOrigins = "Which objects wrote the lines cannot be told: " + report.FirstLine(known.err.Error(), report.LongestMessage)
	default:
		a.Wrote = slices.DeleteFunc(slices.Clone(known.wrote), func(w Wrote) bool { return len(w.Origins) == 0 })
	}
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

// place is a line of a file.
type place struct {
	file string
	line int
}

func newLines(ctx context.Context, ask func(context.Context, string, int) (Wrote, error), changed func()) *inquiries[place, said] {
	if ask == nil {
		return nil
	}
	return newInquiries(ctx, changed, originsAge, originsTimeout, 0, func(ctx context.Context, key place) said {
		wrote, err := ask(ctx, key.file, key.line)
		return said{[]Wrote{wrote}, err}
	})
}

// mostCaused is how many hunks of a difference are led back to fields: each takes a compile of the objects.
const mostCaused = 8

// addCauses says which objects and fields wrote the lines that came. Only lines that the objects make now are of
// these objects; what went was of objects that are other now.
func (v *diffView) addCauses(ctx context.Context, q query) {
	if q.lines == nil {
		return
	}
	asked, once := 0, context.WithValue(ctx, nowait{}, true) // the first is waited for
	for f := range v.Files {
		for h := range v.Files[f].Hunks {
			hunk := &v.Files[f].Hunks[h]
			at := slices.IndexFunc(hunk.Rows, func(r row) bool { return r.Added && strings.TrimSpace(r.NewText) != "" })
			if why := slices.IndexFunc(hunk.Rows, func(r row) bool { return r.Added && r.Why != "" }); why >= 0 {
				at = why
			}
			if at < 0 {
				continue
			}
			if asked++; asked > mostCaused {
				return
			}
			known, ok := q.lines.of(ctx, place{v.Files[f].Path, hunk.Rows[at].New})
			switch {
			case !ok:
				v.Asking = true
				ctx = once //nolint:fatcontext // it is the same one each time
			case known.err != nil:
				v.NoCauses = report.FirstLine(known.err.Error(), report.LongestMessage)
			case strings.TrimSpace(known.wrote[0].Text) == strings.TrimSpace(hunk.Rows[at].NewText):
				hunk.Causes = known.wrote[0].Origins
			}
		}
	}
}
