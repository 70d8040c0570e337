package compiler_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
)

// manifestsOf returns the objects of several hosts in one file, so that all of
// them come and go in the same moment.
func manifestsOf(names ...string) string {
	var out []string
	for _, name := range names {
		out = append(out, manifest(name, "5s"))
	}
	return strings.Join(out, "---\n")
}

func tenants(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("tenant-%d", i))
	}
	return out
}

// awaitHeld waits until a draft is held, and returns it.
func (r *running) awaitHeld(t *testing.T, lost string) compiler.ShrinkError {
	t.Helper()
	var held *compiler.ShrinkError
	await(t, "draft held", func() error {
		err := r.status.Ready()
		if !errors.As(err, &held) || held.Lost != lost || !strings.Contains(err.Error(), held.Approval()) {
			return fmt.Errorf("ready says %v", err)
		}
		return nil
	})
	r.awaitMetric(t, "hapsnap_compiler_held_drafts", 1)
	return *held
}

func TestRunHoldsAMassLoss(t *testing.T) {
	t.Parallel()
	r := prepare(t, map[string]string{"all.yaml": manifestsOf(tenants(20)...)})
	stop := r.start(t, config.Default())
	first := r.awaitRoute(t, "tenant-19.example", true)
	r.write(t, "all.yaml", manifestsOf(tenants(8)...))
	r.awaitHeld(t, "12 of 20 backends gone, 12 of 20 hosts gone")
	r.write(t, "all.yaml", manifestsOf(tenants(7)...))
	held := r.awaitHeld(t, "13 of 20 backends gone, 13 of 20 hosts gone")
	if s, n, _ := r.store.newest(); n != 1 || s.ID() != first.ID() {
		t.Errorf("%d snapshots, newest %s", n, s.ID())
	}

	// A restart changes nothing, nor does an approval of something else.
	stop()
	c := config.Default()
	c.ShrinkGuard.Approve = "0123456789"
	stop = r.start(t, c)
	if again := r.awaitHeld(t, held.Lost); again != held {
		t.Errorf("held %+v after a restart, %+v before", again, held)
	}
	stop()
	c.ShrinkGuard.Approve = held.Digest.Short()
	r.start(t, c)
	if s := r.awaitRoute(t, "tenant-19.example", false); s.Manifest.Spec.Digest != held.Digest || s.Manifest.Spec.Parent != first.ID() {
		t.Errorf("published %s after %s", s.ID(), s.Manifest.Spec.Parent)
	}
	await(t, "ready", r.status.Ready)
	r.awaitMetric(t, "hapsnap_compiler_held_drafts", 0)
}

// What is no mass loss any more needs no approval.
func TestRunPublishesWhatCameBack(t *testing.T) {
	t.Parallel()
	r := run(t, map[string]string{"all.yaml": manifestsOf(tenants(20)...)})
	r.awaitRoute(t, "tenant-19.example", true)
	r.write(t, "all.yaml", manifestsOf(tenants(2)...))
	r.awaitHeld(t, "18 of 20 backends gone, 18 of 20 hosts gone")
	r.write(t, "all.yaml", manifestsOf(tenants(19)...))
	r.awaitRoute(t, "tenant-19.example", false)
	r.awaitRoute(t, "tenant-18.example", true)
	await(t, "ready", r.status.Ready)
	r.awaitMetric(t, "hapsnap_compiler_held_drafts", 0)
	if _, n, _ := r.store.newest(); n != 2 {
		t.Errorf("%d snapshots, want the one with 20 and the one with 19", n)
	}
}
