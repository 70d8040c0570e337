package assert

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Kind is the KRM kind of a test; its apiVersion is that of snapshots.
const Kind = "CompilerTest"

// Test is a CompilerTest. Paths in it are relative to its file.
type Test struct {
	Name, File string
	Spec       Spec

	beside manifests.Set // the other objects of its file
	at     func(path ...any) manifests.Position
}

// Spec is what a test compiles, and what it asserts of the result. The other
// objects of the test's file are compiled too.
type Spec struct {
	// Manifests are files, or directories of files, with objects.
	Manifests []string `json:"manifests"`
	// Templates is a directory that overlays the shipped templates.
	Templates string `json:"templates"`
	// Config is a file with a CompilerConfig. Without one the test uses the default.
	Config string `json:"config"`
	// Assertions are made in their order.
	Assertions []Assertion `json:"assertions"`
}

// Assertion is one of contains, notContains, equals, equalsFile, routesTo, fails
// and warns.
type Assertion struct {
	// Name describes the assertion in messages.
	Name string `json:"name"`

	// In is a file of the snapshot, such as maps/host.map, or a section of
	// haproxy.cfg, such as "backend shop_web_http"; haproxy.cfg if empty.
	In string `json:"in"`
	// Contains are lines that follow upon one another in the text, whatever their indentation.
	Contains *string `json:"contains"`
	// NotContains are lines that the text does not contain.
	NotContains *string `json:"notContains"`
	// Equals is the whole text.
	Equals *string `json:"equals"`
	// EqualsFile is a file with the whole text.
	EqualsFile string `json:"equalsFile"`

	// Request is the request to send, and RoutesTo says who must answer it.
	Request  *Request `json:"request"`
	RoutesTo *Route   `json:"routesTo"`

	// Fails is an expected error, which would otherwise make the test fail.
	Fails *Finding `json:"fails"`
	// Warns is an expected warning.
	Warns *Finding `json:"warns"`
}

// Request is a request of a client.
type Request struct {
	Scheme  string            `json:"scheme"` // http, the default, or https
	Port    int               `json:"port"`   // that of the scheme, unless set
	Method  string            `json:"method"` // GET, unless set
	Host    string            `json:"host"`
	Path    string            `json:"path"` // /, unless set; with the query
	Headers map[string]string `json:"headers"`
	From    string            `json:"from"` // the address of the client
}

// Route says who answers a request. Empty fields are not checked.
type Route struct {
	Backend  string `json:"backend"`
	Service  string `json:"service"` // as namespace/name, perhaps with :port
	Status   int    `json:"status"`
	Redirect string `json:"redirect"` // the Location
}

// Finding is a diagnostic.
type Finding struct {
	Object  string `json:"object"`  // as Kind namespace/name
	Message string `json:"message"` // a part of the message
}

// document is a test as it is written.
type document struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec Spec `json:"spec"`
}

// object names the test.
func (t Test) object() diag.Object { return diag.Object{Kind: Kind, Name: t.Name} }

// position is where a field of the test is.
func (t Test) position(path ...any) diag.Position { return inFile(t.at(path...)) }

func inFile(p manifests.Position) diag.Position {
	return diag.Position{File: p.File, Line: p.Line, Column: p.Column}
}

// path returns a path of the test's as its reader would write it.
func (t Test) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(t.File), name)
}

// read returns the tests among the objects of a file, and their faults.
func read(file string, set manifests.Set) ([]Test, []diag.Diagnostic) {
	r := reader{}
	beside := manifests.Set{}
	var tests []manifests.Object
	for _, o := range set.Objects {
		if o.Kind == Kind {
			tests = append(tests, o)
		} else {
			beside.Objects = append(beside.Objects, o)
		}
	}
	for _, p := range set.Problems {
		// A test may be about the faults of an object.
		if p.Kind != Kind && p.Kind != "" {
			beside.Problems = append(beside.Problems, p)
			continue
		}
		r.found = append(r.found, diag.Diagnostic{
			Severity: diag.Error, Position: inFile(p.Position), Message: p.Message, Hint: p.Hint,
		})
	}
	var out []Test
	for _, o := range tests {
		t := Test{Name: o.Name, File: file, beside: beside, at: o.Position}
		r.test(o, &t)
		out = append(out, t)
	}
	return out, r.found
}

// reader collects the faults of tests.
type reader struct{ found []diag.Diagnostic }

func (r *reader) fault(t *Test, message, hint string, path ...any) {
	r.found = append(r.found, diag.Diagnostic{
		Severity: diag.Error, Position: t.position(path...), Object: t.object(), Message: message, Hint: hint,
	})
}

// test reads one test.
func (r *reader) test(o manifests.Object, t *Test) {
	var doc document
	errs := o.Decode(&doc)
	for _, e := range errs {
		r.found = append(r.found, diag.Diagnostic{
			Severity: diag.Error, Position: inFile(e.Position), Object: t.object(), Message: e.Error(), Hint: e.Hint,
		})
	}
	if o.APIVersion != snapshots.APIVersion {
		r.fault(t, "apiVersion "+o.APIVersion+" is not that of a "+Kind, "use "+snapshots.APIVersion, "apiVersion")
	}
	t.Spec = doc.Spec
	if len(errs) == 0 {
		r.check(t)
	}
}

// Find returns the tests in files, and in directories and below them, by file and place, and their
// faults. It skips other files of directories. It returns an error for what it cannot read, and a usage
// error if there is no test.
func Find(paths ...string) ([]Test, []diag.Diagnostic, error) {
	var tests []Test
	var found []diag.Diagnostic
	seen := map[string]bool{}
	for _, path := range paths {
		files, err := manifests.Files(path)
		if why, ok := errors.AsType[*os.PathError](err); ok {
			return nil, nil, fmt.Errorf("read tests: %w", why)
		}
		if err != nil {
			return nil, nil, err
		}
		before := len(tests) + len(found)
		for _, file := range files {
			if seen[file] {
				continue
			}
			seen[file] = true
			more, wrong, err := readFile(file)
			if err != nil {
				return nil, nil, err
			}
			tests, found = append(tests, more...), append(found, wrong...)
		}
		if len(tests)+len(found) == before {
			return nil, nil, process.WithHint(process.Usage("there is no %s in %s", Kind, path), "docs/how-to/testing.md says how to write one")
		}
	}
	slices.SortStableFunc(tests, func(a, b Test) int { return a.position().Compare(b.position()) })
	return tests, diag.Sort(found), nil
}

// readFile reads the tests of a file, if it says that it has any.
func readFile(file string) ([]Test, []diag.Diagnostic, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("read tests: %w", err)
	}
	if !bytes.Contains(data, []byte(Kind)) {
		return nil, nil, nil
	}
	set, err := manifests.Read(file)
	if err != nil {
		return nil, nil, err
	}
	tests, found := read(file, set)
	return tests, found, nil
}

// check reports the mistakes in a test.
func (r *reader) check(t *Test) {
	if t.Name == "" {
		r.fault(t, "has no name", "name it in metadata.name", "metadata")
	}
	if len(t.Spec.Assertions) == 0 {
		r.fault(t, "asserts nothing", "add spec.assertions", "spec")
	}
	for i, a := range t.Spec.Assertions {
		r.assertion(t, a, "spec", "assertions", i)
	}
}

// made lists the kinds of an assertion that are set.
func (a Assertion) made() []string {
	var out []string
	for _, made := range []struct {
		name string
		is   bool
	}{
		{"contains", a.Contains != nil},
		{"notContains", a.NotContains != nil},
		{"equals", a.Equals != nil},
		{"equalsFile", a.EqualsFile != ""},
		{"routesTo", a.RoutesTo != nil},
		{"fails", a.Fails != nil},
		{"warns", a.Warns != nil},
	} {
		if made.is {
			out = append(out, made.name)
		}
	}
	return out
}

func (r *reader) assertion(t *Test, a Assertion, path ...any) {
	made := a.made()
	switch len(made) {
	case 1:
	case 0:
		r.fault(t, "the assertion asserts nothing", "add one of contains, notContains, equals, equalsFile, routesTo, fails and warns", path...)
		return
	default:
		r.fault(t, "the assertion has "+strings.Join(made, " and "), "make one assertion of each", path...)
		return
	}
	field := append(path, made[0])
	for _, lines := range []*string{a.Contains, a.NotContains} {
		if lines != nil && strings.TrimSpace(*lines) == "" {
			r.fault(t, made[0]+" names no line", "", field...)
		}
	}
	for _, f := range []*Finding{a.Fails, a.Warns} {
		if f != nil && f.Object == "" && f.Message == "" {
			r.fault(t, made[0]+" does not say what is reported", "add object, such as Ingress shop/web, or message", field...)
		}
	}
	if a.In != "" && (a.RoutesTo != nil || a.Fails != nil || a.Warns != nil) {
		r.fault(t, made[0]+" is about no file", "leave out in", append(path, "in")...)
	}
	r.route(t, a, path...)
}

// route checks a request and who is to answer it.
func (r *reader) route(t *Test, a Assertion, path ...any) {
	switch {
	case a.RoutesTo == nil && a.Request == nil:
		return
	case a.RoutesTo == nil:
		r.fault(t, "request is set without routesTo", "add routesTo, which says who should answer", append(path, "request")...)
		return
	case a.Request == nil:
		r.fault(t, "routesTo has no request", "add request, with a host", append(path, "routesTo")...)
		return
	}
	if (*a.RoutesTo == Route{}) {
		r.fault(t, "routesTo does not say who should answer", "add backend, service, status or redirect", append(path, "routesTo")...)
	}
	if s := a.Request; s.Scheme != "" && s.Scheme != "http" && s.Scheme != "https" {
		r.fault(t, fmt.Sprintf("%q is not a scheme", s.Scheme), "use http or https", append(path, "request", "scheme")...)
	}
	r.request(t, *a.Request, append(path, "request")...)
}

// The forms of the parts of a request. Nothing in them can end a line.
var (
	tokenForm = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	wordForm  = regexp.MustCompile(`^[!-~]+$`)
	valueForm = regexp.MustCompile(`^[ -~]*$`)
)

func (r *reader) request(t *Test, q Request, path ...any) {
	if !wordForm.MatchString(q.Host) {
		r.fault(t, fmt.Sprintf("%q is not a host", q.Host), "name the host of the request, such as shop.example.com", append(path, "host")...)
	}
	if q.Path != "" && !wordForm.MatchString(q.Path) {
		r.fault(t, fmt.Sprintf("%q is not a path that can be sent", q.Path), "write other characters than those of ASCII as %XX", append(path, "path")...)
	}
	if q.Method != "" && !tokenForm.MatchString(q.Method) {
		r.fault(t, fmt.Sprintf("%q is not a method", q.Method), "use such as GET", append(path, "method")...)
	}
	if q.Port < 0 || q.Port > 65535 {
		r.fault(t, fmt.Sprintf("%d is not a port", q.Port), "", append(path, "port")...)
	}
	if _, err := netip.ParseAddr(q.From); q.From != "" && err != nil {
		r.fault(t, fmt.Sprintf("%q is not an IP address", q.From), "", append(path, "from")...)
	}
	for name, value := range q.Headers {
		if !tokenForm.MatchString(name) || !valueForm.MatchString(value) {
			r.fault(t, fmt.Sprintf("%q cannot be sent as a header", name), "", append(path, "headers", name)...)
		}
	}
}
