package kubeconfig

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

const file = `apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: one, cluster: {server: "https://one.example"}}
- {name: two, cluster: {server: "https://two.example"}}
contexts:
- {name: one, context: {cluster: one}}
- {name: two, context: {cluster: two}}
`

func TestLoad(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	for context, host := range map[string]string{"": "https://one.example", "two": "https://two.example"} {
		config, err := Options{File: path, Context: context, UserAgent: "test/1"}.Load()
		if err != nil || config.Host != host || config.UserAgent != "test/1" {
			t.Errorf("context %q: %v, %v", context, config, err)
		}
	}
	for _, bad := range []struct {
		options Options
		want    string
	}{
		{Options{}, "connect as a pod"},
		{Options{File: path, Context: "three"}, `context "three" does not exist`},
		{Options{File: path + ".gone"}, "read kubeconfig " + path + ".gone"},
	} {
		if _, err := bad.options.Load(); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%+v: %v", bad.options, err)
		}
	}
}

// A read that meets a passing fault of the server is repeated. A write is not, nor is what the server refuses, and a
// fault that stays is returned.
func TestReadsAreRepeated(t *testing.T) {
	faults, calls := 0, 0
	status := http.StatusInternalServerError
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls++; calls <= faults {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "message": "etcdserver: request timed out", "code": %d}`, status)
			return
		}
		fmt.Fprint(w, "ok")
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(file, "https://one.example", server.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := Options{File: path}.Load()
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, test := range []struct {
		method         string
		status, faults int
		want           string
	}{
		{http.MethodGet, 500, 2, "200 after 3"},
		{http.MethodGet, 503, 3, "200 after 4"},
		{http.MethodGet, 500, 9, "500 after 4"},
		{http.MethodGet, 403, 9, "403 after 1"},
		{http.MethodPost, 500, 9, "500 after 1"},
	} {
		status, faults, calls = test.status, test.faults, 0
		request, err := http.NewRequestWithContext(t.Context(), test.method, server.URL+"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if got := fmt.Sprintf("%d after %d", answer.StatusCode, calls); got != test.want {
			t.Errorf("%s with %d times %d: %s, want %s", test.method, test.faults, test.status, got, test.want)
		}
	}
	request, err := http.NewRequestWithContext(ended, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := client.Do(request); err == nil {
		_ = answer.Body.Close()
		t.Error("a request is sent although nobody waits for it")
	}
}
