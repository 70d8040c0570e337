package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
)

// leftOutTab is the tab of the objects that are not served as they ask for it.
func leftOutTab() tab {
	return tab{
		path: "/left-out", title: "Left out", count: leftOutCount,
		pages: []page{{path: "/left-out", title: titled("Left out"), live: true, data: leftOutData, parts: []part{{"left-out", "wide"}}}},
		apis: []api{{
			path: "left-out", summary: "Objects, or parts of them, that are not served as they ask for it", example: leftOutPage{},
			params: []param{{"snapshot", snapshotAbout}}, data: leftOutData,
		}},
	}
}

const snapshotAbout = "a snapshot such as r12, head for the newest, or a time such as yesterday 14:03; the one that runs if empty"

// leftOut is an object that is left out, wholly or in part.
type leftOut struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	Field     string    `json:"field,omitempty"`
	Place     string    `json:"place,omitempty"` // a file and a line
	Reason    string    `json:"reason"`
	Hint      string    `json:"hint,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	// From is the oldest in the unbroken row of snapshots that leave the object out. It is zero if no snapshot does.
	From snapshots.ID `json:"from,omitzero"`
	// Instead says what is served instead.
	Instead string `json:"instead"`
}

// Object is the kind and name of the object.
func (l leftOut) Object() string {
	if l.Kind == "" {
		return ""
	}
	return l.Kind + " " + strings.TrimPrefix(l.Namespace+"/"+l.Name, "/")
}

// leftOutPage is what the tab shows.
type leftOutPage struct {
	Of      chosen    `json:"of"`
	Objects []leftOut `json:"objects"`
	// Compiler says why the findings of the compiler are missing or incomplete. It is "" if all are there.
	Compiler string `json:"compiler,omitempty"`
	Snapshot string `json:"-"` // as the query has it
}

func leftOutData(ctx context.Context, q query) (any, error) {
	of, m, err := chooseManifest(ctx, q)
	if err != nil {
		return nil, err
	}
	said, known, failed := q.compiler.status(ctx)
	p := leftOutPage{Of: of, Snapshot: q.values.Get("snapshot"), Objects: q.leftOut(m, of)}
	switch {
	case !of.Now:
		p.Compiler = "Of a snapshot that does not run now, only the objects and their first faults are known."
	case failed != nil:
		p.Compiler = "The compiler cannot be asked for fields and hints: " + report.FirstLine(failed.Error(), report.LongestMessage)
	case said.Withheld > 0 && len(said.Found) > 0:
		p.Compiler = fmt.Sprintf("The compiler's report has no room for %s more; of those the snapshot says less.", plural(said.Withheld, "finding", "findings"))
	case said.Withheld > 0:
		p.Compiler = fmt.Sprintf("The compiler tells %s to clients on its own host, and in the Secret of its --report-secret; those below are of the snapshot.", plural(said.Withheld, "finding", "findings"))
	case !known:
		p.Compiler = "No compiler is asked, which knows the fields, since when, and what to do. Start with --ui-compiler to ask it."
	}
	q.sinceWhen(ctx, p.Objects, of.ID)
	return p, nil
}

// leftOut returns what a snapshot leaves out: the findings of the compiler if the snapshot runs now, and the entries
// of the manifest.
func (q query) leftOut(m snapshots.Manifest, of chosen) []leftOut {
	out := []leftOut{}
	told := map[string]bool{}
	if of.Now {
		report, _, _ := q.compiler.status(withoutWaiting())
		for _, f := range report.Found {
			l := leftOut{Kind: f.Kind, Namespace: f.Namespace, Name: f.Name, Field: f.Field, Reason: f.Reason, Hint: f.Hint, Since: f.Since, Place: placeOf(f.File, f.Line), Instead: insteadOf(f.Reason)}
			told[l.Object()] = true
			out = append(out, l)
		}
	}
	for _, x := range m.Spec.Quarantined {
		l := leftOut{Kind: x.Kind, Namespace: x.Namespace, Name: x.Name, Reason: x.Reason, Instead: insteadOf(x.Reason)}
		if !told[l.Object()] {
			out = append(out, l)
		}
	}
	slices.SortStableFunc(out, func(a, b leftOut) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// insteadOf says what is served in place of the object.
func insteadOf(reason string) string {
	if _, by, ok := strings.Cut(reason, "it was taken by "); ok {
		by, _, _ = strings.Cut(by, ",")
		return "requests go to " + by
	}
	return "nothing of what the reason is about; the rest of the object is served"
}

// mostLookedBack is how many snapshots are searched for the first one that leaves an object out.
const mostLookedBack = 200

// sinceWhen fills in From, and corrects Since if the snapshot is older.
func (q query) sinceWhen(ctx context.Context, objects []leftOut, of snapshots.ID) {
	open := map[string][]int{} // left out of every snapshot so far
	for i, o := range objects {
		open[o.Object()] = append(open[o.Object()], i)
	}
	ids := q.archive.listing(ctx).view.IDs
	at := slices.Index(ids, of)
	for n := at; n >= 0 && n > at-mostLookedBack && len(open) > 0; n-- {
		m, err := q.archive.manifest(ctx, ids[n])
		if err != nil {
			return
		}
		still := map[string][]int{}
		for _, x := range m.Spec.Quarantined {
			name := leftOut{Kind: x.Kind, Namespace: x.Namespace, Name: x.Name}.Object()
			for _, i := range open[name] {
				objects[i].From = ids[n]
				if t := m.Provenance.Time; !t.IsZero() && (objects[i].Since.IsZero() || t.Before(objects[i].Since)) {
					objects[i].Since = t
				}
			}
			if all := open[name]; all != nil {
				still[name] = all
			}
		}
		open = still
	}
}

// leftOutCount is how many objects are left out of what runs. It takes what is in memory.
func leftOutCount(q query) int {
	ctx := withoutWaiting()
	l := q.archive.listing(ctx)
	runs := q.runs(l)
	if runs.IsZero() {
		return 0
	}
	m, err := q.archive.manifestOf(ctx, runs)
	if err != nil { // it is read for the next time
		return 0
	}
	objects := map[string]bool{}
	for _, o := range q.leftOut(m, chosen{Now: true}) {
		objects[o.Object()] = true
	}
	return len(objects)
}

// compilerAge is how long an answer of the compiler is kept. compilerTimeout bounds a question. firstAnswer is how
// long a page waits for the first answer.
const (
	compilerAge     = 10 * time.Second
	compilerTimeout = 10 * time.Second
	firstAnswer     = 2 * time.Second
)

// finding is an entry of the compiler's /status.
type finding struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	File      string    `json:"file"`
	Line      int       `json:"line"`
	Field     string    `json:"field"`
	Reason    string    `json:"reason"`
	Hint      string    `json:"hint"`
	Since     time.Time `json:"since"`
}

// compiled is the part of the compiler's status that the page shows.
type compiled struct {
	Head struct {
		Snapshot snapshots.ID `json:"snapshot"`
	} `json:"head"`
	Found    []finding `json:"found"`
	Withheld int       `json:"withheld"` // findings that the compiler does not tell this client
}

// compiler asks a compiler for its status. It asks one question at a time for all viewers. Only pages before the
// first answer wait.
type compiler struct {
	ask     func(ctx context.Context) (json.RawMessage, error)
	ctx     context.Context //nolint:containedctx // of the server: a question goes on when its viewer has left
	changed func()

	mu     sync.Mutex
	last   compiled
	err    error         // of the last question
	asked  time.Time     // when it ended
	asking chan struct{} // closed when the current question ends; nil if there is none
}

func newCompiler(ctx context.Context, ask func(context.Context) (json.RawMessage, error), changed func()) *compiler {
	return &compiler{ask: ask, ctx: ctx, changed: changed}
}

// status returns the last answer of the compiler. Known is false if there was no answer, or the last question failed.
func (c *compiler) status(ctx context.Context) (said compiled, known bool, err error) {
	if c == nil || c.ask == nil {
		return compiled{}, false, nil
	}
	c.mu.Lock()
	if c.asking == nil && time.Since(c.asked) > compilerAge {
		c.asking = make(chan struct{})
		go c.once(c.asking)
	}
	asking, first := c.asking, c.asked.IsZero()
	c.mu.Unlock()
	if first && ctx.Value(nowait{}) == nil {
		select {
		case <-asking:
		case <-ctx.Done():
		case <-time.After(firstAnswer):
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last, !c.asked.IsZero() && c.err == nil, c.err
}

func (c *compiler) once(done chan struct{}) {
	ctx, cancel := context.WithTimeout(c.ctx, compilerTimeout)
	defer cancel()
	text, err := c.ask(ctx)
	var said compiled
	if err == nil {
		if err = json.Unmarshal(text, &said); err != nil {
			err = fmt.Errorf("read the status of the compiler: %w", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	other := (err == nil) != (c.err == nil) || c.asked.IsZero() || len(said.Found) != len(c.last.Found) || said.Head != c.last.Head
	c.err, c.asked, c.asking = err, time.Now(), nil
	if err == nil {
		c.last = said
	}
	close(done)
	if other {
		c.changed()
	}
}
