package cli

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/testing/output"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// log collects what a command logs.
type log struct{ output.Buffer }

func newLog() *log { return &log{} }

var serving = regexp.MustCompile(`"serving health and metrics","address":"([^"]+)"`)

// address waits for the line that says where it serves.
func (l *log) address(t *testing.T) string {
	t.Helper()
	var found []string
	eventually(t, func() bool { found = serving.FindStringSubmatch(l.String()); return found != nil })
	return found[1]
}

// get waits for an answer that holds a text.
func get(t *testing.T, url, part string) {
	t.Helper()
	eventually(t, func() bool {
		response, err := http.Get(url)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode == http.StatusOK && strings.Contains(string(body), part)
	})
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatal("waited in vain")
		case <-look.C:
		}
	}
}

func TestRefusedNetworks(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	for words, want := range map[string][]netip.Prefix{
		"default":              append(slices.Clone(live.DefaultRefused), netip.MustParsePrefix("10.96.0.1/32")),
		"none":                 nil,
		"10.0.0.0/8,192.0.2.1": {netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32")},
	} {
		f := runFlags{refuse: strings.Split(words, ","), allow: []string{"127.0.0.0/8"}}
		if err := f.refusals(); err != nil || !slices.Equal(f.options.RefuseEndpoints, want) || len(f.options.AllowEndpoints) != 1 {
			t.Errorf("%s: %v, %v", words, f.options.RefuseEndpoints, err)
		}
	}
	for _, word := range []string{"10.0.0.1/8", "example.com", "", "none,default"} {
		f := runFlags{refuse: strings.Split(word, ",")}
		if err := f.refusals(); process.Code(t.Context(), err) != process.ExitUsage {
			t.Errorf("%q: %v", word, err)
		}
	}
}

// The pusher serves its health, metrics and status, and stops when it is asked to.
func TestServe(t *testing.T) {
	_, url, _ := filledStore(t)
	dir := t.TempDir()
	fleet := filepath.Join(dir, "fleet.yaml")
	if err := os.WriteFile(fleet, []byte("apiVersion: hapsnap.dev/v1alpha1\nkind: Fleet\nmetadata: {name: edge}\nspec:\n  instances: [{name: a, url: http://127.0.0.1:9}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	root := NewCommand()
	root.SetArgs([]string{"run", "--store", url, "--instances", fleet, "--state", filepath.Join(dir, "state.json"), "--metrics-address", "127.0.0.1:0", "--log-format", "json"})
	log := newLog()
	root.SetErr(log)
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	address := log.address(t)
	get(t, "http://"+address+"/readyz", "ok")
	get(t, "http://"+address+"/healthz", "ok")
	get(t, "http://"+address+"/metrics", "hapsnap_pusher_instances_in_sync 0")
	get(t, "http://"+address+"/status", `"message":"r000003-`)
	stop()
	if err := <-done; err != nil {
		t.Errorf("it ended with: %v", err)
	}
}

// A pusher that serves the page stops when it is asked to.
func TestServeThePage(t *testing.T) {
	_, url, _ := filledStore(t)
	dir := t.TempDir()
	fleet := filepath.Join(dir, "fleet.yaml")
	if err := os.WriteFile(fleet, []byte("apiVersion: hapsnap.dev/v1alpha1\nkind: Fleet\nmetadata: {name: edge}\nspec:\n  instances: [{name: a, url: http://127.0.0.1:9}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	root := NewCommand()
	root.SetArgs([]string{"run", "--store", url, "--instances", fleet, "--state", filepath.Join(dir, "state.json"), "--ui-address", "127.0.0.1:0", "--log-format", "json"})
	log := newLog()
	root.SetErr(log)
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	var page []string
	eventually(t, func() bool {
		page = regexp.MustCompile(`"serving the page","address":"([^"]+)"`).FindStringSubmatch(log.String())
		return page != nil
	})
	get(t, "http://"+page[1]+"/", "edge")
	stop()
	if err := <-done; err != nil {
		t.Errorf("it ended with: %v", err)
	}
}
