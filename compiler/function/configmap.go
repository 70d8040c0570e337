package function

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

const (
	// NameLabel of a ConfigMap with a snapshot has the name in the function's configuration.
	NameLabel = "hapsnap.dev/snapshots"
	// DigestAnnotation holds the digest of the snapshot.
	DigestAnnotation = "hapsnap.dev/digest"
)

// maxSize is the limit for all values of a ConfigMap together, in bytes.
const maxSize = 1 << 20

var (
	errTooLarge = errors.New("does not fit into a ConfigMap, which holds 1 MiB")
	errBadName  = errors.New("is not the name of a ConfigMap")
)

// Key returns the key of a file of a snapshot in a ConfigMap, where a key has no slash: maps/host.map
// is maps..host.map. No path has two dots in a row, since the Dataplane API keeps no such name.
func Key(path string) string { return strings.ReplaceAll(path, "/", "..") }

// Path returns the path of the file for a key.
func Path(key string) string { return strings.ReplaceAll(key, "..", "/") }

// configMap returns the ConfigMap NAME-DIGEST with the files of a snapshot and
// its manifest.
func configMap(namespace, name string, s snapshots.Snapshot) (*yaml.RNode, error) {
	manifest, err := s.Manifest.Marshal()
	if err != nil {
		return nil, err
	}
	files := append(slices.Clone(s.Files), snapshots.File{Path: snapshots.ManifestFile, Content: manifest})
	if err := fits(files); err != nil {
		return nil, err
	}
	digest := s.Manifest.Spec.Digest
	full := name + "-" + digest.Short()
	if problems := append(validation.IsDNS1123Subdomain(full), validation.IsValidLabelValue(name)...); len(problems) > 0 {
		return nil, fmt.Errorf("%s %w: %s", full, errBadName, problems[0])
	}
	values := map[string]string{}
	for _, f := range files {
		values[Key(f.Path)] = string(f.Content)
	}
	node := yaml.NewMapRNode(nil)
	metadata := []yaml.Filter{
		yaml.SetK8sName(full),
		yaml.SetLabel(NameLabel, name),
		yaml.SetAnnotation(DigestAnnotation, string(digest)),
	}
	if namespace != "" {
		metadata = append(metadata, yaml.SetK8sNamespace(namespace))
	}
	yes := yaml.NewScalarRNode("true")
	yes.YNode().Tag = yaml.NodeTagBool
	return node, errors.Join(
		node.PipeE(yaml.SetField("apiVersion", yaml.NewStringRNode("v1"))),
		node.PipeE(yaml.SetField("kind", yaml.NewStringRNode("ConfigMap"))),
		pipeAll(node, metadata),
		node.PipeE(yaml.SetField("immutable", yes)),
		node.LoadMapIntoConfigMapData(values),
	)
}

// pipeAll applies one filter after the other to the same node.
func pipeAll(node *yaml.RNode, filters []yaml.Filter) error {
	for _, f := range filters {
		if err := node.PipeE(f); err != nil {
			return err
		}
	}
	return nil
}

// fits reports whether the files fit into a ConfigMap. If not, it names the large ones.
func fits(files []snapshots.File) error {
	total := 0
	for _, f := range files {
		total += len(f.Content)
	}
	if total <= maxSize {
		return nil
	}
	return process.WithHint(
		fmt.Errorf("the snapshot has %d bytes and %w; the largest files: %s", total, errTooLarge, snapshots.Largest(files)),
		"publish it to a git store with compiler run or compiler render")
}
