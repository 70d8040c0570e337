package assert

import (
	"path/filepath"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/manifests"
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
	// Config is a file with a CompilerConfig. Without one it is the default.
	Config string `json:"config"`
	// Assertions are made in their order.
	Assertions []Assertion `json:"assertions"`
}

// Assertion is one of contains, notContains, equals, equalsFile, routesTo, fails
// and warns.
type Assertion struct {
	// Name says what it is for, in messages.
	Name string `json:"name"`

	// In is a file of the snapshot, such as maps/host.map, or a section of
	// haproxy.cfg, such as "backend shop_web_http"; haproxy.cfg if empty.
	In string `json:"in"`
	// Contains are lines that follow upon one another there, whatever their
	// indentation.
	Contains *string `json:"contains"`
	// NotContains are lines that do not.
	NotContains *string `json:"notContains"`
	// Equals is the whole text.
	Equals *string `json:"equals"`
	// EqualsFile is a file with the whole text.
	EqualsFile string `json:"equalsFile"`

	// Request is what is asked, and RoutesTo who is to answer.
	Request  *Request `json:"request"`
	RoutesTo *Route   `json:"routesTo"`

	// Fails is an error that is to be reported, which fails the test otherwise.
	Fails *Finding `json:"fails"`
	// Warns is a warning that is to be reported.
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

// Route says who answers a request. What is empty is not asked for.
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

// read returns the tests among the objects of a file, and what is wrong with
// them.
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
		// What is wrong with an object may be what a test is for.
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

// reader keeps what is wrong with tests.
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
