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

// storeRows are the rows about what git keeps.
var storeRows = []row{
	{name: "git-bytes", what: "a git repository grows by one Ingress changed, before git packs", limit: "the files that changed, compressed", goal: 2, unit: bytes, measure: gitBytes},
	{name: "git-packed", what: "the same after `git gc`, a tenth of a hundred such changes", limit: "the files that changed, compressed", goal: 2, unit: bytes, most: 10_000, measure: gitPacked},
}

// A history is long, and its snapshots are small: what grows with it is the store's.
const (
	history   = 5000
	compared  = 15 // publishes at its beginning and at its end
	fewChange = 100
)

// publishedInGit has published the world to a new repository.
func publishedInGit(ctx context.Context, w *world) (*publisher, string, error) {
	s, path, err := newGit(ctx, w)
	if err != nil {
		return nil, "", err
	}
	p, err := newPublisher(ctx, w, s)
	return p, path, err
}

// gitBytes publishes changes, and compares what the repository grows by with the files that changed.
func gitBytes(ctx context.Context, w *world) (Cell, error) {
	p, path, err := publishedInGit(ctx, w)
	if err != nil {
		return Cell{}, err
	}
	return p.growth(ctx, path, 1)
}

// gitPacked does so a hundred times, and has git pack before and afterwards.
func gitPacked(ctx context.Context, w *world) (Cell, error) {
	p, path, err := publishedInGit(ctx, w)
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

// historyRows are the rows about long histories.
var historyRows = []row{
	{name: "history-configmap", what: "the 5,000th snapshot published to ConfigMaps", limit: "the 10th", goal: 1.1, unit: seconds, long: true, cluster: true, measure: historyInConfigMaps},
	{name: "history-git", what: "the 5,000th snapshot published to git", limit: "the 10th", goal: 1.1, unit: seconds, long: true, measure: shown("history-git", historyInGit)},
	{name: "history-list", what: "a history of 5,000 in git listed", limit: oneSecond, goal: 1, unit: seconds, long: true, measure: shown("history-list", historyInGit)},
	{name: "history-directory", what: "the 5,000th snapshot published to a directory", limit: "the 10th", goal: 1.1, unit: seconds, long: true, measure: historyInDirectory},
}

// historyInGit publishes a history, and lists it.
func historyInGit(ctx context.Context, w *world) (showing, error) {
	s, _, err := newGit(ctx, w)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	publishes, err := grown(ctx, s)
	if err != nil {
		return nil, err
	}
	listed, err := w.inTurns(ctx, plain(func() error { return nil }), plain(func() error {
		v, err := s.View(ctx)
		if err == nil && len(v.IDs) != history {
			err = fmt.Errorf("%d are listed", len(v.IDs))
		}
		return err
	}))
	listed.Limit = 1
	return showing{"history-git": publishes, "history-list": listed}, err
}

func historyInDirectory(ctx context.Context, w *world) (Cell, error) {
	return grown(ctx, newDirectory(w))
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
