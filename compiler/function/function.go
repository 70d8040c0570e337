package function

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"sigs.k8s.io/kustomize/kyaml/fn/framework"
	"sigs.k8s.io/kustomize/kyaml/kio"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

// ErrInvalid means that the results of the list hold an error.
var ErrInvalid = errors.New("the results hold an error")

// errSealed keeps a build from giving other bytes each time under the same name: what
// is unchanged can only be taken from a store.
var errSealed = errors.New("sealed certificates differ with each build")

// carried says why certificates cannot go with what a function gives.
var carried = map[config.CertificateMode]error{
	config.SealedCertificates:    errSealed,
	config.CompanionCertificates: snapshots.ErrNoCompanions,
}

// Function is a run of the function.
type Function struct {
	In  io.Reader // a ResourceList
	Out io.Writer // the same, with a snapshot or with errors
	// Log gets the results as lines, for people.
	Log   io.Writer
	Check *validate.Checker
	Now   time.Time
}

// Run reads a list, and writes it. The error is [ErrInvalid], after the list was
// written, or that of what could not be done.
func (f Function) Run(ctx context.Context) error {
	invalid := false
	compile := func(list *framework.ResourceList) error {
		r := run{function: f, list: list}
		if err := r.run(ctx); err != nil {
			return err
		}
		invalid = r.invalid
		return nil
	}
	source := &kio.ByteReadWriter{Reader: f.In, Writer: f.Out, KeepReaderAnnotations: true}
	if err := framework.Execute(framework.ResourceListProcessorFunc(compile), source); err != nil {
		return err
	}
	if invalid {
		return ErrInvalid
	}
	return nil
}

// run is what happens to one list.
type run struct {
	function Function
	list     *framework.ResourceList
	items    items
	invalid  bool
}

func (r *run) run(ctx context.Context) error {
	s, found := readSettings(r.list.FunctionConfig)
	if r.report(found); r.invalid {
		return nil
	}
	if err := r.judge(ctx, s.config); err != nil || r.invalid {
		return err
	}
	if err := carried[s.config.Certificates.Mode]; err != nil {
		r.report(one(err.Error(), "publish to a store with compiler run or compiler render, or set mode: exact"))
		return nil
	}
	result, err := r.compile(ctx, s)
	r.report(result.Diagnostics)
	switch {
	case errors.Is(err, compiler.ErrNothing), errors.Is(err, compiler.ErrGaveUp):
		r.report(one(err.Error(), ""))
	case err != nil && !errors.Is(err, compiler.ErrTemplates): // of which the diagnostics say more
		return err
	}
	if r.invalid {
		return nil
	}
	return r.add(s, result)
}

// report adds diagnostics to the results.
func (r *run) report(found []diag.Diagnostic) {
	for _, d := range found {
		r.invalid = r.invalid || d.Severity == diag.Error
		r.list.Results = append(r.list.Results, r.items.result(d))
		fmt.Fprintln(r.function.Log, r.items.line(d))
	}
}

// judge reports what HAProxy finds wrong with the configuration alone.
func (r *run) judge(ctx context.Context, c config.Config) error {
	faults, err := r.function.Check.Settings(ctx, c)
	if err == nil {
		r.report(inside(config.Places{}.Locate(faults)))
	}
	return err
}

// compile compiles the items and the manifests.
func (r *run) compile(ctx context.Context, s settings) (compiler.Result, error) {
	found, set, err := readItems(r.list.Items)
	if err != nil {
		return compiler.Result{}, err
	}
	r.items = found
	sets := []manifests.Set{set}
	for _, name := range s.Spec.Manifests {
		more, err := manifests.Read(name)
		if err != nil {
			return compiler.Result{}, err
		}
		sets = append(sets, more)
	}
	source := compiler.Source{
		Objects:   compiler.Given{Name: "the list", Set: manifests.Merge(sets...)},
		Templates: s.Spec.Templates, Config: s.config,
	}
	return source.Once(ctx, r.function.Check, r.function.Now, "fn")
}

// add adds the snapshot to the items. It has no time, so that the same list gives
// the same bytes, and is the first revision until a store takes it.
func (r *run) add(s settings, result compiler.Result) error {
	d := result.Draft
	d.Time = time.Time{}
	d.Subject = compiler.Subject(snapshots.Snapshot{}, result)
	made, err := configMap(s.Metadata.Namespace, s.Metadata.Name, d.Seal(1, snapshots.ID{}))
	if errors.Is(err, errTooLarge) || errors.Is(err, errBadName) {
		r.report(one(err.Error(), process.Hint(err)))
		return nil
	}
	if err != nil {
		return fmt.Errorf("write the snapshot: %w", err)
	}
	r.list.Items = withSnapshot(r.list.Items, made)
	return nil
}
