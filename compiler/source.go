package compiler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/explain"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots/difference"
	"github.com/hapsnap/hapsnap/templates"
)

// Source says what is compiled.
type Source struct {
	Objects   Objects
	Templates string // a directory that overlays the shipped templates, or ""
	Config    config.Config
	// Overlay are the templates of that directory as they were read, see [Source.ReadTemplates]. If it is nil, each compile
	// reads them.
	Overlay *render.Templates

	// Stages is called at the beginning of each stage. It may be nil.
	Stages Stages

	memories Memories
	crashes  *crashes // objects for which earlier compiles panicked, or nil
	awaited  *awaited // nil keeps nothing

	unpublished bool
}

// Remembering returns a source whose compiles remember what they make, so that the next one makes only what differs.
// Copies of the source share these memories, even if they have other objects. So they must compile one after the other.
func (s Source) Remembering() Source {
	s.memories = NewMemories()
	if s.crashes == nil { // a panic does not damage them
		s.crashes = &crashes{}
	}
	s.awaited = &awaited{}
	return s
}

// Pieces returns how many pieces of files the templates wrote since the source began to remember, and how many pieces
// were used again.
func (s Source) Pieces() (written, used int) { return s.memories.Rendered.Counts() }

// Changes returns two channels. They receive a value when a compile may have another result.
func (s Source) Changes(ctx context.Context, log *slog.Logger) (objects, templates <-chan struct{}) {
	if s.Templates != "" {
		templates = manifests.Watch(ctx, []string{s.Templates}, log)
	}
	return s.Objects.Changes(ctx, log), templates
}

// Once reads the objects and compiles them. It waits until all objects are known, which takes a while in a cluster. The
// error is that of reading, or of [Compile]. In both cases the Result has all diagnostics.
func (s Source) Once(ctx context.Context, check *validate.Checker, now time.Time, trigger string) (Result, error) {
	r, _, err := s.WithObjects(ctx, check, now, trigger)
	return r, err
}

// WithObjects is Once, but also returns the objects, including those of other classes.
func (s Source) WithObjects(ctx context.Context, check *validate.Checker, now time.Time, trigger string) (Result, inputs.Inputs, error) {
	r, in, err := s.Attempt(ctx, check, now, trigger)
	if !errors.Is(err, inputs.ErrIncomplete) {
		return r, in, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if s.awaited == nil {
		s.awaited = &awaited{}
	}
	changes := s.Objects.Changes(ctx, slog.New(slog.DiscardHandler))
	for errors.Is(err, inputs.ErrIncomplete) {
		process.Doing(ctx, "waiting for the objects of %s", s.Objects)
		select {
		case <-changes:
		case <-ctx.Done():
			return r, in, errors.Join(ctx.Err(), err)
		}
		r, in, err = s.Attempt(ctx, check, now, trigger)
	}
	return r, in, err
}

// Attempt compiles the objects that are known now. The error wraps [inputs.ErrIncomplete] if not all are known. If
// compiles were incomplete several times in a row, the objects may be older than what is known: then the Result is Stale.
func (s Source) Attempt(ctx context.Context, check *validate.Checker, now time.Time, trigger string) (Result, inputs.Inputs, error) {
	_, end := s.Stages.Begin(ctx, StageRead)
	in, err := s.read(ctx)
	end(err)
	if err != nil {
		return Result{Diagnostics: in.Found, Ignored: in.Ignored}, in.Objects, err
	}
	in.Await = s.Objects.Await
	in.Now, in.Trigger, in.Stages, in.Unpublished = now, trigger, s.Stages, s.unpublished
	in.CompilerVersion, in.HAProxyVersion = process.Version(), check.Version
	r, err := Compile(ctx, in, check)
	known := s.Objects.Complete
	if why, _ := crashOf(err); why.panicked {
		known = s.Objects.Await // nobody knows what else the compile looked for
	}
	if errors.Is(err, inputs.ErrIncomplete) || !known(r.Named) {
		s.awaited.missed()
		return Result{Panicked: r.Panicked}, in.Objects, errNamed
	}
	r.Stale = s.awaited.end()
	return r, in.Objects, err
}

// read reads the objects and the templates into an Input.
func (s Source) read(ctx context.Context) (Input, error) {
	objects, err := s.Objects.Read(ctx, s.Config)
	if err == nil {
		objects = s.awaited.begin(s.Config, objects)
	}
	in := Input{
		Objects: objects.Objects, Found: objects.Found, Ignored: objects.Ignored,
		Config: s.Config, CountryFiles: readCountryFiles(s.Config.Countries.Files),
		Memories: s.memories, Crashes: s.crashes,
	}
	if err != nil {
		return in, err
	}
	files, _, err := s.templates()
	if err != nil {
		return in, err
	}
	parsed, wrong := render.Parse(files)
	if len(wrong) > 0 {
		in.Found = diag.Sort(slices.Concat(wrong, in.Found))
		return in, ErrTemplates
	}
	in.Templates = parsed
	return in, nil
}

// ReadTemplates reads the templates of the directory.
func (s Source) ReadTemplates() (*render.Templates, error) {
	overlay, err := render.Overlay(s.Templates)
	return &overlay, err
}

// templates returns the shipped templates under the overlay, and whether there is any.
func (s Source) templates() (files render.Templates, overlaid bool, err error) {
	files, err = render.Shipped(templates.FS)
	if err != nil || s.Templates == "" {
		return files, false, err
	}
	overlay := s.Overlay
	if overlay == nil {
		overlay, err = s.ReadTemplates()
	}
	return files.Under(*overlay), len(*overlay) > 0, err
}

// Prepare begins to follow the objects that another configuration asks for, too. The error wraps [inputs.ErrIncomplete]
// while not all of them are known; there is a change when they may be. A compile with that configuration ends the
// preparation, as nil does.
func (s Source) Prepare(next *config.Config) error { return prepare(s.Objects, next) }

// prepare is [Source.Prepare]. Objects without a method of that name have all at once.
func prepare(objects Objects, next *config.Config) error {
	if o, ok := objects.(interface{ Prepare(*config.Config) error }); ok {
		return o.Prepare(next)
	}
	return nil
}

// Objects is where the Kubernetes objects of a compile come from: a [Directory] or a cluster. String returns its name
// for people.
type Objects interface {
	fmt.Stringer
	// Read returns the objects that the configuration asks for, as they are now. The error wraps [inputs.ErrIncomplete]
	// while not all of them are known. An error does not mean that there are no objects.
	Read(ctx context.Context, c config.Config) (inputs.Gathered, error)
	// Complete takes the names for which a compile looked. It reports whether Read had all of these objects, or knew
	// that they do not exist. If not, the result of the compile must not be used. [Objects.Changes] sends a value when
	// the objects are known. Read no longer has objects of other names.
	Complete(named routing.Asked) bool
	// Await is Complete for some of the names: Read keeps the objects of others.
	Await(named routing.Asked) bool
	// Changes returns a channel that receives a value when the objects may differ from the last Read: one value for any
	// number of changes since the channel was last read. It stops when ctx is done.
	Changes(ctx context.Context, log *slog.Logger) <-chan struct{}
}

// Directory has the objects in a directory of manifests, or in one file. It only parses what has changed since the last
// time. Other objects keep their values.
type Directory struct {
	path     string
	mu       sync.Mutex // protects the fields below
	reader   manifests.Reader
	gatherer inputs.Gatherer
}

// Files returns the objects in a directory of manifests, or in one file.
func Files(path string) *Directory { return &Directory{path: path} }

// Beside returns the objects in another directory. Texts that this directory has too are not parsed again.
func (d *Directory) Beside(path string) *Directory {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &Directory{path: path, reader: d.reader}
}

// String returns the path.
func (d *Directory) String() string { return d.path }

// Read reads the files. If a file cannot be read, that is an error. A directory without any object is [ErrNothing].
func (d *Directory) Read(_ context.Context, c config.Config) (inputs.Gathered, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	set, err := d.reader.Read(d.path)
	if err != nil {
		return inputs.Gathered{}, err
	}
	return gatherFrom(&d.gatherer, d.path, set, c)
}

// Complete returns true, since files are read as a whole.
func (*Directory) Complete(routing.Asked) bool { return true }

// Await returns true, as Complete does.
func (*Directory) Await(routing.Asked) bool { return true }

// Changes watches the files.
func (d *Directory) Changes(ctx context.Context, log *slog.Logger) <-chan struct{} {
	return manifests.Watch(ctx, []string{d.path}, log)
}

// Given are objects that were read before and do not change.
type Given struct {
	Name string // says where they come from, for people
	Set  manifests.Set
}

// String returns the name.
func (g Given) String() string { return g.Name }

// Read gathers the objects. If there are none, the error is [ErrNothing].
func (g Given) Read(_ context.Context, c config.Config) (inputs.Gathered, error) {
	return gatherFrom(new(inputs.Gatherer), g.Name, g.Set, c)
}

// gatherFrom gathers the objects of a set. The name says where they come from, for people.
func gatherFrom(gatherer *inputs.Gatherer, name string, set manifests.Set, c config.Config) (out inputs.Gathered, err error) {
	var ignored map[manifests.GVK]int
	out.Objects, out.Found, ignored = gatherer.Gather(set, c.Kinds...)
	var parts []string
	for _, kind := range slices.SortedFunc(maps.Keys(ignored), manifests.GVK.Compare) {
		parts = append(parts, fmt.Sprintf("%s: %d", kind, ignored[kind]))
	}
	out.Ignored = strings.Join(parts, ", ")
	if len(set.Objects) == 0 {
		err = fmt.Errorf("%s: %w", name, ErrNothing)
	}
	return out, err
}

// Complete returns true, since there are no other objects.
func (Given) Complete(routing.Asked) bool { return true }

// Await returns true, as Complete does.
func (Given) Await(routing.Asked) bool { return true }

// Changes never sends.
func (Given) Changes(context.Context, *slog.Logger) <-chan struct{} { return nil }

// Side compiles the files like [Source.Once], into one side of a comparison, which has their name. Nothing is
// published, so HAProxy checks only one of several backends with the same text. The same objects are left out as
// otherwise. If there is no EndpointSlice, the endpoints of the side are unknown.
func (s Source) Side(ctx context.Context, check *validate.Checker, now time.Time) (difference.Side, Result, error) {
	s.unpublished = true
	r, objects, err := s.WithObjects(ctx, check, now, "diff")
	if err != nil {
		return difference.Side{}, r, err
	}
	side := difference.Side{Name: s.Objects.String(), Files: r.Draft.Files, Certificates: r.Draft.Certificates, Recipients: r.Draft.Recipients}
	if s.Config.Endpoints != config.Recorded && len(objects.EndpointSlices) > 0 {
		side.Endpoints, err = endpointsOf(r.Artifact, objects)
	}
	return side, r, err
}

// Explain compiles the files like [Source.Side], and says where lines of the result come from. The error is that of
// Once, or a usage error if none of the lines exists.
func (s Source) Explain(ctx context.Context, check *validate.Checker, now time.Time, places ...explain.Place) ([]explain.Explanation, Result, error) {
	s.unpublished = true
	r, objects, err := s.WithObjects(ctx, check, now, "explain")
	if err != nil {
		return nil, r, err
	}
	out, found := make([]explain.Explanation, 0, len(places)), false
	for _, p := range places {
		e, missing := explain.Explain(p, r.Draft.Files, r.Artifact, objects)
		if missing != nil {
			e = explain.Explanation{File: p.File, Line: p.Line, Note: explain.NoLine, Origins: []explain.Origin{}}
			if err == nil {
				err = missing
			}
		}
		found = found || missing == nil
		out = append(out, e)
	}
	if found {
		err = nil
	}
	return out, r, err
}

// The stages of a compile and of its publication, in order. Translate, render and validate are repeated for each set of
// objects that the compile tries.
const (
	StageRead      = "read"
	StageTranslate = "translate"
	StageRender    = "render"
	StageValidate  = "validate"
	StageDraft     = "draft"
	StagePublish   = "publish"
)

// StageNames are the names of all stages, in order.
var StageNames = []string{StageRead, StageTranslate, StageRender, StageValidate, StageDraft, StagePublish}

// stageTexts are what people at a terminal read while they wait.
var stageTexts = map[string]string{
	StageRead: "reading the objects", StageTranslate: "translating the objects", StageRender: "rendering the templates",
	StageValidate: "checking with haproxy", StageDraft: "making the snapshot", StagePublish: "publishing to the store",
}

// Stages is called at the beginning of each stage. It returns the context for the stage, and a function to call at the
// end of the stage. No result depends on it. A nil Stages does nothing.
type Stages func(ctx context.Context, name string) (context.Context, func(err error))

// Begin reports the beginning of a stage.
func (s Stages) Begin(ctx context.Context, name string) (context.Context, func(err error)) {
	process.Doing(ctx, "%s", stageTexts[name])
	if s == nil {
		return ctx, func(error) {}
	}
	return s(ctx, name)
}
