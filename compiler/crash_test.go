package compiler_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/internal/testing/scripttest"
	"github.com/hapsnap/hapsnap/internal/testing/worlds"
	"github.com/hapsnap/hapsnap/templates"
)

// fragile is a check that panics for a certain text.
type fragile struct {
	text  string
	calls atomic.Int64
}

func (f *fragile) Check(_ context.Context, in validate.Input) (validate.Verdict, error) {
	f.calls.Add(1)
	for _, file := range in.Artifact.Files {
		if bytes.Contains(file.Content, []byte(f.text)) {
			panic("there is " + f.text)
		}
	}
	return validate.Verdict{}, nil
}

func inputOf(t *testing.T, objects inputs.Inputs) compiler.Input {
	t.Helper()
	files, err := render.Shipped(templates.FS)
	if err != nil {
		t.Fatal(err)
	}
	set, wrong := render.Parse(files)
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	return compiler.Input{Objects: objects, Config: config.Default(), Templates: set, Now: time.Unix(0, 0), Trigger: "test"}
}

// If an object causes a panic, it is left out with a message, and all others are published.
func TestObjectsThatPanic(t *testing.T) {
	t.Parallel()
	in := worlds.Ingresses(100)
	for _, i := range []int{7, 70} {
		in = worlds.Annotate(in, i, "hapsnap.dev/response-headers", "set X-Fragile yes")
	}
	check := &fragile{text: "X-Fragile"}
	r, err := compiler.Compile(t.Context(), inputOf(t, in), check)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Draft.Quarantined) != 2 || !r.Panicked {
		t.Fatalf("left out are %v", r.Draft.Quarantined)
	}
	for i, q := range r.Draft.Quarantined {
		want := worlds.Name([]int{7, 70}[i])
		if q.Kind != "Ingress" || q.Name != want || !strings.Contains(q.Reason, "there is X-Fragile") {
			t.Errorf("%+v, want %s", q, want)
		}
	}
	if n := check.calls.Load(); n > 40 {
		t.Errorf("it took %d checks", n)
	}
	for _, f := range r.Draft.Files {
		if f.Path == "maps/host.map" && len(f.Content) == 0 {
			t.Error("nothing is left")
		}
	}
	if d := r.Diagnostics[len(r.Diagnostics)-1]; !strings.Contains(fmt.Sprint(r.Diagnostics), "compiler_test.(*fragile).Check") {
		t.Errorf("nothing says where it panicked: %+v", d)
	}
}

// crashingHAProxy is a HAProxy that crashes for a certain text in what it checks. It says so to a file.
func crashingHAProxy(t *testing.T, text, crash string) (c *validate.Checker, checks func() int) {
	t.Helper()
	sound, err := validate.Find(t.Context(), cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	count := filepath.Join(folder, "count")
	path := filepath.Join(folder, "haproxy")
	scripttest.Write(t, path, fmt.Sprintf("#!/bin/sh\necho >>%s\nif grep -q -e '%s' haproxy.cfg; then %s; fi\nexec %s \"$@\"\n", count, text, crash, sound.Path))
	return &validate.Checker{Path: path, Version: sound.Version}, func() int {
		said, err := os.ReadFile(count)
		if err != nil {
			t.Fatal(err)
		}
		return len(said)
	}
}

// If HAProxy crashes while it checks, the object that makes it crash is left out, and all others are published.
func TestObjectsThatCrashHAProxy(t *testing.T) {
	t.Parallel()
	for _, signal := range []string{"SEGV", "ABRT", "ILL"} {
		in := worlds.Ingresses(40)
		for _, i := range []int{7, 30} {
			in = worlds.Annotate(in, i, "hapsnap.dev/response-headers", "set X-Fragile yes")
		}
		input := inputOf(t, in)
		input.Memories, input.Crashes = compiler.NewMemories(), compiler.NewCrashes()
		check, checks := crashingHAProxy(t, "X-Fragile", "kill -"+signal+" $$")
		r, err := compiler.Compile(t.Context(), input, check)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Draft.Quarantined) != 2 || r.Panicked {
			t.Fatalf("SIG%s: left out are %v, panicked %v", signal, r.Draft.Quarantined, r.Panicked)
		}
		for i, q := range r.Draft.Quarantined {
			if want := worlds.Name([]int{7, 30}[i]); q.Kind != "Ingress" || q.Name != want || !strings.Contains(q.Reason, "HAProxy crashes for it: ") {
				t.Errorf("SIG%s: %+v, want %s", signal, q, want)
			}
		}
		before := checks()
		if again, err := compiler.Compile(t.Context(), input, check); err != nil || len(again.Draft.Quarantined) != 2 || checks()-before > 1 {
			t.Errorf("SIG%s: again %v, left out %v, after %d checks", signal, err, again.Draft.Quarantined, checks()-before)
		}
	}
}

// A HAProxy that crashes without any object too, that somebody kills, that crashes once, or that does not say what it
// refuses, is nobody's fault. The error is neither that of the templates nor that of an object, and is tried again.
func TestHAProxyThatDoesNotWork(t *testing.T) {
	t.Parallel()
	once := filepath.Join(t.TempDir(), "once")
	for name, test := range map[string]struct{ text, crash, want string }{
		"always":         {"global", "kill -SEGV $$", "segmentation fault"},
		"killed":         {"X-Fragile", "kill -KILL $$", "signal: killed"},
		"terminated":     {"X-Fragile", "kill -TERM $$", "signal: terminated"},
		"once":           {"X-Fragile", "[ -e " + once + " ] || { echo >" + once + "; kill -SEGV $$; }", "segmentation fault"},
		"hangs":          {"X-Fragile", "sleep 100", "HAProxy has not ended, and was killed after"},
		"without a word": {"X-Fragile", "exit 1", "exit status 1, and no alert"},
		"a library": {
			"X-Fragile", "echo >&2 'error while loading shared libraries: liblua5.4.so: cannot open shared object file'; exit 127",
			`exit status 127, and no alert: "error while loading shared libraries: liblua5.4.so: cannot open shared object file"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check, _ := crashingHAProxy(t, test.text, test.crash)
			if name == "hangs" {
				check.Patience = 100 * time.Millisecond
			}
			r, err := compiler.Compile(t.Context(), inputOf(t, worlds.Annotate(worlds.Ingresses(5), 3, "hapsnap.dev/response-headers", "set X-Fragile yes")), check)
			if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, compiler.ErrTemplates) || len(r.Draft.Files) > 0 {
				t.Errorf("%v, %d files", err, len(r.Draft.Files))
			}
			for _, d := range r.Diagnostics {
				if d.Severity == diag.Error {
					t.Errorf("somebody is blamed: %v", d)
				}
			}
		})
	}
}

// If an object with protection causes a panic, its routes are not served without protection.
func TestProtectionThatPanics(t *testing.T) {
	t.Parallel()
	in := worlds.Ingresses(20)
	in = worlds.Annotate(in, 7, "hapsnap.dev/response-headers", "set X-Fragile yes")
	in = worlds.Annotate(in, 7, "hapsnap.dev/allow-list", "10.0.0.0/8")
	namespace := in.Ingresses[7].Ref.Namespace
	want := map[string]bool{}
	for _, ing := range in.Ingresses {
		if ing.Ref.Namespace == namespace {
			want[ing.Ref.Name] = true
		}
	}
	if len(want) < 2 {
		t.Fatalf("namespace %s has %d Ingresses", namespace, len(want))
	}
	r, err := compiler.Compile(t.Context(), inputOf(t, in), &fragile{text: "X-Fragile"})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range r.Draft.Quarantined {
		if !want[q.Name] || q.Namespace != namespace {
			t.Errorf("%+v is left out", q)
		}
		delete(want, q.Name)
	}
	if len(want) > 0 {
		t.Errorf("%v are still served", want)
	}
}

// A panic that no object causes is an error, and does not end the process.
func TestPanicOfNoObject(t *testing.T) {
	t.Parallel()
	r, err := compiler.Compile(t.Context(), inputOf(t, worlds.Ingresses(5)), &fragile{text: "global"})
	if err == nil || !strings.Contains(err.Error(), "there is global") || len(r.Draft.Files) > 0 {
		t.Errorf("%v, %d files", err, len(r.Draft.Files))
	}
}

// panics are objects whose compiles panic as long as some named objects are not known.
type panics struct{ compiler.Given }

func (panics) Complete(routing.Asked) bool { return false }
func (panics) Await(routing.Asked) bool    { return false }

// A compile that panicked says so, even if it must be repeated because objects were not known. Then the loop
// does not use its memories again.
func TestPanicOfAnIncompleteCompile(t *testing.T) {
	t.Parallel()
	set := manifests.ReadTexts(manifests.Text{File: "web.yaml", Data: []byte(simpleIngress("shop/web", "web.example", "/", ""))})
	s := compiler.Source{Objects: panics{compiler.Given{Name: "memory", Set: set}}, Config: config.Default()}
	s.Stages = func(ctx context.Context, name string) (context.Context, func(error)) {
		if name == compiler.StageTranslate {
			panic("translate")
		}
		return ctx, func(error) {}
	}
	r, _, err := s.Attempt(t.Context(), &validate.Checker{}, now, "test")
	if !errors.Is(err, inputs.ErrIncomplete) || !r.Panicked {
		t.Errorf("%v, panicked %v", err, r.Panicked)
	}
}

// An object that caused a panic is remembered, and served once it has changed.
func TestPanicsAreRemembered(t *testing.T) {
	t.Parallel()
	sound := worlds.Ingresses(50)
	input := inputOf(t, worlds.Annotate(sound, 7, "hapsnap.dev/response-headers", "set X-Fragile yes"))
	input.Crashes = compiler.NewCrashes()
	for round, want := range []struct {
		checks   int64
		panicked bool
	}{{20, true}, {1, false}, {1, false}} {
		check := &fragile{text: "X-Fragile"}
		r, err := compiler.Compile(t.Context(), input, check)
		if err != nil || len(r.Draft.Quarantined) != 1 || r.Panicked != want.panicked || check.calls.Load() > want.checks {
			t.Fatalf("round %d: %v, left out %v after %d checks, panicked %v", round, err, r.Draft.Quarantined, check.calls.Load(), r.Panicked)
		}
	}
	input.Objects = sound
	if r, err := compiler.Compile(t.Context(), input, &fragile{text: "X-Fragile"}); err != nil || len(r.Draft.Quarantined) > 0 {
		t.Errorf("%v, left out %v though it is sound now", err, r.Draft.Quarantined)
	}
}
