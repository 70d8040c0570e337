package kubeconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
