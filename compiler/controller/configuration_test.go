package controller

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/validate"
)

// The watch follows the files that the present configuration names.
func TestCountryWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one", "a.txt"), filepath.Join(dir, "two", "a.txt")
	write := func(path, text string) {
		t.Helper()
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(one, "1")
	write(two, "2")
	log := slog.New(slog.DiscardHandler)
	var w countryWatch
	if w.follow(t.Context(), nil, log) != nil {
		t.Error("something is watched, and nothing is named")
	}
	first := w.follow(t.Context(), []string{one}, log)
	if w.follow(t.Context(), []string{one}, log) != first {
		t.Error("the same file is watched anew")
	}
	heard := func(path string) {
		t.Helper()
		changed := w.follow(t.Context(), []string{path}, log)
		write(path, strings.Repeat("x", 3))
		select {
		case <-changed:
		case <-time.After(time.Minute):
			t.Errorf("nothing was heard of %s", path)
		}
	}
	heard(one)
	heard(two)
	if w.follow(t.Context(), nil, log) != nil {
		t.Error("something is watched, and nothing is named any more")
	}
}

// written is the text of a configuration.
type written string

func (w written) Read(context.Context) (name string, data []byte, err error) {
	return "c.yaml", []byte(w), nil
}
func (written) Changes(context.Context, *slog.Logger) <-chan struct{} { return nil }

// A configuration that is read again before it has compiled stays on trial, so that there is a way back.
func TestConfigurationStaysOnTrialWhenItIsReadAgain(t *testing.T) {
	t.Parallel()
	checker, err := validate.Find(t.Context(), cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		t.Fatal(err)
	}
	l := newLoop(Options{
		Source: compiler.Source{Objects: compiler.Files(t.TempDir()), Config: config.Default()}, Checker: checker,
		Configuration: written("apiVersion: hapsnap.dev/v1alpha1\nkind: CompilerConfig\nspec: {http: {port: 8001}}\n"),
		Log:           slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Status: &Status{}, Store: seen{},
	})
	l.debounce.end(time.Now())
	for range 2 {
		l.reconfigure(t.Context())
		l.prepare(time.Now())
		if configuration, _ := l.onTrial(); !configuration || l.Source.Config.HTTP.Port != 8001 {
			t.Fatalf("port %d, and on trial is %+v", l.Source.Config.HTTP.Port, l.former)
		}
	}
	l.refuseTrial([]diag.Diagnostic{{Severity: diag.Error, Message: "it does not compile"}}, time.Now())
	if port := l.Source.Config.HTTP.Port; port != config.Default().HTTP.Port || l.former != nil {
		t.Errorf("the loop has port %d", port)
	}
}
