package compiler

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/scratch"
	"github.com/hapsnap/hapsnap/snapshots"
)

// ErrNotOurs means that a directory must not be replaced, since it holds something other than a rendered snapshot.
var ErrNotOurs = errors.New("holds files that are not a rendered snapshot")

// WriteTree writes the files of a draft to dir, with the manifest of revision 1, and replaces everything that was
// rendered there before. It leaves out the time and the trace of the draft, so that the same inputs give the same
// bytes. Unchanged sealed certificates keep their encrypted bytes.
func WriteTree(dir string, d snapshots.Draft) error {
	d.Time, d.Provenance.Traceparent = time.Time{}, ""
	d = d.WithSealed(readTree(dir))
	s := d.Number(1, snapshots.ID{})
	manifest, err := s.Manifest.Marshal()
	if err != nil {
		return fmt.Errorf("write %s: %w", snapshots.ManifestFile, err)
	}
	if err := checkOurs(dir); err != nil {
		return err
	}
	files := append(slices.Clone(s.Files), snapshots.File{Path: snapshots.ManifestFile, Content: manifest})
	if err := replaceTree(filepath.Clean(dir), files); err != nil {
		return fmt.Errorf("write %s: %w", dir, err)
	}
	return nil
}

// readTree returns the snapshot that was rendered there before. It returns the zero value if there is none, or if it is
// not complete.
func readTree(dir string) snapshots.Snapshot {
	data, err := os.ReadFile(filepath.Join(dir, snapshots.ManifestFile))
	if err != nil {
		return snapshots.Snapshot{}
	}
	manifest, err := snapshots.ParseManifest(data)
	if err != nil {
		return snapshots.Snapshot{}
	}
	s := snapshots.Snapshot{Manifest: manifest}
	for _, f := range manifest.Spec.Files {
		content, err := fs.ReadFile(os.DirFS(dir), f.Path) // this refuses paths that lead out of dir
		if err != nil {
			return snapshots.Snapshot{}
		}
		s.Files = append(s.Files, snapshots.File{Path: f.Path, Content: content})
	}
	if s.Verify() != nil {
		return snapshots.Snapshot{}
	}
	return s
}

// ours are the files and folders of a rendered snapshot.
var ours = []string{snapshots.ManifestFile, snapshots.ConfigFile, snapshots.EndpointsFile, "maps", "files", "certs"}

// checkOurs refuses a directory that contains anything that rendering did not put there.
func checkOurs(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read directory %s: %w", dir, err)
	}
	for _, e := range entries {
		if !slices.Contains(ours, e.Name()) {
			return process.WithHint(fmt.Errorf("%s %w: %s", dir, ErrNotOurs, e.Name()), "name a new or empty directory")
		}
	}
	return nil
}

// replaceTree writes files beside dir, and then replaces dir with them. If the file system can exchange folders, that
// is one step, and readers of dir always find all files of one snapshot. If dir is a symbolic link, it stays one, and
// its target is replaced. replaceTree also removes what a killed process left beside dir.
func replaceTree(dir string, files []snapshots.File) error {
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dir = target
	}
	parent, prefix := filepath.Dir(dir), "."+filepath.Base(dir)+"-"
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	if _, err := os.Stat(dir); err == nil { // otherwise the previous one may be among what was left
		scratch.Sweep(parent, prefix)
	}
	beside, err := scratch.Make(parent, prefix+"*")
	if err != nil {
		return err
	}
	defer beside.Remove()
	fresh, old := filepath.Join(beside.Path, "new"), filepath.Join(beside.Path, "old")
	for _, f := range files {
		path := filepath.Join(fresh, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.Content, 0o644); err != nil {
			return err
		}
	}
	if exchange(fresh, dir) == nil {
		return nil
	}
	if err := os.Rename(dir, old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(fresh, dir); err != nil {
		return errors.Join(err, os.Rename(old, dir))
	}
	return nil
}
