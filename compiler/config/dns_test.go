package config

import (
	"fmt"
	"testing"
)

func TestNamesAreChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path   string
		change func(*Config)
	}{
		{"externalNames.policy", func(c *Config) { c.ExternalNames.Policy = "maybe" }},
		{"externalNames.domains", func(c *Config) { c.ExternalNames.Domains = []string{"partner.example", "*"} }},
		{"externalNames.domains", func(c *Config) { c.ExternalNames.Domains = []string{"a.*.example"} }},
		{"dns.nameservers", func(c *Config) { c.DNS.Nameservers = []string{"10.0.0.1", "ns.example"} }},
		{"dns.nameservers", func(c *Config) { c.DNS.Nameservers = []string{"fe80::1%eth0"} }},
		{"dns.nameservers", func(c *Config) { c.DNS.Nameservers = []string{"10.0.0.1:0"} }},
		{"dns.refresh", func(c *Config) { c.DNS.Refresh = "0s" }},
		{"dns.prefer", func(c *Config) { c.DNS.Prefer = "ipv5" }},
	} {
		cfg := Default()
		c.change(&cfg)
		Errors := cfg.Check()
		if len(Errors) != 1 || Errors[0].Hint == "" || Errors[0].Error()[:len("spec."+c.path)] != "spec."+c.path {
			t.Errorf("%s: %+v", c.path, Errors)
		}
	}
}

func TestNameserverAddresses(t *testing.T) {
	t.Parallel()
	d := DNS{Nameservers: []string{"10.96.0.10", "10.96.0.10:5353", "fd00::10", "[fd00::10]:54"}}
	if got, want := fmt.Sprint(d.Addresses()), "[10.96.0.10:53 10.96.0.10:5353 [fd00::10]:53 [fd00::10]:54]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
