package config

import "testing"

func TestIngressStatusIsChecked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status IngressStatus
		want   string
	}{
		"nothing":        {IngressStatus{}, ""},
		"a Service":      {IngressStatus{Service: "edge/haproxy"}, ""},
		"addresses":      {IngressStatus{Addresses: []string{"192.0.2.1", "2001:db8::1", "edge.example.com"}}, ""},
		"no namespace":   {IngressStatus{Service: "haproxy"}, `spec.ingressStatus.service: "haproxy" is not namespace/name`},
		"both":           {IngressStatus{Service: "edge/haproxy", Addresses: []string{"192.0.2.1"}}, "spec.ingressStatus.addresses: are given besides a Service"},
		"not an address": {IngressStatus{Addresses: []string{"192.0.2.1", "https://edge"}}, `spec.ingressStatus.addresses[1]: "https://edge" is neither an IP address nor a host name`},
		"a zone":         {IngressStatus{Addresses: []string{"fe80::1%eth0"}}, `spec.ingressStatus.addresses[0]: "fe80::1%eth0" is neither an IP address nor a host name`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := Default()
			c.IngressStatus = test.status
			text := ""
			for _, f := range c.Check() {
				text += f.Error()
			}
			if text != test.want {
				t.Errorf("got %s, want %s", text, test.want)
			}
		})
	}
}
