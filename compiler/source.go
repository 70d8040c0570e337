package compiler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/templates"
)

// Source is the files that are compiled.
type Source struct {
	Manifests string // a directory of manifests, or one file
	Templates string // a directory that overlays the shipped templates, or ""
	Config    config.Config

	memo   *render.Memo // of a loop, or nil
	stages Stages
}

// folders returns what is to be watched.
func (s Source) folders() []string {
	if s.Templates == "" {
		return []string{s.Manifests}
	}
	return []string{s.Manifests, s.Templates}
}

// Once reads the files and compiles them. The error is that of reading, or as
// [Compile] returns it; the diagnostics of the Result are complete either way.
func (s Source) Once(ctx context.Context, check *validate.Checker, now time.Time, trigger string) (Result, error) {
	r, _, err := s.compile(ctx, check, now, trigger)
	return r, err
}

// compile is Once, and returns the objects too.
func (s Source) compile(ctx context.Context, check *validate.Checker, now time.Time, trigger string) (Result, inputs.Inputs, error) {
	_, end := s.stages.begin(ctx, stageRead)
	in, err := s.read()
	end(err)
	if err != nil {
		return Result{Diagnostics: in.Found, Ignored: in.Ignored}, in.Objects, err
	}
	in.Now, in.Trigger, in.Stages = now, trigger, s.stages
	in.CompilerVersion, in.HAProxyVersion = process.Version(), check.Version
	r, err := Compile(ctx, in, check)
	return r, in.Objects, err
}

// read reads the files. Whatever cannot be read as a whole is an error.
func (s Source) read() (Input, error) {
	set, err := manifests.Read(s.Manifests)
	if err != nil {
		return Input{}, err
	}
	files, err := s.templates()
	if err != nil {
		return Input{}, err
	}
	in := Input{Config: s.Config, Memo: s.memo}
	var ignored map[manifests.GVK]int
	in.Objects, in.Found, ignored = inputs.Gather(set)
	in.Ignored = counts(ignored)
	if len(set.Objects) == 0 {
		return in, fmt.Errorf("%s: %w", s.Manifests, ErrNothing)
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

// counts returns such as "apps/v1 Deployment: 3".
func counts(ignored map[manifests.GVK]int) string {
	var parts []string
	for _, kind := range slices.SortedFunc(maps.Keys(ignored), manifests.GVK.Compare) {
		parts = append(parts, fmt.Sprintf("%s: %d", kind, ignored[kind]))
	}
	return strings.Join(parts, ", ")
}
