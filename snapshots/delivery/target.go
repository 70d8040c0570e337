package delivery

import (
	"fmt"
	"strings"

	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
)

// Target is the store that a snapshot is delivered to, configmap:NAMESPACE/NAME in
// whichever cluster. The zero value is none.
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

// Owns reports whether a path of a tree, of a file or a folder, is one of these files'.
func Owns(path string) bool {
	return path == kustomizationFile || path == folder || strings.HasPrefix(path, folder+"/")
}

// Files returns the files that deliver a snapshot, signed for the target if there is a key;
// without a target, none. The error of
// a snapshot that is too large for ConfigMaps wraps [sequence.ErrRefused].
func (t Target) Files(s snapshots.Snapshot, key signature.Key) ([]snapshots.File, error) {
	if t == (Target{}) {
		return nil, nil
	}
	objects, err := configmapstore.Delivered(t.Namespace, t.Name, s, key)
	if err != nil {
		return nil, fmt.Errorf("deliver to %s/%s: %w", t.Namespace, t.Name, err)
	}
	k := newKustomization(t.Namespace)
	for i, o := range objects {
		k.add(o, i)
	}
	text, err := k.marshal()
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kustomizationFile, err)
	}
	return append(k.files, snapshots.File{Path: kustomizationFile, Content: text}), nil
}
