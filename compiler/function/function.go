// Package function is the compiler as a KRM function: it takes a ResourceList, compiles its items, and
// adds the snapshot as a ConfigMap. kustomize and kpt run it as a generator, whose objects are in
// files, and as a transformer, whose objects went through other functions before.
//
// The compiler's diagnostics become results of the list. If there is an error among them, the function
// fails and adds nothing: it runs in a build, where somebody can mend the fault.
//
// # Decisions
//
// The function adds one ConfigMap for a snapshot, named by its content: an object that every tool for
// KRM can carry and prune, and whose files people can read in a diff. A key of a ConfigMap has no
// slash; two dots stand for it, which no path has. Nothing reads these ConfigMaps yet, so that they
// promise no more than the files and the manifest.
//
// A build leaves nothing out. compiler run leaves out a faulty object and serves the rest of a cluster. A person who builds
// can fix the object, and would not notice that it was left out.
package function

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/kyaml/fn/framework"
	"sigs.k8s.io/kustomize/kyaml/kio"
	"sigs.k8s.io/kustomize/kyaml/kio/kioutil"
	"sigs.k8s.io/kustomize/kyaml/yaml"

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

// errSealed refuses sealed certificates: a build would give other bytes each time under the same name,
// since only a store has the ciphertext of unchanged certificates.
var errSealed = errors.New("sealed certificates differ with each build")

// carried says why certificates cannot be part of the function's output.
var carried = map[config.CertificateMode]error{
	config.SealedCertificates:    errSealed,
	config.CompanionCertificates: snapshots.ErrNoCompanions,
}

// Function is a run of the function.
type Function struct {
	In  io.Reader // a ResourceList
	Out io.Writer // the same, with a snapshot or with errors
	// Log gets the results as lines for people.
	Log   io.Writer
	Check *validate.Checker
	Now   time.Time
}

// Run reads a list, and writes it. The error is [ErrInvalid], after the list was written, or says what
// failed.
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

// run holds what is read and added for one list.
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
	// HAProxy may find the configuration alone wrong.
	faults, err := r.function.Check.Settings(ctx, s.config)
	if err == nil {
		r.report(inside(config.Places{}.Locate(faults)))
	}
	if err != nil || r.invalid {
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
	// The snapshot has no time, so that the same list gives the same bytes. Its revision is 1; a store that takes
	// it gives it another one.
	d := result.Draft
	d.Time = time.Time{}
	d.Subject = compiler.Subject(snapshots.Snapshot{}, result)
	made, err := configMap(s.Metadata.Namespace, s.Metadata.Name, d.Number(1, snapshots.ID{}))
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

// report adds diagnostics to the results.
func (r *run) report(found []diag.Diagnostic) {
	for _, d := range found {
		r.invalid = r.invalid || d.Severity == diag.Error
		r.list.Results = append(r.list.Results, r.items.result(d))
		fmt.Fprintln(r.function.Log, r.items.line(d))
	}
}

// compile compiles the items and the manifests.
func (r *run) compile(ctx context.Context, s settings) (compiler.Result, error) {
	// Snapshots among the items are skipped, so that the same list gives the same snapshot again.
	found := items{}
	var texts []manifests.Text
	for i, node := range r.list.Items {
		if node.GetKind() == Kind || isSnapshot(node) {
			continue
		}
		text, err := node.String()
		if err != nil {
			return compiler.Result{}, fmt.Errorf("read item %d: %w", i, err)
		}
		path, index, err := kioutil.GetFileAnnotations(node)
		if err != nil {
			return compiler.Result{}, fmt.Errorf("read item %d: %w", i, err)
		}
		name := fmt.Sprintf("items[%d]", i)
		number, _ := strconv.Atoi(index) // 0 if there is none
		found[name] = item{node: node, text: text, path: path, index: number}
		texts = append(texts, manifests.Text{File: name, Data: []byte(text)})
	}
	set := manifests.ReadTexts(texts...)
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

// Kind is the KRM kind of the function's configuration; its apiVersion is that of
// snapshots.
const Kind = "CompilerFunction"

// settings are a CompilerFunction: what to compile besides the items, and how.
type settings struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata has the name and the namespace of the ConfigMap: NAME-DIGEST.
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		// Manifests are files, or directories of files, with more objects. Paths are relative to the
		// folder in which the function runs: that of the kustomization.
		Manifests []string `json:"manifests"`
		// Templates is a directory that overlays the shipped templates.
		Templates string `json:"templates"`
		// Config is the spec of a CompilerConfig.
		Config map[string]any `json:"config"`
	} `json:"spec"`

	config config.Config
}

// readSettings reads the functionConfig of a list.
func readSettings(node *yaml.RNode) (settings, []diag.Diagnostic) {
	if node.IsNilOrEmpty() {
		return settings{}, one("the list has no functionConfig", "give it one of kind: "+Kind)
	}
	text, err := node.String()
	if err != nil {
		return settings{}, one(fmt.Sprintf("functionConfig: %v", err), "")
	}
	set := manifests.ReadTexts(manifests.Text{File: "functionConfig", Data: []byte(text)})
	for _, p := range set.Problems {
		return settings{}, one("functionConfig: "+p.Message, p.Hint)
	}
	o := set.Objects[0]
	if o.Kind != Kind || o.APIVersion != snapshots.APIVersion {
		return settings{}, one(fmt.Sprintf("functionConfig is a %s of %s", o.Kind, o.APIVersion), fmt.Sprintf("use kind: %s of %s", Kind, snapshots.APIVersion))
	}
	var s settings
	var found []diag.Diagnostic
	for _, e := range o.Decode(&s) {
		found = append(found, one("functionConfig: "+e.Error(), e.Hint)...)
	}
	if len(found) > 0 {
		return s, found
	}
	s.config, found = readConfig(node)
	return s, found
}

// one is a list with one error.
func one(message, hint string) []diag.Diagnostic {
	return []diag.Diagnostic{{Severity: diag.Error, Message: message, Hint: hint}}
}

// readConfig reads the CompilerConfig that is inside.
func readConfig(node *yaml.RNode) (config.Config, []diag.Diagnostic) {
	spec, err := node.Pipe(yaml.Lookup("spec", "config"))
	if err != nil || spec.IsNilOrEmpty() {
		return config.Default(), nil
	}
	whole := yaml.MustParse("apiVersion: " + snapshots.APIVersion + "\nkind: " + config.Kind + "\n")
	if err := whole.PipeE(yaml.SetField("spec", spec.Copy())); err != nil {
		return config.Config{}, one(fmt.Sprintf("functionConfig: %v", err), "")
	}
	c, found := config.Parse("", []byte(whole.MustString()))
	return c, inside(found)
}

// inside moves faults of a CompilerConfig to their place in the functionConfig. Their lines belong to
// no file.
func inside(found []diag.Diagnostic) []diag.Diagnostic {
	for i := range found {
		found[i].Position = diag.Position{}
		found[i].Message = "functionConfig: " + strings.Replace(found[i].Message, "spec.", "spec.config.", 1)
	}
	return found
}
