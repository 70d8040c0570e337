package gateway_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/gateway"
)

// wanted returns the Service of the only Gateway, and the findings.
func wanted(t *testing.T, cfg gateway.Config, objects string) (*gateway.Service, []string) {
	t.Helper()
	_, found, v := gateway.Translate(gathered(t, class+objects), cfg)
	var messages []string
	for _, d := range found {
		messages = append(messages, d.Message)
	}
	return v.Gateways[0].Service, messages
}

// A Gateway may bring to its Service what the configuration allows. The rest is reported.
func TestWhatAGatewayBringsToItsService(t *testing.T) {
	t.Parallel()
	const keys = "{example.com/a: '1', plain: '2', service.beta.kubernetes.io/aws-load-balancer-scheme: '3', hapsnap.dev/tcp-port: '4', gateway.hapsnap.dev/controller: '5', other.example.com/a: '6'}"
	infrastructure := object("Gateway", "web", "{gatewayClassName: hapsnap, infrastructure: {labels: {example.com/l: '1'}, annotations: "+keys+"}, listeners: [{name: http, port: 80, protocol: HTTP}]}")
	for name, test := range map[string]struct {
		allowed []string
		want    string
	}{
		"nothing":         {nil, ""},
		"all but a cloud": {[]string{"*"}, "example.com/a other.example.com/a plain"},
		"a key":           {[]string{"plain"}, "plain"},
		"a domain":        {[]string{"example.com/*"}, "example.com/a"},
		"a cloud's":       {[]string{"service.beta.kubernetes.io/*"}, "service.beta.kubernetes.io/aws-load-balancer-scheme"},
		"never ours":      {[]string{"hapsnap.dev/*", "hapsnap.dev/tcp-port", "gateway.hapsnap.dev/controller"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := usual
			cfg.Services = gateway.Services{Enabled: true, Annotations: test.allowed}
			s, found := wanted(t, cfg, infrastructure)
			got := slices.Sorted(maps.Keys(s.Annotations))
			if strings.Join(got, " ") != test.want {
				t.Errorf("brought %v, want %s", got, test.want)
			}
			if len(found) != 7-len(got) || !slices.Contains(found, "example.com/l is left out of the Service: gatewayAPI.services.labels of the configuration does not allow it") {
				t.Errorf("found %q", found)
			}
			if s.Labels["gateway.networking.k8s.io/gateway-name"] != "web" || len(s.Labels) != 2 {
				t.Errorf("labels %v", s.Labels)
			}
		})
	}
	s, found := wanted(t, usual, infrastructure)
	if s != nil || len(found) != 1 || !strings.Contains(found[0], "makes none") {
		t.Errorf("without the switch: %+v, %q", s, found)
	}
}

// Names are NAME-CLASS if Kubernetes accepts that, and otherwise different. Each name is unique.
func TestNamesOfServices(t *testing.T) {
	t.Parallel()
	cfg := usual
	cfg.Services.Enabled = true
	seen := map[string]bool{}
	long := strings.Repeat("long", 20)
	for _, name := range []string{"web", "web.shop", "web-shop", "1st", long + ".a", long + ".b", strings.Repeat("a", 53) + "." + long} {
		s, _ := wanted(t, cfg, object("Gateway", name, "{gatewayClassName: hapsnap, listeners: [{name: http, port: 80, protocol: HTTP}]}"))
		if wrong := validation.IsDNS1035Label(s.Name); len(wrong) > 0 || seen[s.Name] {
			t.Errorf("%s has the Service %s: %v", name, s.Name, wrong)
		}
		seen[s.Name] = true
		for key, value := range s.Labels {
			if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
				t.Errorf("%s: label %s: %v", name, key, wrong)
			}
		}
	}
	if !seen["web-hapsnap"] || !seen["web-shop-hapsnap"] {
		t.Errorf("names %v", seen)
	}
}

// The ports are those that are served. A Gateway that is not served has none.
func TestPortsOfServices(t *testing.T) {
	t.Parallel()
	cfg := usual
	cfg.Services.Enabled = true
	for spec, want := range map[string]string{
		"listeners: [{name: a, port: 80, protocol: HTTP}, {name: b, port: 80, protocol: HTTP, hostname: b.example}, {name: c, port: 53, protocol: UDP}, {name: d, port: 90, protocol: TCP}]": "[80 90]",
		"infrastructure: {parametersRef: {group: '', kind: ConfigMap, name: x}}, listeners: [{name: a, port: 80, protocol: HTTP}]":                                                           "[]",
		"listeners: [{name: a, port: 443, protocol: HTTP}]": "[]", // another listener has the port
	} {
		s, _ := wanted(t, cfg, object("Gateway", "web", "{gatewayClassName: hapsnap, "+spec+"}"))
		if got := fmt.Sprint(s.Ports); got != want {
			t.Errorf("%s: ports %s, want %s", spec, got, want)
		}
	}
}
