package instancetest

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hapsnap/hapsnap/charts/charttest"
)

// HAProxy accepts the first configuration. It has a limit of connections, and listens for probes on the same
// address as later configurations.
func TestFirstConfiguration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ addresses, want string }{
		"default":  {"", "    bind *:8404\n"},
		"variable": {`["${HOST_IP}"]`, "    bind \"${HOST_IP}:8404\"\n"},
		"both":     {`["::"]`, "    bind *:8404\n    bind [::]:8404 v6only\n"},
		"listed":   {`["192.0.2.1","2001:db8::1"]`, "    bind 192.0.2.1:8404\n    bind [2001:db8::1]:8404\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var values []string
			if c.addresses != "" {
				values = []string{"--set-json", "compiler.config.bind.addresses=" + c.addresses}
			}
			text := firstConfiguration(t, values...)
			path := filepath.Join(t.TempDir(), "haproxy.cfg")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"\n    maxconn 1000\n", "\nfrontend status\n" + c.want + "    monitor-uri /healthz\n"} {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in\n%s", want, text)
				}
			}
			check := exec.CommandContext(t.Context(), cmp.Or(os.Getenv("HAPROXY"), "haproxy"), "-c", "-f", path)
			check.Env = append(os.Environ(), "HOST_IP=192.0.2.9")
			if out, err := check.CombinedOutput(); err != nil || strings.Contains(string(out), "WARNING") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// firstConfiguration is the configuration that the chart renders for the start of a pod.
func firstConfiguration(t *testing.T, values ...string) string {
	t.Helper()
	text, err := charttest.Template(t, "helm", "edge", append(values, "--show-only", "templates/haproxy/config.yaml")...)
	if err != nil {
		t.Fatal(err)
	}
	data, _, err := unstructured.NestedStringMap(charttest.Objects(t, text)[0].Object, "data")
	if err != nil || len(data) != 1 {
		t.Fatalf("files %v: %v", data, err)
	}
	return data["bootstrap.cfg"]
}
