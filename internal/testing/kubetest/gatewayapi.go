package kubetest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// GatewayAPI returns the folder of the CustomResourceDefinitions of the Gateway API's standard channel, as
// its module has them.
func GatewayAPI(tb testing.TB) string {
	tb.Helper()
	dir, err := GatewayAPIFolder()
	if err != nil {
		tb.Fatalf("find the module of the Gateway API: %v", err)
	}
	return dir
}

// GatewayAPIFolder is [GatewayAPI] where there is no test.
var GatewayAPIFolder = sync.OnceValues(func() (string, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	return filepath.Join(strings.TrimSpace(string(dir)), "config", "crd", "standard"), err
})
