package snapshots

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"path"
	"slices"
)

// Input is one object that a snapshot was compiled from.
type Input struct {
	APIVersion      string `json:"apiVersion"`
	Kind            string `json:"kind"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name"`
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// Compare orders inputs by API version, kind, namespace and name.
func (in Input) Compare(o Input) int {
	return cmp.Or(cmp.Compare(in.APIVersion, o.APIVersion), cmp.Compare(in.Kind, o.Kind), cmp.Compare(in.Namespace, o.Namespace), cmp.Compare(in.Name, o.Name))
}

// roomForOthers is what of a manifest is left to what has no bound of its own, such as the subject.
const roomForOthers = 512 << 10

// omitInputs leaves out the last inputs where all of them would make the manifest too large to be read: a
// cluster of any size can be published, and what runs does not depend on them. It counts bytes as
// Marshal writes them, rather too many than too few.
func (m *Manifest) omitInputs() {
	room := MaxManifest - roomForOthers - 140*len(m.Spec.Files)
	for _, f := range m.Spec.Files {
		room -= len(f.Path)
	}
	for _, c := range m.Spec.Certificates {
		room -= 200 + len(c.File) + len(c.Secret.Namespace) + len(c.Secret.Name) + len(c.Version)
		if c.Observed != nil {
			room -= 180
			for _, name := range c.Observed.Names {
				room -= 12 + len(name)
			}
		}
	}
	for _, q := range m.Spec.Quarantined {
		room -= 80 + len(q.Kind) + len(q.Namespace) + len(q.Name) + 2*len(q.Reason)
	}
	for i, in := range m.Provenance.Inputs {
		room -= 95 + len(in.APIVersion) + len(in.Kind) + len(in.Namespace) + len(in.Name) + len(in.UID) + len(in.ResourceVersion)
		if room < 0 {
			m.Provenance.OmittedInputs += len(m.Provenance.Inputs) - i
			m.Provenance.Inputs = m.Provenance.Inputs[:i:i]
			return
		}
	}
}

// InputsFolder is the folder beside snapshot.yaml that has the files of [Manifest.Split].
const InputsFolder = "inputs"

const (
	// fewInputs are better read in the manifest itself.
	fewInputs = 512
	// inputsOfAFile is how many inputs a file has, on average. A change of one object is a new file: with fewer, the
	// list of files would be the larger part of what is new.
	inputsOfAFile = 128
	// lastInputs is the name of the file whose last input ends no file.
	lastInputs = "last.yaml"
)

// Split returns the manifest without its inputs, and these in files of [InputsFolder]: for a store that keeps each
// file that changed as a whole, such as git. An object that changes, comes or goes changes one file, two at most, for
// the content of the objects says where a file ends. Few inputs stay where they are, and so do inputs that are not in
// order. [Manifest.Join] undoes it.
func (m Manifest) Split() (Manifest, []File) {
	inputs := m.Provenance.Inputs
	if len(inputs) <= fewInputs || !ascending(inputs) {
		return m, nil
	}
	var files []File
	known, names := make(map[string]string), make(map[string]bool)
	start := 0
	for i, in := range inputs {
		hash := fnv.New64a()
		for _, part := range [...]string{in.APIVersion, in.Kind, in.Namespace, in.Name} {
			_, _ = io.WriteString(hash, part+"\x00") // it never fails
		}
		sum, name := hash.Sum64(), lastInputs
		if sum%inputsOfAFile == 0 {
			name = fmt.Sprintf("%016x.yaml", sum)
		} else if i+1 < len(inputs) {
			continue
		}
		w := listWriter{known: known}
		for _, of := range inputs[start : i+1] {
			w.input("", of)
		}
		if w.failed || names[name] {
			return m, nil
		}
		names[name] = true
		files = append(files, File{Path: path.Join(InputsFolder, name), Content: w.out})
		start = i + 1
	}
	m.Provenance.Inputs, m.Provenance.InputsBeside = nil, len(inputs)
	return m, files
}

func ascending(inputs []Input) bool {
	for i := 1; i < len(inputs); i++ {
		if inputs[i-1].Compare(inputs[i]) >= 0 {
			return false
		}
	}
	return true
}

// Join takes the inputs from the files that [Manifest.Split] made, in any order. A file that is missing or that holds
// something else is an error, which wraps [ErrCorrupt].
func (m *Manifest) Join(files []File) error {
	var inputs []Input
	room := MaxManifest
	for _, f := range files {
		var some []Input
		if err := DecodeYAML(f.Content, room, &some); err != nil {
			return fmt.Errorf("%w: read %s: %w", ErrCorrupt, f.Path, err)
		}
		room -= len(f.Content)
		inputs = append(inputs, some...)
	}
	slices.SortFunc(inputs, Input.Compare)
	if len(inputs) != m.Provenance.InputsBeside || !ascending(inputs) || len(m.Provenance.Inputs) > 0 {
		return fmt.Errorf("%w: the files in %s name %d objects, and not the %d that %s speaks of, each once", ErrCorrupt, InputsFolder, len(inputs), m.Provenance.InputsBeside, ManifestFile)
	}
	m.Provenance.Inputs, m.Provenance.InputsBeside = inputs, 0
	return nil
}
