package cli

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/process"
)

// A wrong value of a flag is a usage error that names the flag and says what is wrong, before anything is read or written.
func TestWrongValuesNameTheirFlag(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifests(t, filepath.Join(dir, "a"), "/")
	manifests(t, filepath.Join(dir, "b"), "/")
	a, b, out := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "out")
	render, run := []string{"render", "-f", a, "-o", out, "--haproxy", haproxy()}, []string{"run", "-f", a, "--store", "dir:" + out, "--haproxy", haproxy()}
	migrate := []string{"migrate", "-f", a, "--to", "gateway"}
	for _, c := range []struct {
		command []string
		args    string
		want    string
	}{
		{render, "-f " + b, `"` + a + `" is named already: name one directory that holds both`},
		{render, "--config " + a + " --config " + b, `"` + a + `" is named already: one file has all of the configuration`},
		{render, "--templates " + a + " --templates " + b, `"` + a + `" is named already: one directory has all templates that are not shipped`},
		{render, "--http-port 70000", "--http-port: 70000 is not a port"},
		{render, "--https-port 80", "--https-port: is the port of another listener"},
		{render, "--bind-address 10.0.0.1:80", `--bind-address: "10.0.0.1:80" is not an address`},
		{render, "--endpoints lvie", `--endpoints: "lvie" is neither live nor recorded`},
		{render, "--gateway-controller x", `--gateway-controller: "x" is not the name of a controller`},
		{run, "--metrics-address 8080", `--metrics-address: "8080" is not HOST:PORT`},
		{run, "--metrics-address :99999", `--metrics-address: ":99999" is not HOST:PORT`},
		{run, "--webhook-cert-dir " + a + " --webhook-address http://localhost:9443", `--webhook-address: "http://localhost:9443" is not HOST:PORT`},
		{run, "--min-interval 5", `"--min-interval" flag: want a duration such as 30m`},
		{run, "--min-interval -5s", `"--min-interval" flag: a duration is never negative`},
		{run, "--max-wait -1s", `"--max-wait" flag: a duration is never negative`},
		{run, "--lease edge/compiler", "--lease is for a compiler that follows a cluster"},
		{run, "--retry-period 1s", "--retry-period is for a compiler that follows a cluster"},
		{run, "--fleet-status configmap:edge/status", "--fleet-status is for a compiler that follows a cluster"},
		{run, "--fleet-status edge/status", "--fleet-status: "},
		{[]string{"rbac"}, "--fleet-status edge/status", "--fleet-status: "},
		{[]string{"status"}, "--address localhost", `--address: "localhost" is not HOST:PORT`},
		{[]string{"status"}, "--address http://localhost:8080", `--address: "http://localhost:8080" is not HOST:PORT`},
		{[]string{"diff", "", a}, "", "one of the two is empty"},
		{migrate, "--http-port 99999", "--http-port: 99999 is not a port"},
		{migrate, "--https-port -1", "--https-port: -1 is not a port"},
		{migrate, "--http-port 0 --https-port 0", "are both 0: nothing would be served"},
		{migrate, "--http-port 443", "--http-port and --https-port are both 443"},
		{migrate, "--gateway infra/My_Gateway", `--gateway: "My_Gateway" is not a name`},
		{migrate, "--gateway-class Hap_Snap", `--gateway-class: "Hap_Snap" is not a name`},
		{migrate, "--ingress-class Hap_Snap", `--ingress-class: "Hap_Snap" is not a name`},
		{[]string{"migrate", "-f", a}, "--class Hap_Snap", `--class: "Hap_Snap" is not a name`},
	} {
		args := append(slices.Clone(c.command), strings.Fields(c.args)...)
		if code, stdout, stderr := exec(t, args...); code != process.ExitUsage || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit code %d, %q, %q, want %q", args, code, stdout, stderr, c.want)
		}
	}
	// The same directory twice is no mistake.
	if code, _, stderr := exec(t, append(render, "-f", a)...); code != process.ExitOK || stderr != "" {
		t.Errorf("the same directory twice: exit code %d, %q", code, stderr)
	}
}

// Tests that are named twice, or with the folder that they are in, run once.
func TestPathsBelowOthersAreLeftOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ given, want string }{
		{"tests", "tests"},
		{"tests tests tests/", "tests"},
		{"tests/a.yaml tests tests/b.yaml", "tests"},
		{"tests tests2 tests2/a.yaml", "tests tests2"},
		{"a.yaml b.yaml a.yaml", "a.yaml b.yaml"},
		{". tests ../other", ". ../other"},
	} {
		if got := strings.Join(outermost(strings.Fields(c.given)), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.given, got, c.want)
		}
	}
}
