package config

import (
	"slices"
	"testing"
)

// Impossible values of what concerns connections are reported at their place.
func TestCheckOfTCPServices(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"tcpServices: [{port: 5432, service: 'shop/db:postgres', sni: ['*.db.example'], tls: {secret: shop/tls}, sendProxyProtocol: 2}]": nil,
		"tcpServices: [{port: 0, service: 'shop/db:1'}]":                                                              {"spec.tcpServices[0].port: 0 is not a port"},
		"tcpServices: [{port: 443, service: 'shop/db:1'}]":                                                            {"spec.tcpServices[0].port: is the port of https.port"},
		"tcpServices: [{port: 5432, service: shop/db}]":                                                               {`spec.tcpServices[0].service: "shop/db" is not a port of a Service`},
		"tcpServices: [{port: 5432, service: 'db:1'}]":                                                                {`spec.tcpServices[0].service: "db:1" is not a port of a Service`},
		"tcpServices: [{port: 5432, service: 'a/b:0'}]":                                                               {`spec.tcpServices[0].service: "a/b:0" is not a port of a Service`},
		"tcpServices: [{port: 1, service: 'a/b:1'}, {port: 1, service: 'a/c:1'}]":                                     {"spec.tcpServices[1].port: is that of an entry further up"},
		"tcpServices: [{port: 1, service: 'a/b:1', sni: [x.example]}, {port: 1, service: 'a/c:1'}]":                   nil,
		"tcpServices: [{port: 1, service: 'a/b:1', sni: [x.example]}, {port: 1, service: 'a/c:1', sni: [x.example]}]": {"spec.tcpServices[1].sni: is that of an entry further up"},
		"tcpServices: [{port: 1, service: 'a/b:1', sni: [X]}]":                                                        {`spec.tcpServices[0].sni[0]: "X" is not the name of a host`},
		"tcpServices: [{port: 1, service: 'a/b:1', tls: {secret: tls}}]":                                              {`spec.tcpServices[0].tls.secret: "tls" is not a Secret`},
		"tcpServices: [{port: 1, service: 'a/b:1', proxyProtocol: {trusted: [10.0.0.1/8]}}]":                          {`spec.tcpServices[0].proxyProtocol.trusted[0]: "10.0.0.1/8" is not a network`},
		"tcpServices: [{port: 1, service: 'a/b:1', sendProxyProtocol: 3}]":                                            {"spec.tcpServices[0].sendProxyProtocol: 3 is not a version of the PROXY protocol"},
		"tcpAnnotations: {ports: [9099-9000, x, '70000', 1-65535], namespaces: [A/b]}": {
			`spec.tcpAnnotations.ports[0]: "9099-9000" is neither a port nor a range of ports`,
			`spec.tcpAnnotations.ports[1]: "x" is neither a port nor a range of ports`,
			`spec.tcpAnnotations.ports[2]: "70000" is neither a port nor a range of ports`,
			`spec.tcpAnnotations.namespaces[0]: "A/b" is not a namespace`,
		},
		"snippets: {namespaces: ['*', shop, 'x y']}": {`spec.snippets.namespaces[2]: "x y" is not a namespace`},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			_, found := Parse("c.yaml", []byte(head+"spec:\n  "+text+"\n"))
			var got []string
			for _, d := range found {
				got = append(got, d.Message)
			}
			slices.Sort(got)
			if !slices.Equal(got, slices.Sorted(slices.Values(want))) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// A port is for annotations only if it is listed.
func TestAllowsPort(t *testing.T) {
	t.Parallel()
	a := TCPAnnotations{Ports: []string{"5432", "9000-9099"}}
	for port, want := range map[int]bool{5431: false, 5432: true, 5433: false, 8999: false, 9000: true, 9099: true, 9100: false} {
		if a.AllowsPort(port) != want {
			t.Errorf("port %d: %v", port, !want)
		}
	}
	if (TCPAnnotations{}).AllowsPort(5432) || Default().TCPAnnotations.AllowsPort(5432) {
		t.Error("a port may be opened that nobody listed")
	}
}
