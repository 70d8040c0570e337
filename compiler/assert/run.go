// Package assert tests configurations and templates: it compiles what a CompilerTest names, and reports
// which of its assertions fail, and where they stand.
//
// An assertion is about the text of a file or a section, about the server that answers a request, or about the compiler's
// diagnostics. For requests, the test starts its own HAProxy (package sandbox).
//
// # Decisions
//
// A test also fails for an error that it does not expect. Objects that are left out change no assertion about others, so
// nobody would notice them. Tests are found by the content of a file, not by its name, so that a wrong name hides none.
package assert

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/sandbox"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// Runner runs tests.
type Runner struct {
	Check *validate.Checker
	// Update makes equalsFile write the files instead of comparing them.
	Update bool
	Now    time.Time // of the compile
}

// Run runs a test. An error means that the test has no outcome.
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
	sandbox  *sandbox.Sandbox // once it is needed
	expected map[diag.Diagnostic]bool
	failures []Failure
}

func (x *execution) close() {
	if x.sandbox != nil {
		x.sandbox.Close()
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

// fail records that an assertion fails.
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

// compile compiles what the test names, and the objects beside it.
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

// try returns why an assertion fails, or nil.
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
	path := x.test.path(a.EqualsFile)
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

// reported returns why the expected diagnostic is missing, or nil.
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

// routed asks HAProxy, and returns why the answer is not the right one, or nil.
func (x *execution) routed(ctx context.Context, a Assertion) (*fault, error) {
	if x.sandbox == nil {
		var err error
		if x.sandbox, err = sandbox.Start(ctx, x.runner.Check, x.result.Draft, x.secrets); err != nil {
			return nil, err
		}
	}
	asked := sandbox.Request{TLS: a.Request.Scheme == "https", Port: a.Request.Port, Method: a.Request.Method, Host: a.Request.Host, Path: a.Request.Path, Headers: a.Request.Headers}
	if asked.Port == 0 {
		asked.Port = x.config.HTTP.Port
		if asked.TLS {
			asked.Port = x.config.HTTPS.Port
		}
	}
	if a.Request.From != "" {
		asked.From = netip.MustParseAddr(a.Request.From) // it was checked
	}
	answer, err := x.sandbox.Ask(ctx, asked)
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

// Outcome is the result of a test.
type Outcome struct {
	Name       string    `json:"name"`
	File       string    `json:"file"`
	Line       int       `json:"line"`
	Column     int       `json:"column"`
	Passed     bool      `json:"passed"`
	Assertions int       `json:"assertions"`
	Failures   []Failure `json:"failures,omitempty"`
}

// Failure is an assertion that fails, or an error that the test does not expect.
type Failure struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Object  string `json:"object,omitempty"`
	Message string `json:"message"`
	Detail  string `json:"detail,omitempty"`
	Hint    string `json:"hint,omitempty"`
	// Assertion says that this is an assertion that fails.
	Assertion bool `json:"assertion"`
}

// failure is a diagnostic as a failure.
func failure(d diag.Diagnostic) Failure {
	return Failure{
		File: d.Position.File, Line: d.Position.Line, Column: d.Position.Column,
		Object: d.Object.String(), Message: d.Message, Hint: d.Hint,
	}
}

// String returns the failure for people: as a diagnostic, with more below it.
func (f Failure) String() string {
	parts := []string{}
	for _, part := range []string{diag.Position{File: f.File, Line: f.Line, Column: f.Column}.String(), f.Object, f.Message} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	text := strings.Join(parts, ": ")
	for line := range strings.Lines(f.Detail) {
		text += "\n\t" + strings.TrimRight(line, "\n")
	}
	if f.Hint != "" {
		text += "\n\thint: " + f.Hint
	}
	return text
}

// Print prints a line for the test, and its failures.
func (o Outcome) Print(w io.Writer) error {
	of := fmt.Sprintf("%s:%d:%d: %s %s", o.File, o.Line, o.Column, Kind, o.Name)
	if o.Passed {
		_, err := fmt.Fprintf(w, "ok    %s: %s\n", of, count(o.Assertions))
		return err
	}
	failed, errors := 0, 0
	for _, f := range o.Failures {
		if f.Assertion {
			failed++
		} else {
			errors++
		}
	}
	text := fmt.Sprintf("%d of %s failed", failed, count(o.Assertions))
	if errors > 0 {
		text += fmt.Sprintf(", and the compiler reports %d that no assertion expects", errors)
	}
	_, err := fmt.Fprintf(w, "FAIL  %s: %s\n", of, text)
	for _, f := range o.Failures {
		_, err = fmt.Fprintln(w, f)
	}
	return err
}

func count(n int) string {
	if n == 1 {
		return "1 assertion"
	}
	return fmt.Sprint(n, " assertions")
}

// String describes the request in few words.
func (q Request) String() string {
	port := ""
	if q.Port != 0 {
		port = fmt.Sprint(":", q.Port)
	}
	return fmt.Sprintf("%s %s://%s%s%s", or(q.Method, "GET"), or(q.Scheme, "http"), q.Host, port, or(q.Path, "/"))
}

func or(s, unset string) string {
	if s == "" {
		return unset
	}
	return s
}

// met reports whether an answer is the expected one.
func (r Route) met(a sandbox.Answer) bool {
	server := sandbox.Server{}
	if a.Server != nil {
		server = *a.Server
	}
	return (r.Backend == "" || r.Backend == server.Backend) &&
		(r.Service == "" || r.Service == server.Service || strings.HasPrefix(server.Service, r.Service+":")) &&
		(r.Status == 0 || r.Status == a.Status) &&
		(r.Redirect == "" || r.Redirect == a.Location)
}

// String describes the expected answer in few words.
func (r Route) String() string {
	var parts []string
	for _, p := range [][2]string{{"backend ", r.Backend}, {"Service ", r.Service}, {"redirect to ", r.Redirect}} {
		if p[1] != "" {
			parts = append(parts, p[0]+p[1])
		}
	}
	if r.Status != 0 {
		parts = append(parts, fmt.Sprint("status ", r.Status))
	}
	return strings.Join(parts, ", ")
}

// describe says who answered.
func describe(a sandbox.Answer) string {
	got := Route{Status: a.Status, Redirect: a.Location}
	if a.Server == nil {
		return "HAProxy itself, " + got.String()
	}
	got.Backend, got.Service = a.Server.Backend, a.Server.Service
	return got.String()
}
