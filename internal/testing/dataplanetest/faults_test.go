package dataplanetest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

func start(t *testing.T, o dataplanetest.Options) (*dataplanetest.Instance, *dataplane.Client) {
	t.Helper()
	i := dataplanetest.Start(t, o)
	c, err := dataplane.New(dataplane.Options{URL: i.URL(), Username: "admin", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	return i, c
}

// renamed returns the configuration of an instance with another node.
func renamed(t *testing.T, i *dataplanetest.Instance, node string) []byte {
	t.Helper()
	text, err := i.Config()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text, "\n")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(strings.TrimSpace(l), "node ") })
	lines[at] = "  node " + node
	return []byte(strings.Join(lines, "\n"))
}

func node(t *testing.T, c *dataplane.Client) string {
	t.Helper()
	info, err := c.RuntimeInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.Node
}

func version(t *testing.T, c *dataplane.Client) int64 {
	t.Helper()
	v, err := c.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// For each failure of a post: what the client is told, and what happened to the post.
func TestFaultsOfAPost(t *testing.T) {
	tests := []struct {
		name      string
		fault     dataplanetest.Fault
		want      error // nil: the post succeeds
		committed bool
		status    int
	}{
		{"401", dataplanetest.Answer(401), dataplane.ErrUnauthorized, false, 401},
		{"409", dataplanetest.Answer(409), dataplane.ErrConflict, false, 409},
		{"429", dataplanetest.Answer(429), dataplane.ErrTooMany, false, 429},
		{"500", dataplanetest.Answer(500), dataplane.ErrUnavailable, false, 500},
		{"503", dataplanetest.Answer(503), dataplane.ErrUnavailable, false, 503},
		{"slow", dataplanetest.Slow(time.Millisecond), nil, true, 201},
		{"cut before", dataplanetest.CutBefore(), dataplane.ErrUnknownOutcome, false, 0},
		{"cut after", dataplanetest.CutAfter(), dataplane.ErrUnknownOutcome, true, 0},
		{"disk full", dataplanetest.DiskFull(), dataplane.ErrUnavailable, false, 500},
		{"reload fails", dataplanetest.FailReload("[ALERT] made up"), dataplane.ErrReload, true, 400},
		{"no socket", dataplanetest.MasterSocketGone(), dataplane.ErrReload, true, 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			i, c := start(t, dataplanetest.Options{})
			good, err := c.PostRaw(t.Context(), renamed(t, i, "good"), dataplane.PostOptions{Version: 1, ForceReload: true})
			if err != nil {
				t.Fatal(err)
			}
			i.Inject(tt.fault.On("POST", "/configuration/raw").Times(1))
			_, err = c.PostRaw(t.Context(), renamed(t, i, "next"), dataplane.PostOptions{Version: good.Version, ForceReload: true})
			if !errors.Is(err, tt.want) {
				t.Errorf("the client was told %v, want %v", err, tt.want)
			}
			if got := version(t, c) > good.Version; got != tt.committed {
				t.Errorf("committed: %v, want %v", got, tt.committed)
			}
			wantNode := "good"
			if tt.committed && !errors.Is(err, dataplane.ErrReload) {
				wantNode = "next"
			}
			if got := node(t, c); got != wantNode {
				t.Errorf("the worker runs %s, want %s", got, wantNode)
			}
			all := slices.DeleteFunc(i.Requests(), func(r dataplanetest.Request) bool { return r.Method != "POST" })
			if len(all) != 2 || all[1].Status != tt.status {
				t.Errorf("the posts were %+v", all)
			}
			again, err := c.PostRaw(t.Context(), renamed(t, i, "healed"), dataplane.PostOptions{Version: version(t, c), ForceReload: true})
			if err != nil || !strings.Contains(again.Config.String(), "node healed") || node(t, c) != "healed" {
				t.Errorf("the next post: %v", err)
			}
		})
	}
}

func TestHangLastsUntilTheClientLeaves(t *testing.T) {
	t.Parallel()
	i, c := start(t, dataplanetest.Options{})
	i.Inject(dataplanetest.Hang().On("", "/configuration"))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for i.Count("POST", "/configuration/raw") == 0 && ctx.Err() == nil {
			<-time.After(time.Millisecond)
		}
		cancel()
	}()
	_, err := c.PostRaw(ctx, renamed(t, i, "x"), dataplane.PostOptions{Version: 1})
	if !errors.Is(err, dataplane.ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
		t.Errorf("the client was told %v", err)
	}
	if got := node(t, c); got != "bootstrap" { // another path answers
		t.Errorf("the worker runs %s", got)
	}
	i.ClearFaults()
	if v := version(t, c); v != 1 {
		t.Errorf("the version is %d", v)
	}
}

func TestReloadThatFailsAfterItWasAccepted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault    dataplanetest.Fault
		response string
	}{
		"haproxy refuses": {dataplanetest.FailReload("[ALERT] made up"), "[ALERT] made up"},
		"no socket":       {dataplanetest.MasterSocketGone(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, c := start(t, dataplanetest.Options{})
			good, err := c.PostRaw(t.Context(), renamed(t, i, "good"), dataplane.PostOptions{Version: 1, ForceReload: true})
			if err != nil {
				t.Fatal(err)
			}
			i.Inject(tt.fault.On("POST", "/configuration/raw").Times(1))
			posted, err := c.PostRaw(t.Context(), renamed(t, i, "next"), dataplane.PostOptions{Version: good.Version})
			if err != nil {
				t.Fatal(err)
			}
			var r dataplane.Reload
			eventually.Holds(t, "the reload ends", func() bool {
				r, err = c.Reload(t.Context(), posted.ReloadID)
				return err == nil && r.Status != dataplane.ReloadInProgress
			})
			if r.Status != dataplane.ReloadFailed || r.Response != tt.response {
				t.Errorf("the reload is %+v", r)
			}
			raw, err := c.Raw(t.Context())
			if err != nil || raw.Config.String() != good.Config.String() || raw.Version != posted.Version || node(t, c) != "good" {
				t.Errorf("version %d is on disk (%v):\n%s", raw.Version, err, raw.Config)
			}
		})
	}
}

func TestFaultsOfStorage(t *testing.T) {
	t.Parallel()
	i, c := start(t, dataplanetest.Options{})
	i.Inject(dataplanetest.DiskFull().On("", "/storage").Times(1))
	err := c.CreateFile(t.Context(), dataplane.Maps, "a.map", []byte("a b\n"))
	if !errors.Is(err, dataplane.ErrUnavailable) || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("the client was told %v", err)
	}
	if files, err := c.Files(t.Context(), dataplane.Maps); err != nil || len(files) != 0 {
		t.Errorf("the maps are %v, %v", files, err)
	}
	if err := c.CreateFile(t.Context(), dataplane.Maps, "a.map", []byte("a b\n")); err != nil {
		t.Errorf("with space again: %v", err)
	}
}

func TestFaultsOfTheRuntime(t *testing.T) {
	t.Parallel()
	i, c := start(t, dataplanetest.Options{})
	i.Inject(dataplanetest.MasterSocketGone().On("GET", "/runtime").Times(2))
	if _, err := c.RuntimeInfo(t.Context()); !errors.Is(err, dataplane.ErrRuntime) {
		t.Errorf("the client was told %v", err)
	}
	if _, err := c.Servers(t.Context(), "be"); !errors.Is(err, dataplane.ErrNotFound) {
		t.Errorf("the client was told %v", err)
	}
	if got := node(t, c); got != "bootstrap" {
		t.Errorf("the worker runs %s", got)
	}
}

func TestFaultsAreTakenInTurn(t *testing.T) {
	t.Parallel()
	i, c := start(t, dataplanetest.Options{})
	i.Inject(
		dataplanetest.Answer(503).On("GET", "/configuration/version").Times(2),
		dataplanetest.Answer(429).On("GET", "/v3/services/haproxy/configuration/version").Times(1),
		dataplanetest.Answer(401).On("GET", "/v3/info"),
	)
	for _, want := range []error{dataplane.ErrUnavailable, dataplane.ErrUnavailable, dataplane.ErrTooMany, nil} {
		if _, err := c.Version(t.Context()); !errors.Is(err, want) {
			t.Errorf("the client was told %v, want %v", err, want)
		}
	}
	for range 3 {
		if _, err := c.Info(t.Context()); !errors.Is(err, dataplane.ErrUnauthorized) {
			t.Errorf("the client was told %v", err)
		}
	}
	if n := i.Count("GET", "/configuration/version"); n != 4 {
		t.Errorf("%d requests were counted", n)
	}
}
