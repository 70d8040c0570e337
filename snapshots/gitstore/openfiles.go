package gitstore

import (
	"sync"

	"github.com/go-git/go-billy/v5"
)

// openFiles is a file system that closes what others leave open. go-git leaves a pack
// open when a fetch breaks off, for as long as the process lives: two files each time,
// and the space of one that was removed.
type openFiles struct {
	billy.Filesystem

	mu   sync.Mutex
	open map[billy.File]bool
}

func newOpenFiles(of billy.Filesystem) *openFiles {
	return &openFiles{Filesystem: of, open: map[billy.File]bool{}}
}

// TempFile implements [billy.TempFile].
func (o *openFiles) TempFile(dir, prefix string) (billy.File, error) {
	return o.keep(o.Filesystem.TempFile(dir, prefix))
}

// Open implements [billy.Basic].
func (o *openFiles) Open(name string) (billy.File, error) {
	return o.keep(o.Filesystem.Open(name))
}

func (o *openFiles) keep(f billy.File, err error) (billy.File, error) {
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open[f] = true
	return keptFile{f, o}, nil
}

// closeAll closes what is open. A caller that still uses it gets errors.
func (o *openFiles) closeAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for f := range o.open {
		_ = f.Close()
	}
	clear(o.open)
}

// keptFile is a file of an [openFiles].
type keptFile struct {
	billy.File
	of *openFiles
}

// Close closes the file, unless it was closed with all others.
func (f keptFile) Close() error {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if !f.of.open[f.File] {
		return nil
	}
	delete(f.of.open, f.File)
	return f.File.Close()
}
