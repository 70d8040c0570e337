package assert

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/trial"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// Runner runs tests.
type Runner struct {
	Check *validate.Checker
	// Update has equalsFile write the files instead of comparing them.
	Update bool
	Now    time.Time // of the compile
}

// Run runs a test. The error means that nothing can be said of it.
func (r Runner) Run(ctx context.Context, t Test) (Outcome, error) {
	x := execution{runner: r, test: t, expected: map[diag.Diagnostic]bool{}}
	defer x.close()
	err := x.run(ctx)
	at := t.position("metadata", "name")
	return Outcome{
		Name: t.Name, File: at.File, Line: at.Line, Column: at.Column,
		Passed: len(x.failures) == 0, Assertions: len(t.Spec.Assertions), Failures: x.failures,
	}, err
}

// execution is one run of a test.
type execution struct {
	runner   Runner
	test     Test
	config   config.Config
	result   compiler.Result
	secrets  []corev1.Secret
	compiled bool
	trial    *trial.Trial // once it is needed
	expected map[diag.Diagnostic]bool
	failures []Failure
}

func (x *execution) close() {
	if x.trial != nil {
		x.trial.Close()
	}
}

func (x *execution) run(ctx context.Context) error {
	if ok, err := x.configure(ctx); err != nil || !ok {
		return err
	}
	if err := x.compile(ctx); err != nil {
		return err
	}
	for i, a := range x.test.Spec.Assertions {
		f, err := x.try(ctx, a)
		if err != nil {
			return fmt.Errorf("%s: %w", x.test.position("spec", "assertions", i), err)
		}
		if f != nil {
			x.fail(a, *f, "spec", "assertions", i, a.made()[0])
		}
	}
	for _, d := range x.result.Diagnostics {
		if d.Severity == diag.Error && !x.expected[d] {
			x.failures = append(x.failures, failure(d))
		}
	}
	return nil
}

// fail notes that an assertion does not hold.
func (x *execution) fail(a Assertion, f fault, path ...any) {
	message := f.message
	if a.Name != "" {
		message = a.Name + ": " + message
	}
	failed := failure(diag.Diagnostic{Position: x.test.position(path...), Object: x.test.object(), Message: message})
	failed.Detail, failed.Assertion = f.detail, true
	x.failures = append(x.failures, failed)
}

// configure reads the configuration, and reports whether it can be used.
func (x *execution) configure(ctx context.Context) (bool, error) {
	x.config = config.Default()
	if x.test.Spec.Config == "" {
		return true, nil
	}
	read, places, found, err := config.Read(x.test.path(x.test.Spec.Config))
	if err != nil {
		return false, err
	}
	if len(found) == 0 {
		faults, err := x.runner.Check.Settings(ctx, read)
		if err != nil {
			return false, err
		}
		found = places.Locate(faults)
	}
	x.config = read
	for _, d := range found {
		x.failures = append(x.failures, failure(d))
	}
	return len(found) == 0, nil
}

// compile compiles what the test names, and what stands beside it.
func (x *execution) compile(ctx context.Context) error {
	sets := []manifests.Set{x.test.beside}
	for _, name := range x.test.Spec.Manifests {
		set, err := manifests.Read(x.test.path(name))
		if err != nil {
			return err
		}
		sets = append(sets, set)
	}
	given := compiler.Given{Name: x.test.File, Set: manifests.Merge(sets...)}
	source := compiler.Source{Objects: given, Config: x.config}
	if x.test.Spec.Templates != "" {
		source.Templates = x.test.path(x.test.Spec.Templates)
	}
	var err error
	x.result, err = source.Once(ctx, x.runner.Check, x.runner.Now, "test")
	switch {
	case err == nil:
		x.compiled = true
		gathered, err := given.Read(ctx, x.config)
		x.secrets = inputs.Values(gathered.Objects.Secrets)
		return err
	case errors.Is(err, compiler.ErrNothing), errors.Is(err, compiler.ErrGaveUp):
		x.failures = append(x.failures, failure(diag.Diagnostic{Position: x.test.position("spec"), Object: x.test.object(), Message: err.Error()}))
	case !errors.Is(err, compiler.ErrTemplates): // of which the diagnostics say more
		return err
	}
	return nil
}

// try returns why an assertion does not hold, or nil.
func (x *execution) try(ctx context.Context, a Assertion) (*fault, error) {
	switch {
	case a.Fails != nil:
		return x.reported(*a.Fails, diag.Error), nil
	case a.Warns != nil:
		return x.reported(*a.Warns, diag.Warning), nil
	case !x.compiled:
		return &fault{message: "nothing was compiled"}, nil
	case a.RoutesTo != nil:
		return x.routed(ctx, a)
	}
	in := or(a.In, "haproxy.cfg")
	text, missing := textOf(x.result.Draft.Files, a.In)
	switch {
	case missing != nil:
		return missing, nil
	case a.Contains != nil:
		return contains(text, *a.Contains, in), nil
	case a.NotContains != nil:
		return notContains(text, *a.NotContains, in), nil
	case a.Equals != nil:
		return equals(text, *a.Equals, in), nil
	}
	return x.equalsFile(text, in, x.test.path(a.EqualsFile))
}

// equalsFile compares a text with a file, or makes it the file's.
func (x *execution) equalsFile(text, in, path string) (*fault, error) {
	want, err := os.ReadFile(path)
	switch {
	case x.runner.Update && (err == nil || errors.Is(err, os.ErrNotExist)):
		if tidied(text) == tidied(string(want)) && err == nil {
			return nil, nil
		}
		return nil, os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // it is a file of the user's, to be kept with others
	case errors.Is(err, os.ErrNotExist):
		return &fault{message: "there is no file " + path, detail: "compiler test --update writes it"}, nil
	case err != nil:
		return nil, err
	}
	return equals(text, string(want), in+" (golden file "+path+")"), nil
}

// reported says why what should have been reported was not, or nil.
func (x *execution) reported(want Finding, severity diag.Severity) *fault {
	var others []string
	met := false
	for _, d := range x.result.Diagnostics {
		if d.Severity != severity {
			continue
		}
		others = append(others, d.String())
		if (want.Object == "" || want.Object == d.Object.String()) && strings.Contains(d.Message, want.Message) {
			met, x.expected[d] = true, true
		}
	}
	if met {
		return nil
	}
	message := "no " + severity.String() + " is reported"
	if want.Object != "" {
		message += " on " + want.Object
	}
	if want.Message != "" {
		message += fmt.Sprintf(" that says %q", want.Message)
	}
	return &fault{message, strings.Join(others, "\n")}
}

// routed asks HAProxy, and says why the answer is not the right one, or nil.
func (x *execution) routed(ctx context.Context, a Assertion) (*fault, error) {
	if x.trial == nil {
		var err error
		if x.trial, err = trial.Start(ctx, x.runner.Check, x.result.Draft, x.secrets); err != nil {
			return nil, err
		}
	}
	answer, err := x.trial.Ask(ctx, a.Request.asked(x.config))
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return &fault{message: fmt.Sprintf("%s: %v", a.Request, err), detail: "want " + a.RoutesTo.String()}, nil
	case !a.RoutesTo.met(answer):
		return &fault{message: fmt.Sprintf("%s: answered by %s", a.Request, describe(answer)), detail: "want " + a.RoutesTo.String()}, nil
	}
	return nil, nil
}
