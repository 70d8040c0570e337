package validate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// stagedConfig is the name of the bound configuration in the staging directory.
const stagedConfig = snapshots.ConfigFile

// LayoutIn returns directories below dir, as an instance has them.
func LayoutIn(dir string) bind.Layout {
	return bind.Layout{
		Maps: filepath.Join(dir, "maps"), Certificates: filepath.Join(dir, "certs"), General: filepath.Join(dir, "general"),
	}
}

// Stage writes what an instance would get below dir, which is there and empty,
// bound to the directories of [LayoutIn]. haproxy.cfg is in dir itself.
func Stage(dir string, bound bind.Bound) error {
	layout := LayoutIn(dir)
	for _, sub := range []string{layout.Maps, layout.Certificates, layout.General} {
		if err := os.Mkdir(sub, 0o700); err != nil {
			return fmt.Errorf("make staging directory: %w", err)
		}
	}
	for _, f := range bound.Files {
		if err := os.WriteFile(f.Path, f.Content, 0o600); err != nil {
			return fmt.Errorf("stage %s: %w", f.Source, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, stagedConfig), bound.Config, 0o600); err != nil {
		return fmt.Errorf("stage %s: %w", snapshots.ConfigFile, err)
	}
	return nil
}

// ask has HAProxy check the bound configuration. It is run in the staging
// directory, so that messages name the file without its folder.
func (c *Checker) ask(ctx context.Context, dir string, lines lineMap) (Verdict, error) {
	if err := Stage(dir, lines.bound); err != nil {
		return Verdict{}, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Path, "-c", "-f", stagedConfig)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return Verdict{}, fmt.Errorf("check with haproxy: %w", ctx.Err())
	}
	exit, failed := errors.AsType[*exec.ExitError](err)
	if err != nil && (!failed || exit.ExitCode() < 0) {
		return Verdict{}, fmt.Errorf("check with %s: %w", c.Path, err)
	}
	v := lines.verdict(parseOutput(stderr.String()))
	switch {
	case !failed:
		v.Faults = nil // an alert that does not keep HAProxy from starting
	case exit.ExitCode() == 2:
		v.Faults = append(v.Faults, render.Fault{
			Message: "haproxy would not start: nothing listens",
			Hint:    "a template must write a frontend with a bind line",
		})
	case len(v.Faults) == 0:
		v.Faults = []render.Fault{{Message: "haproxy refuses the configuration: " + tail(stderr.String()+stdout.String())}}
	}
	return v, nil
}

// tail returns the last line of what HAProxy said that is not empty.
func tail(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return tidy(lines[len(lines)-1])
}
