package routingtest

import (
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
)

// The example of docs/reference/configuration.md gives something that HAProxy accepts
// without a warning.
func TestConfigurationExample(t *testing.T) {
	t.Parallel()
	cfg, _, found, err := config.Read("../config/testdata/example.yaml")
	if err != nil || len(found) > 0 {
		t.Fatal(err, found)
	}
	i := ingress{class: cfg.IngressClass, rules: []string{"shop.example P / a"}}
	result, _ := compile(t, common(t)+i.yaml(), cfg)
	if len(result.Diagnostics) > 0 {
		t.Error(result.Diagnostics)
	}
}
