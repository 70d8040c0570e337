// Package delivery makes kustomize produce a snapshot as the ConfigMaps of a store: it makes the files that
// stand beside those of a snapshot in a git tree.
//
//	kustomization.yaml           how the ConfigMaps are made of what is in the tree
//	configmaps/001-files.tar.gz  the snapshot's files, compressed, in pieces
//
// It promises that plain `kustomize build`, without flags and plugins, gives exactly the objects of
// [configmapstore.Delivered], and that the same snapshot gives the same files. They are not part of the
// snapshot: readers of the tree skip them, and readers of the ConfigMaps verify those.
package delivery

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
)

// header is for people who open the file. The next snapshot would remove anything that they add to it.
const header = `# Written with each snapshot. For changes of your own, build this as a base.
`

// kustomization is kustomization.yaml, with the fields that are needed. Generated names get no suffix, since
// other generated objects contain them.
type kustomization struct {
	APIVersion       string      `yaml:"apiVersion"`
	Kind             string      `yaml:"kind"`
	Namespace        string      `yaml:"namespace"`
	GeneratorOptions options     `yaml:"generatorOptions"`
	Generators       []generator `yaml:"configMapGenerator"`

	files []snapshots.File // that it names, and the snapshot has not
}

// generator makes one ConfigMap.
type generator struct {
	Name     string   `yaml:"name"`
	Files    []string `yaml:"files,omitempty"` // key=path
	Literals []string `yaml:"literals,omitempty"`
	Options  options  `yaml:"options"`
}

type options struct {
	NoSuffix    bool              `yaml:"disableNameSuffixHash,omitempty"`
	Immutable   bool              `yaml:"immutable,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

// add adds the nth ConfigMap to be generated. Its manifest is the file that is in the tree anyway. Bytes come
// from files, and other text is in place.
func (k *kustomization) add(o *corev1.ConfigMap, n int) {
	g := generator{Name: o.Name, Options: options{Immutable: o.Immutable != nil && *o.Immutable, Labels: o.Labels, Annotations: o.Annotations}}
	for _, key := range slices.Sorted(maps.Keys(o.Data)) {
		if key == snapshots.ManifestFile {
			g.Files = append(g.Files, key)
		} else {
			g.Literals = append(g.Literals, key+"="+o.Data[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(o.BinaryData)) {
		path := fmt.Sprintf("%s/%03d-%s", folder, n, key)
		g.Files = append(g.Files, key+"="+path)
		k.files = append(k.files, snapshots.File{Path: path, Content: o.BinaryData[key]})
	}
	k.Generators = append(k.Generators, g)
}

func (k *kustomization) marshal() ([]byte, error) {
	all := &k.GeneratorOptions // what holds for all ConfigMaps is written only once
	all.Labels, all.Annotations = maps.Clone(k.Generators[0].Options.Labels), maps.Clone(k.Generators[0].Options.Annotations)
	for _, g := range k.Generators {
		keepCommon(all.Labels, g.Options.Labels)
		keepCommon(all.Annotations, g.Options.Annotations)
	}
	for _, g := range k.Generators {
		removeCommon(g.Options.Labels, all.Labels)
		removeCommon(g.Options.Annotations, all.Annotations)
	}
	text, err := yaml.Marshal(k)
	return append([]byte(header), text...), err
}

func keepCommon(common, other map[string]string) {
	maps.DeleteFunc(common, func(key, value string) bool { return other[key] != value })
}

func removeCommon(from, common map[string]string) {
	maps.DeleteFunc(from, func(key, _ string) bool { _, shared := common[key]; return shared })
}

// Target is the store that a snapshot is delivered to, configmap:NAMESPACE/NAME in any cluster. The zero value
// is none.
type Target struct{ Namespace, Name string }

// ParseTarget reads NAMESPACE/NAME.
func ParseTarget(text string) (Target, error) {
	name, err := objectname.Parse(text)
	if err != nil {
		return Target{}, err
	}
	return Target(name), configmapstore.Check(name.Namespace, name.Name)
}

// The files beside a snapshot's.
const (
	kustomizationFile = "kustomization.yaml"
	folder            = "configmaps"
)

// Owns reports whether the path of a file or a folder is one of these files.
func Owns(path string) bool {
	return path == kustomizationFile || path == folder || strings.HasPrefix(path, folder+"/")
}

// Files returns the files that deliver a snapshot, signed for the target if there is a key. Without a target it
// returns none. The error for a snapshot that is too large for ConfigMaps wraps [sequence.ErrRefused].
func (t Target) Files(s snapshots.Snapshot, key signature.Key) ([]snapshots.File, error) {
	if t == (Target{}) {
		return nil, nil
	}
	objects, err := configmapstore.Delivered(t.Namespace, t.Name, s, key)
	if err != nil {
		return nil, fmt.Errorf("deliver to %s/%s: %w", t.Namespace, t.Name, err)
	}
	k := &kustomization{
		APIVersion: "kustomize.config.k8s.io/v1beta1", Kind: "Kustomization", Namespace: t.Namespace,
		GeneratorOptions: options{NoSuffix: true},
	}
	for i, o := range objects {
		k.add(o, i)
	}
	text, err := k.marshal()
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kustomizationFile, err)
	}
	return append(k.files, snapshots.File{Path: kustomizationFile, Content: text}), nil
}
