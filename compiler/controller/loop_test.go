package controller_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hapsnap/hapsnap/compiler/controller/controllertest"
)

func TestRunPublishesChanges(t *testing.T) {
	t.Parallel()
	r := controllertest.Run(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")})
	first := r.AwaitRoute(t, "web.example", true)
	if first.Manifest.Spec.Subject != "+1 backend, +1 route (Ingress shop/web)" || first.Verify() != nil {
		t.Errorf("first snapshot: %q, %v", first.Manifest.Spec.Subject, first.Verify())
	}
	r.Write(t, "api.yaml", controllertest.Manifest("api", "5s"))
	second := r.AwaitRoute(t, "api.example", true)
	if second.Manifest.Spec.Subject != "+1 backend, +1 route (Ingress shop/api)" || second.Manifest.Spec.Parent != first.ID() {
		t.Errorf("second snapshot: %q after %s", second.Manifest.Spec.Subject, second.Manifest.Spec.Parent)
	}
	controllertest.Await(t, "the head", func() error {
		if r.Status.Head() != second.ID() {
			return fmt.Errorf("head %s, want %s", r.Status.Head(), second.ID())
		}
		return r.Status.Ready()
	})
	if err := os.Remove(filepath.Join(r.Dir, "web.yaml")); err != nil {
		t.Fatal(err)
	}
	r.AwaitRoute(t, "web.example", false)
	if problems, err := testutil.GatherAndLint(r.Registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", err, problems)
	}
}

func TestRunLeavesOutWhatHAProxyRefuses(t *testing.T) {
	t.Parallel()
	r := controllertest.Run(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")})
	controllertest.Put(t, filepath.Join(r.Templates, "extend"), "backend.cfg", "    timeout server {{.Annotation \"example.com/timeout\"}}\n")
	r.AwaitRoute(t, "web.example", true)
	r.Write(t, "bad.yaml", controllertest.Manifest("bad", "banana"))
	r.Write(t, "api.yaml", controllertest.Manifest("api", "7s"))
	r.AwaitQuarantined(t, 1)
	r.AwaitRoute(t, "api.example", true)
	r.AwaitRoute(t, "bad.example", false)
	r.Write(t, "bad.yaml", controllertest.Manifest("bad", "9s"))
	r.AwaitRoute(t, "bad.example", true)
	r.AwaitQuarantined(t, 0)
}

// While the store is gone, the newest draft is kept. Earlier drafts are not published later.
func TestRunKeepsTheNewestWhileTheStoreIsGone(t *testing.T) {
	t.Parallel()
	r := controllertest.Run(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")})
	r.AwaitRoute(t, "web.example", true)
	_, before, tries := r.Store.Newest()
	r.Store.Fail(errors.New("remote hung up"))
	r.Write(t, "one.yaml", controllertest.Manifest("one", "5s"))
	controllertest.Await(t, "a failed try", func() error {
		if _, _, now := r.Store.Newest(); now == tries {
			return errors.New("not tried")
		}
		if err := r.Status.Ready(); err == nil || !strings.Contains(err.Error(), "remote hung up") {
			return fmt.Errorf("ready says %v", err)
		}
		return nil
	})
	r.Write(t, "two.yaml", controllertest.Manifest("two", "5s"))
	controllertest.Await(t, "the draft is replaced", func() error {
		if r.Publishes(t, "replaced") != 1 {
			return errors.New("it is not")
		}
		return nil
	})
	_, _, tries = r.Store.Newest()
	controllertest.Await(t, "another failed try", func() error {
		if _, _, now := r.Store.Newest(); now == tries {
			return errors.New("not tried")
		}
		return nil
	})
	r.Store.Fail(nil)
	s := r.AwaitRoute(t, "two.example", true)
	r.AwaitRoute(t, "one.example", true)
	if s.Manifest.Spec.Subject != "+2 backends, +2 routes (Ingress shop/one, Ingress shop/two)" {
		t.Errorf("subject %q", s.Manifest.Spec.Subject)
	}
	if _, after, _ := r.Store.Newest(); after != before+1 {
		t.Errorf("%d snapshots after %d, want one more", after, before)
	}
	controllertest.Await(t, "ready", r.Status.Ready)
}

// A missing directory and a wrong template change nothing that was published.
func TestRunHoldsWhatItCannotRead(t *testing.T) {
	t.Parallel()
	r := controllertest.Run(t, map[string]string{"web.yaml": controllertest.Manifest("web", "5s")})
	first := r.AwaitRoute(t, "web.example", true)
	aside := r.Dir + "-aside"
	if err := os.Rename(r.Dir, aside); err != nil {
		t.Fatal(err)
	}
	controllertest.Await(t, "not ready", func() error {
		if err := r.Status.Ready(); err == nil || !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("ready says %v", err)
		}
		return nil
	})
	if err := os.Rename(aside, r.Dir); err != nil {
		t.Fatal(err)
	}
	controllertest.Await(t, "ready again", r.Status.Ready)
	controllertest.Put(t, filepath.Join(r.Templates, "extend"), "backend.cfg", "{{if}}")
	awaitTemplates(t, r, "extend/backend.cfg:1")
	if s, n, _ := r.Store.Newest(); n != 1 || s.ID() != first.ID() {
		t.Errorf("%d snapshots, newest %s", n, s.ID())
	}
	controllertest.Put(t, filepath.Join(r.Templates, "extend"), "backend.cfg", "    option httpchk\n")
	controllertest.Await(t, "template published", func() error {
		if s, _, _ := r.Store.Newest(); !strings.Contains(string(s.Config()), "option httpchk") {
			return errors.New("not yet")
		}
		return nil
	})
}
