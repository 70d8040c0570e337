package compiler_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// told is what an announcer was told last.
type told struct {
	mu        sync.Mutex
	found     []diag.Diagnostic
	served    map[diag.Object]bool
	ingresses int
	where     config.IngressStatus
}

func (a *told) Compiled(_ inputs.Inputs, found []diag.Diagnostic) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.found = found
}

func (a *told) Published(in inputs.Inputs, served map[diag.Object]bool, c config.IngressStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.served, a.ingresses, a.where = served, len(in.Ingresses), c
}

func (a *told) text() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := slices.SortedFunc(maps.Keys(a.served), diag.Object.Compare)
	return fmt.Sprintf("found %d, served %v of %d at %v", len(a.found), names, a.ingresses, a.where.Addresses)
}

// An announcer hears of every compile, and of what is published when it is. Who
// protects something and is at fault answers with 503, at the same address.
func TestAnAnnouncerIsTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "web.yaml", manifest("web", "5s"))
	put(t, dir, "other.yaml", strings.Replace(manifest("other", "5s"), "ingressClassName: hapsnap", "ingressClassName: another", 1))
	put(t, dir, "shut.yaml", strings.Replace(manifest("shut", "5s"), "{example.com/timeout: \"5s\"}", "{hapsnap.dev/allow-list: nobody}", 1))
	put(t, dir, "lost.yaml", strings.Replace(manifest("lost", "5s"), "path: /,", "path: \"\",", 1))
	heard := &told{}
	c := runCandidate(t, dir, &held{Store: dirstore.Open(filepath.Join(t.TempDir(), "store"), dirstore.Options{})}, func(o *compiler.Options) {
		o.Announcer = heard
		o.Source.Config.IngressStatus.Addresses = []string{"192.0.2.1"}
	})
	say := func(want string) {
		t.Helper()
		await(t, "announcer", func() error {
			if got := heard.text(); got != want {
				return fmt.Errorf("told %q, want %q", got, want)
			}
			return nil
		})
	}
	say("found 2, served [] of 0 at []")
	c.set(true)
	// The host of what is left out is held, so that DNS keeps it.
	say("found 2, served [Ingress shop/lost Ingress shop/shut Ingress shop/web] of 4 at [192.0.2.1]")
	put(t, dir, "lost.yaml", manifest("lost", "5s"))
	say("found 1, served [Ingress shop/lost Ingress shop/shut Ingress shop/web] of 4 at [192.0.2.1]")
}
