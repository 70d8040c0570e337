package validate

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/hapsnap/hapsnap/internal/scratch"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// manyCertificates is from how many certificates on a folder is kept for the next check.
const manyCertificates = 32

// staging is a folder in which HAProxy checks a configuration.
type staging struct {
	*scratch.Folder
	certificates map[string]written // by path
}

// written is a file as it was when it was written.
type written struct {
	content []byte
	info    os.FileInfo
}

// stagings are the folders of a [Checker]. A disk takes as long to make a thousand small files, and to remove
// them, as HAProxy to check a configuration with them, and from one check to the next nearly all are the same.
type stagings struct {
	mu    sync.Mutex
	users int      // of Reuse
	idle  *staging // nil: there is none
}

// Reuse lets checks leave their certificates on the disk for the next check, until the function is called that it
// returns. It is for programs that check again and again.
func (c *Checker) Reuse() (end func()) {
	s := &c.stagings
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.users--; s.users == 0 && s.idle != nil {
			s.idle.Remove()
			s.idle = nil
		}
	})
}

// take returns a folder for a check with so many certificates. That of a check with far more stays where it is, for the
// next one of its kind.
func (s *stagings) take(certificates int) (*staging, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if idle := s.idle; idle != nil && 2*certificates >= len(idle.certificates) {
		s.idle = nil
		if _, err := os.Lstat(idle.Path); err == nil {
			return idle, nil
		}
		idle.Remove()
	}
	folder, err := scratch.Make("", stagingPrefix)
	if err != nil {
		return nil, err
	}
	return &staging{Folder: folder, certificates: map[string]written{}}, nil
}

// give takes back a folder after a check.
func (s *stagings) give(done *staging) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users > 0 && len(done.certificates) >= manyCertificates {
		s.idle, done = done, s.idle
	}
	if done != nil {
		done.Remove()
	}
}

// stage makes the folder that of the bound files. Of what is there, only certificates stay that are as they should be,
// and that nobody has touched: something may clean up among temporary files.
func (st *staging) stage(bound bind.Bound) error {
	layout := LayoutIn(st.Path)
	config := filepath.Join(st.Path, stagedConfig)
	if err := errors.Join(os.RemoveAll(layout.Maps), os.RemoveAll(layout.General), os.RemoveAll(config)); err != nil {
		return fmt.Errorf("clear staging directory: %w", err)
	}
	for _, sub := range []string{layout.Maps, layout.Certificates, layout.General} {
		if err := os.Mkdir(sub, 0o700); err != nil && !(sub == layout.Certificates && errors.Is(err, os.ErrExist)) {
			return fmt.Errorf("make staging directory: %w", err)
		}
	}
	before, now := st.certificates, make(map[string]written, len(st.certificates))
	st.certificates = nil // if this fails, nobody knows what is there
	for _, f := range bound.Files {
		known, ok := before[f.Path]
		delete(before, f.Path)
		if !ok || !bytes.Equal(known.content, f.Content) || !known.untouched(f.Path) {
			if err := os.WriteFile(f.Path, f.Content, 0o600); err != nil {
				return fmt.Errorf("stage %s: %w", f.Source, err)
			}
			info, err := os.Lstat(f.Path)
			if err != nil {
				return fmt.Errorf("stage %s: %w", f.Source, err)
			}
			known = written{f.Content, info}
		}
		if filepath.Dir(f.Path) == layout.Certificates {
			now[f.Path] = known
		}
	}
	for path := range before {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("clear staging directory: %w", err)
		}
	}
	if err := os.WriteFile(config, bound.Config, 0o600); err != nil {
		return fmt.Errorf("stage %s: %w", snapshots.ConfigFile, err)
	}
	st.certificates = now
	return nil
}

func (w written) untouched(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && os.SameFile(info, w.info) && info.Size() == w.info.Size() && info.ModTime().Equal(w.info.ModTime()) && info.Mode() == w.info.Mode()
}

// Stage writes the files of an instance below dir, which exists and is empty, bound to the directories
// of [LayoutIn]. haproxy.cfg is in dir itself.
func Stage(dir string, bound bind.Bound) error {
	st := staging{Folder: &scratch.Folder{Path: dir}, certificates: map[string]written{}}
	return st.stage(bound)
}
