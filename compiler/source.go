package compiler

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/leak"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/templates"
)

// Source is what is compiled.
type Source struct {
	Objects   Objects
	Templates string // a directory that overlays the shipped templates, or ""
	Config    config.Config

	// Stages is told what a compile is doing, or nil.
	Stages Stages

	memo    *render.Memo // of a loop, or nil
	secrets *leak.Memo   // likewise
	seals   *sealMemo    // likewise
}

// changes tell when something may be compiled to something else.
func (s Source) changes(ctx context.Context, log *slog.Logger) (objects, templates <-chan struct{}) {
	if s.Templates != "" {
		templates = manifests.Watch(ctx, []string{s.Templates}, log)
	}
	return s.Objects.Changes(ctx, log), templates
}

// Once reads the objects and compiles them. If that takes a while to know them, as
// in a cluster, it waits. The error is that of reading, or as [Compile] returns it;
// the diagnostics of the Result are complete either way.
func (s Source) Once(ctx context.Context, check *validate.Checker, now time.Time, trigger string) (Result, error) {
	r, _, err := s.compile(ctx, check, now, trigger)
	return r, err
}

// compile is Once, and returns the objects too.
func (s Source) compile(ctx context.Context, check *validate.Checker, now time.Time, trigger string) (Result, inputs.Inputs, error) {
	r, in, err := s.attempt(ctx, check, now, trigger)
	if !errors.Is(err, inputs.ErrIncomplete) {
		return r, in, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	changes := s.Objects.Changes(ctx, slog.New(slog.DiscardHandler))
	for errors.Is(err, inputs.ErrIncomplete) {
		select {
		case <-changes:
		case <-ctx.Done():
			return r, in, errors.Join(ctx.Err(), err)
		}
		r, in, err = s.attempt(ctx, check, now, trigger)
	}
	return r, in, err
}

// attempt compiles what is known now. The error wraps [inputs.ErrIncomplete] if that
// is not all.
func (s Source) attempt(ctx context.Context, check *validate.Checker, now time.Time, trigger string) (Result, inputs.Inputs, error) {
	_, end := s.Stages.begin(ctx, stageRead)
	in, err := s.read(ctx)
	end(err)
	if err != nil {
		return Result{Diagnostics: in.Found, Ignored: in.Ignored}, in.Objects, err
	}
	in.Now, in.Trigger, in.Stages = now, trigger, s.Stages
	in.CompilerVersion, in.HAProxyVersion = process.Version(), check.Version
	r, err := Compile(ctx, in, check)
	if !s.Objects.Complete(r.Named) {
		return Result{}, in.Objects, inputs.ErrIncomplete
	}
	return r, in.Objects, err
}

// read reads the objects and the templates.
func (s Source) read(ctx context.Context) (Input, error) {
	objects, err := s.Objects.Read(ctx, s.Config)
	in := Input{Config: s.Config, Memo: s.memo, Read: s.secrets, Seals: s.seals, Objects: objects.Objects, Found: objects.Found, Ignored: objects.Ignored}
	if err != nil {
		return in, err
	}
	files, err := s.templates()
	if err != nil {
		return in, err
	}
	parsed, wrong := render.Parse(files)
	if len(wrong) > 0 {
		in.Found = diag.Sort(slices.Concat(wrong, in.Found))
		return in, ErrTemplates
	}
	in.Templates = parsed
	return in, nil
}

// templates reads the shipped templates under the overlay.
func (s Source) templates() (render.Templates, error) {
	shipped, err := render.Shipped(templates.FS)
	if err != nil || s.Templates == "" {
		return shipped, err
	}
	overlay, err := render.Overlay(s.Templates)
	return shipped.Under(overlay), err
}
