package validate_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/logs"
	"github.com/hapsnap/hapsnap/compiler/validate"
)

// A configuration without settings to check needs no run of HAProxy.
func TestSettingsOfDefaultCostNothing(t *testing.T) {
	t.Parallel()
	c := &validate.Checker{Path: "/none"}
	if faults, err := c.Settings(t.Context(), config.Default()); err != nil || len(faults) > 0 {
		t.Error(err, faults)
	}
	cfg := config.Default()
	cfg.TLS.Curves = []string{"X25519"}
	if _, err := c.Settings(t.Context(), cfg); err == nil {
		t.Error("no error, though there is no haproxy")
	}
}

// Each fault names the element, or the list if no single element is at fault.
func TestSettings(t *testing.T) {
	t.Parallel()
	c := find(t)
	for name, tt := range map[string]struct {
		edit func(*config.Config)
		want []string // the paths
	}{
		"good": {func(c *config.Config) {
			c.TLS.Ciphers = []string{"DEFAULT@SECLEVEL=0", "!MD5", "AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA"}
			c.TLS.CipherSuites, c.TLS.Curves = []string{"TLS_AES_128_GCM_SHA256"}, []string{"X25519", "P-256", "secp521r1"}
			c.Log.Format = `it's %ci "%[ssl_fc_sni]" %{+Q}r`
		}, nil},
		"elements": {func(c *config.Config) {
			c.TLS.Ciphers = []string{"AES128-GCM-SHA256", "AES-129", "DEFAULT", "CHACHA"}
			c.TLS.Curves = []string{"X25518"}
		}, []string{"tls.ciphers.1", "tls.ciphers.3", "tls.curves.0"}},
		"elements and a line that cannot be read": {func(c *config.Config) {
			c.TLS.Ciphers, c.TLS.CipherSuites = []string{"AES128-GCM-SHA256", "AES-129"}, []string{"TLS_BANANA"}
			c.Log.Format = "%[banana]"
		}, []string{"log.format", "tls.cipherSuites.0", "tls.ciphers.1"}},
		"no cipher at all":  {func(c *config.Config) { c.TLS.Ciphers = []string{"AES128-GCM-SHA256", "!ALL"} }, []string{"tls.ciphers"}},
		"only instructions": {func(c *config.Config) { c.TLS.Ciphers = []string{"!MD5"} }, []string{"tls.ciphers"}},
		"JSON":              {func(c *config.Config) { c.Log.Format = logs.JSON }, nil},
		"variable":          {func(c *config.Config) { c.Log.Format = "%nothing" }, []string{"log.format"}},
		"open bracket":      {func(c *config.Config) { c.Log.Format = "%[src" }, []string{"log.format"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config.Default()
			tt.edit(&cfg)
			if faults := cfg.Check(); len(faults) > 0 {
				t.Fatal(faults)
			}
			faults, err := c.Settings(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range faults {
				got = append(got, strings.Join(f.Path, "."))
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v: %v", got, tt.want, faults)
			}
		})
	}
}
