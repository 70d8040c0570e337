package main

import (
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/gitstore"
)

// A history is long, and its snapshots are small: what grows with it is the store's.
const (
	history   = 5000
	compared  = 15 // publishes at its beginning and at its end
	fewChange = 100
)

// keeping is what a history in git showed: it takes minutes.
type keeping struct {
	publishes Cell
	listed    Cell
}

// publishedInGit has published the world to a new repository.
func (w *world) publishedInGit(ctx context.Context) (*publisher, string, error) {
	s, path, err := w.git(ctx)
	if err != nil {
		return nil, "", err
	}
	p, err := w.publisher(ctx, s)
	return p, path, err
}

// gitBytes publishes changes, and compares what the repository grows by with the files that changed.
func (w *world) gitBytes(ctx context.Context) (Cell, error) {
	p, path, err := w.publishedInGit(ctx)
	if err != nil {
		return Cell{}, err
	}
	return p.growth(ctx, path, 1)
}

// gitPacked does so a hundred times, and has git pack before and afterwards.
func (w *world) gitPacked(ctx context.Context) (Cell, error) {
	p, path, err := w.publishedInGit(ctx)
	if err != nil {
		return Cell{}, err
	}
	gc := func() error {
		if out, err := exec.CommandContext(ctx, "git", "-C", path, "gc", "--quiet").CombinedOutput(); err != nil {
			return fmt.Errorf("git gc: %w: %s", err, out)
		}
		return nil
	}
	if err := gc(); err != nil {
		return Cell{}, err
	}
	before, err := sizeOf(path)
	if err != nil {
		return Cell{}, err
	}
	c, err := p.growth(ctx, path, fewChange/10)
	if err != nil {
		return Cell{}, err
	}
	if err := gc(); err != nil {
		return Cell{}, err
	}
	after, err := sizeOf(path)
	c.Work = float64(after-before) / float64(c.Turns)
	return c, err
}

// growth publishes so many changes, and returns the bytes of each, and those of the files that changed.
func (p *publisher) growth(ctx context.Context, path string, changes int) (Cell, error) {
	before, err := sizeOf(path)
	if err != nil {
		return Cell{}, err
	}
	changed := 0
	for n := range changes {
		old := p.previous.Files
		p.in.Objects = p.annotated(p.in.Objects, n)
		if err := p.publish(ctx, false); err != nil {
			return Cell{}, err
		}
		for _, f := range p.previous.Files {
			if !slices.ContainsFunc(old, func(o snapshots.File) bool { return o.Path == f.Path && string(o.Content) == string(f.Content) }) {
				changed += compressed(f.Content)
			}
		}
	}
	after, err := sizeOf(path)
	return Cell{Limit: float64(changed) / float64(changes), Work: float64(after-before) / float64(changes), Turns: changes}, err
}

// compressed returns how many bytes git keeps of a file.
func compressed(content []byte) int {
	var n counter
	z := zlib.NewWriter(&n)
	_, _ = z.Write(content)
	_ = z.Close()
	return int(n)
}

type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// sizeOf returns the bytes of the files below a folder.
func sizeOf(path string) (all int64, err error) {
	err = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) { // git put it elsewhere
			return nil
		}
		if err == nil {
			all += info.Size()
		}
		return err
	})
	return all, err
}

func (w *world) historyInGit(ctx context.Context) (Cell, error) {
	s, _, err := w.git(ctx)
	if err != nil {
		return Cell{}, err
	}
	defer func() { _ = s.Close() }()
	if w.publishes, err = grown(ctx, s); err != nil {
		return Cell{}, err
	}
	w.listed, err = w.inTurns(ctx, plain(func() error { return nil }), plain(func() error {
		v, err := s.View(ctx)
		if err == nil && len(v.IDs) != history {
			err = fmt.Errorf("%d are listed", len(v.IDs))
		}
		return err
	}))
	w.listed.Limit = 1
	return w.publishes, err
}

func (w *world) historyListed(ctx context.Context) (Cell, error) {
	if w.listed.Turns == 0 {
		if _, err := w.historyInGit(ctx); err != nil {
			return Cell{}, err
		}
	}
	return w.listed, nil
}

func (w *world) historyInDirectory(ctx context.Context) (Cell, error) {
	return grown(ctx, w.directory())
}

// grown publishes a history, and compares its end with its beginning.
func grown(ctx context.Context, s store) (Cell, error) {
	var took []time.Duration
	for n := range history {
		began := time.Now()
		config := fmt.Appendf(nil, "global\n    maxconn %d\ndefaults\n    mode http\n", 1000+n)
		d := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: config}}, Time: now.Add(time.Duration(n) * time.Second)}
		if _, published, err := s.Publish(ctx, d); err != nil || !published {
			return Cell{}, errors.Join(err, fmt.Errorf("published: %t", published))
		}
		took = append(took, time.Since(began))
	}
	return Cell{Limit: median(took[1 : 1+compared]).Seconds(), Work: median(took[history-compared:]).Seconds(), Turns: compared}, nil
}

var _ store = (*gitstore.Store)(nil)
