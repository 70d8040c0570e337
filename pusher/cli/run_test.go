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

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/internal/testing/eventually"
	"github.com/hapsnap/hapsnap/internal/testing/output"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// log collects what a command logs.
type log struct{ output.Buffer }

func newLog() *log { return &log{} }

// address waits until something is served, and returns its address.
func (l *log) address(t *testing.T, of string) string {
	t.Helper()
	serving := regexp.MustCompile(`"serving ` + of + `","address":"([^"]+)"`)
	var found []string
	eventually.Holds(t, "it serves", func() bool { found = serving.FindStringSubmatch(l.String()); return found != nil })
	return found[1]
}

// get waits for a response that contains a text.
func get(t *testing.T, url, part string) {
	t.Helper()
	eventually.Holds(t, "the text is there", func() bool {
		response, err := http.Get(url)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode == http.StatusOK && strings.Contains(string(body), part)
	})
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

// startRun runs the pusher with additional flags, for an unreachable fleet. It returns the log, and a function
// that stops the pusher. The test fails if the pusher ends with an error.
func startRun(t *testing.T, flags ...string) (out *log, stop func()) {
	t.Helper()
	_, url, _ := filledStore(t)
	dir := t.TempDir()
	fleet := filepath.Join(dir, "fleet.yaml")
	if err := os.WriteFile(fleet, []byte("apiVersion: hapsnap.dev/v1alpha1\nkind: Fleet\nmetadata: {name: edge}\nspec:\n  instances: [{name: a, url: http://127.0.0.1:9}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	root := NewCommand()
	root.SetArgs(append([]string{"run", "--store", url, "--instances", fleet, "--state", filepath.Join(dir, "state.json"), "--log-format", "json"}, flags...))
	out = newLog()
	root.SetErr(out)
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	return out, func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("it ended with: %v", err)
		}
	}
}

// The pusher serves its health, metrics and status. It stops when it is asked to.
func TestServe(t *testing.T) {
	log, stop := startRun(t, "--metrics-address", "127.0.0.1:0")
	address := log.address(t, "health and metrics")
	get(t, "http://"+address+"/readyz", "ok")
	get(t, "http://"+address+"/healthz", "ok")
	get(t, "http://"+address+"/metrics", "hapsnap_pusher_instances_in_sync 0")
	get(t, "http://"+address+"/status", `"message":"r000003-`)
	stop()
}

// A pusher that serves the page stops when it is asked to.
func TestServeThePage(t *testing.T) {
	log, stop := startRun(t, "--ui-address", "127.0.0.1:0")
	get(t, "http://"+log.address(t, "the page")+"/", "edge")
	stop()
}
