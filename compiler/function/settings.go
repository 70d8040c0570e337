package function

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Kind is the KRM kind of the function's configuration; its apiVersion is that of
// snapshots.
const Kind = "CompilerFunction"

// settings are a CompilerFunction: what is compiled besides the items, and how.
type settings struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata has the name and the namespace of the ConfigMap: NAME-DIGEST.
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		// Manifests are files, or directories of files, with more objects. Paths
		// are relative to where the function runs: that of the kustomization.
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

// inside says of faults of a CompilerConfig where they are in the functionConfig.
// Their lines are of no file.
func inside(found []diag.Diagnostic) []diag.Diagnostic {
	for i := range found {
		found[i].Position = diag.Position{}
		found[i].Message = "functionConfig: " + strings.Replace(found[i].Message, "spec.", "spec.config.", 1)
	}
	return found
}
