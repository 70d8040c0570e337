package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
)

const head = "apiVersion: hapsnap.dev/v1alpha1\nkind: CompilerConfig\n"

func TestDefaultIsValid(t *testing.T) {
	t.Parallel()
	if Errors := Default().Check(); len(Errors) > 0 {
		t.Error(Errors)
	}
}

func TestParseKeepsDefaults(t *testing.T) {
	t.Parallel()
	got, ds := Parse("c.yaml", []byte(head+`metadata: {name: edge}
spec:
  http: {port: 8080}
  bind:
    addresses: ["${POD_IP}", "::1"]
  timeouts:
    connect: 300ms
`))
	want := Default()
	want.HTTP.Port = 8080
	want.Bind.Addresses = []string{"${POD_IP}", "::1"}
	want.Timeouts.Connect = "300ms"
	if diff := cmp.Diff(want, got); diff != "" || len(ds) > 0 {
		t.Errorf("%v\n%s", ds, diff)
	}
}

func TestParseReportsPosition(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"empty":          {"", "c.yaml: is not a CompilerConfig\n\thint: begin with apiVersion: hapsnap.dev/v1alpha1 and kind: CompilerConfig"},
		"another kind":   {"kind: ConfigMap\n", "c.yaml:1:1: is \"ConfigMap\" of \"\", not a CompilerConfig\n\thint: begin with apiVersion: hapsnap.dev/v1alpha1 and kind: CompilerConfig"},
		"not YAML":       {"a: [\n", "c.yaml:1: not YAML: did not find expected node content"},
		"unknown field":  {head + "spec:\n  http: {prot: 80}\n", "c.yaml:4:10: spec.http.prot: unknown field\n\thint: did you mean port?"},
		"set twice":      {head + "spec:\n  http: {port: 80}\n  http: {port: 81}\n", "c.yaml:5:3: spec.http: is set twice"},
		"wrong type":     {head + "spec:\n  http:\n    port: eighty\n", "c.yaml:5:11: spec.http.port: want a number, not \"eighty\""},
		"null":           {head + "spec:\n  maxconn:\n", "c.yaml:4:11: spec.maxconn: want a number, not nothing"},
		"no fields":      {head + "spec:\n  http: 80\n", "c.yaml:4:9: spec.http: want fields, not \"80\""},
		"port":           {head + "spec:\n  http: {port: 70000}\n", "c.yaml:4:16: spec.http.port: 70000 is not a port\n\thint: use 1 to 65535, or 0 for no such listener"},
		"port twice":     {head + "spec:\n  status: {port: 443}\n", "c.yaml:4:18: spec.status.port: is the port of another listener\n\thint: give each listener a port of its own"},
		"default's port": {head + "spec:\n  http: {port: 443}\n", "c.yaml:4:3: spec.https.port: is the port of another listener\n\thint: give each listener a port of its own"},
		"duration":       {head + "spec:\n  timeouts: {client: 1m30s}\n", "c.yaml:4:22: spec.timeouts.client: \"1m30s\" is not a time\n\thint: use a number and a unit: us, ms, s, m, h or d, such as 30s"},
		"address":        {head + "spec:\n  bind:\n    addresses: ['x y']\n", "c.yaml:5:17: spec.bind.addresses[0]: \"x y\" is not an address\n\thint: use IP addresses, \"*\", or one \"${VARIABLE}\""},
		"no address":     {head + "spec:\n  bind:\n    addresses: []\n", "c.yaml:5:16: spec.bind.addresses: is empty: nothing would be served\n\thint: use IP addresses, \"*\", or one \"${VARIABLE}\""},
		"shared list":    {head + "spec:\n  shared: {networkLists: [geo]}\n", "c.yaml:4:27: spec.shared.networkLists[0]: \"geo\" is not namespace/name\n\thint: use the namespace and the name of a ConfigMap, such as edge/countries"},
		"key's Secret":   {head + "spec:\n  affinity: {keySecret: shop}\n", "c.yaml:4:25: spec.affinity.keySecret: \"shop\" is not namespace/name\n\thint: use the namespace and the name of a Secret, or leave it out"},
		"Secret's key":   {head + "spec:\n  affinity: {keySecret: a/b, key: 'x y'}\n", "c.yaml:4:35: spec.affinity.key: \"x y\" is not a key of a Secret\n\thint: use letters, digits, -, _ and ."},
		"approved":       {head + "spec:\n  shrinkGuard: {approve: r12}\n", "c.yaml:4:26: spec.shrinkGuard.approve: \"r12\" is not a digest\n\thint: use the one that compiler status names, such as 9f3ac01b2d"},
		"Gateway ports":  {head + "spec:\n  gatewayAPI: {ports: [80, 70000]}\n", "c.yaml:4:28: spec.gatewayAPI.ports[1]: \"70000\" is neither a port nor a range of ports\n\thint: use such as 5432 or 9000-9099"},
		"share lost":     {head + "spec:\n  shrinkGuard: {lostPercent: 101}\n", "c.yaml:4:30: spec.shrinkGuard.lostPercent: 101 is not a percentage\n\thint: use 1 to 100, or 0 for no guard"},
		"failure policy": {head + "spec:\n  admission: {failurePolicy: open}\n", "c.yaml:4:30: spec.admission.failurePolicy: \"open\" is neither Ignore nor Fail\n\thint: use Ignore or Fail"},
		"least lost":     {head + "spec:\n  shrinkGuard: {minLost: 0}\n", "c.yaml:4:26: spec.shrinkGuard.minLost: 0 is not a number of backends\n\thint: use 1 or more"},
		"two documents":  {head + "---\n" + head, "c.yaml:3:1: holds more than one document\n\thint: keep one CompilerConfig to a file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, ds := Parse("c.yaml", []byte(c.text))
			if len(ds) != 1 {
				t.Fatalf("got %v, want one diagnostic", ds)
			}
			if diff := cmp.Diff(c.want, ds[0].String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadOfMissingFileIsAnError(t *testing.T) {
	t.Parallel()
	if _, _, _, err := Read(filepath.Join(t.TempDir(), "none.yaml")); !os.IsNotExist(unwrap(err)) {
		t.Errorf("got %v, want that the file does not exist", err)
	}
}

func unwrap(err error) error {
	if w, ok := err.(interface{ Unwrap() error }); ok {
		return w.Unwrap()
	}
	return err
}

func TestCheckOfCertificates(t *testing.T) {
	t.Parallel()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	secret := identity.String()
	const good = "age1vumrp0fh3mgp9lnp58s2l5m7m26jvck2kja0au70075qlzaapgcqgjzpf9"
	for text, want := range map[string]string{
		"":                "",
		"mode: companion": "",
		"mode: exact":     "",
		"mode: sealed, recipients: [" + good + "]": "",
		"mode: latest":               `spec.certificates.mode: "latest" is none of reference, exact, sealed and companion`,
		"mode: sealed":               "spec.certificates.recipients: no recipient is named, so certificates cannot be sealed",
		"recipients: [" + good + "]": "spec.certificates.recipients: are never used: certificates are not sealed",
		"mode: sealed, recipients: [" + good + ", " + secret + "]": "spec.certificates.recipients[1]: is not a recipient of age",
		"mode: sealed, recipients: [alice]":                        "spec.certificates.recipients[0]: is not a recipient of age",
	} {
		_, found := Parse("c.yaml", []byte(head+"spec: {certificates: {"+text+"}}\n"))
		var got []string
		for _, d := range found {
			got = append(got, d.Message)
			if strings.Contains(d.Message, secret) {
				t.Errorf("%s: repeats an identity", text)
			}
			if d.Hint == "" || d.Position.Line != 3 {
				t.Errorf("%s: no hint, or another place", d)
			}
		}
		if strings.Join(got, "\n") != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

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

func TestApprovesOneDigest(t *testing.T) {
	t.Parallel()
	const digest = "sha256:9f3ac01b2d44f0a1"
	for approve, want := range map[string]bool{
		"9f3ac01b2d": true, "sha256:9f3ac01b2d": true, "9f3ac01b2d44f0a1": true,
		"": false, "9f3ac01b2e": false, "f3ac01b2d4": false, "9f3ac01b2d44f0a1ff": false,
	} {
		if got := (ShrinkGuard{Approve: approve}).Approves(digest); got != want {
			t.Errorf("approve %q: got %v, want %v", approve, got, want)
		}
	}
}

func TestStatusFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"addresses: ['10.0.0.300']":        `c.yaml:5:17: spec.status.addresses[0]: "10.0.0.300" is not an address` + "\n\thint: " + addressHint,
		"prometheus: {path: metrics}":      `c.yaml:5:24: spec.status.prometheus.path: "metrics" is not a path of plain words` + "\n\thint: use one such as /metrics",
		"stats: {path: '/a b'}":            `c.yaml:5:19: spec.status.stats.path: "/a b" is not a path of plain words` + "\n\thint: use one such as /metrics",
		"stats: {path: /metrics}":          "c.yaml:5:19: spec.status.stats.path: /metrics is the path of another page\n\thint: give each page a path of its own",
		"prometheus: {path: /ready}":       "c.yaml:5:24: spec.status.prometheus.path: /ready is the path of another page\n\thint: give each page a path of its own",
		"ready: {minBackendsPercent: 101}": "c.yaml:5:33: spec.status.ready.minBackendsPercent: 101 is not a percentage\n\thint: use 0 to 100",
		"ready: {maxQueued: -1}":           "c.yaml:5:24: spec.status.ready.maxQueued: -1 is not a number of requests\n\thint: use 1 or more, or 0 not to count them",
		"ready: {services: [web]}":         "c.yaml:5:24: spec.status.ready.services[0]: \"web\" is not namespace/name\n\thint: use the namespace and the name of a Service, such as shop/web",
		"ready: {minBackends: 1}":          "c.yaml:5:13: spec.status.ready.minBackends: unknown field\n\thint: did you mean minBackendsPercent?",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			_, found := Parse("c.yaml", []byte(head+"spec:\n  status:\n    "+text+"\n"))
			if len(found) != 1 {
				t.Fatal(found)
			}
			if diff := cmp.Diff(want, found[0].String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The addresses of Gateways must be possible addresses of machines, listed once, and not used by other
// listeners.
func TestCheckOfGatewayAPI(t *testing.T) {
	t.Parallel()
	nobodys := func(text string) []string {
		return []string{fmt.Sprintf("spec.gatewayAPI.addresses[0]: %q has addresses that no machine has", text)}
	}
	neither := func(text string) []string {
		return []string{fmt.Sprintf("spec.gatewayAPI.addresses[0]: %q is neither an IP address nor a network", text)}
	}
	noName := func(text string) []string {
		return []string{fmt.Sprintf("spec.gatewayAPI.controllerName: %q is not the name of a controller", text)}
	}
	long := "example.com/" + strings.Repeat("a", 241)
	checkFindings(t, map[string][]string{
		"gatewayAPI: {addresses: []}": nil,
		"gatewayAPI: {addresses: [192.0.2.10], services: {enabled: true, labels: ['*', example.com/*], annotations: [example.com/a.b, plain]}}": nil,
		"gatewayAPI: {services: {enabled: true}}":                                                    {"spec.gatewayAPI.services.enabled: Gateways have no addresses of their own for Services to lead to"},
		"gatewayAPI: {services: {type: ExternalName}}":                                               {`spec.gatewayAPI.services.type: "ExternalName" is not a type of Services for Gateways`},
		"gatewayAPI: {services: {labels: ['a*']}}":                                                   {`spec.gatewayAPI.services.labels[0]: "a*" is neither a key nor a pattern of keys`},
		"gatewayAPI: {services: {annotations: [x/y, '', /*]}}":                                       {`spec.gatewayAPI.services.annotations[1]: "" is neither a key nor a pattern of keys`, `spec.gatewayAPI.services.annotations[2]: "/*" is neither a key nor a pattern of keys`},
		"gatewayAPI: {addresses: [192.0.2.10, 192.0.2.16/28, '2001:db8::1', '2001:db8:1::/64']}":     nil,
		"gatewayAPI: {addresses: [192.0.2.20, 192.0.2.16/28]}":                                       nil, // the first one comes before the others
		"gatewayAPI: {addresses: ['']}":                                                              neither(""),
		"gatewayAPI: {addresses: ['*']}":                                                             neither("*"),
		"gatewayAPI: {addresses: ['${POD_IP}']}":                                                     neither("${POD_IP}"),
		"gatewayAPI: {addresses: [edge.example]}":                                                    neither("edge.example"),
		"gatewayAPI: {addresses: [' 192.0.2.1']}":                                                    neither(" 192.0.2.1"),
		"gatewayAPI: {addresses: ['192.0.2.1:80']}":                                                  neither("192.0.2.1:80"),
		"gatewayAPI: {addresses: [192.0.2.1-192.0.2.9]}":                                             neither("192.0.2.1-192.0.2.9"),
		"gatewayAPI: {addresses: [192.0.2.256]}":                                                     neither("192.0.2.256"),
		"gatewayAPI: {addresses: [192.0.2.17/28]}":                                                   neither("192.0.2.17/28"), // it has bits of a host
		"gatewayAPI: {addresses: ['2001:db8::1/64']}":                                                neither("2001:db8::1/64"),
		"gatewayAPI: {addresses: [192.0.2.0/33]}":                                                    neither("192.0.2.0/33"),
		"gatewayAPI: {addresses: ['fe80::1%eth0']}":                                                  neither("fe80::1%eth0"),
		"gatewayAPI: {addresses: [0.0.0.0]}":                                                         nobodys("0.0.0.0"),
		"gatewayAPI: {addresses: ['::']}":                                                            nobodys("::"),
		"gatewayAPI: {addresses: [0.0.0.0/0]}":                                                       nobodys("0.0.0.0/0"),
		"gatewayAPI: {addresses: ['::/0']}":                                                          nobodys("::/0"),
		"gatewayAPI: {addresses: [224.0.0.1]}":                                                       nobodys("224.0.0.1"),
		"gatewayAPI: {addresses: ['ff02::1']}":                                                       nobodys("ff02::1"),
		"gatewayAPI: {addresses: [255.255.255.255]}":                                                 nobodys("255.255.255.255"),
		"gatewayAPI: {addresses: ['::ffff:192.0.2.1']}":                                              nobodys("::ffff:192.0.2.1"), // another form of 192.0.2.1
		"gatewayAPI: {addresses: [192.0.2.1, 192.0.2.1]}":                                            {"spec.gatewayAPI.addresses[1]: is in 192.0.2.1/32, an entry further up"},
		"gatewayAPI: {addresses: [192.0.2.1, x, 192.0.2.1/32]}":                                      {`spec.gatewayAPI.addresses[1]: "x" is neither an IP address nor a network`, "spec.gatewayAPI.addresses[2]: is in 192.0.2.1/32, an entry further up"},
		"gatewayAPI: {addresses: [192.0.2.16/28, 192.0.2.24/29]}":                                    {"spec.gatewayAPI.addresses[1]: is in 192.0.2.16/28, an entry further up"},
		"{gatewayAPI: {addresses: ['2001:db8::/64']}, bind: {addresses: ['2001:db8::7']}}":           {"spec.gatewayAPI.addresses[0]: has 2001:db8::7, which is one of bind.addresses"},
		"{gatewayAPI: {addresses: [192.0.2.0/24]}, bind: {addresses: ['::ffff:192.0.2.7']}}":         {"spec.gatewayAPI.addresses[0]: has ::ffff:192.0.2.7, which is one of bind.addresses"},
		"{gatewayAPI: {addresses: [192.0.2.0/24]}, status: {addresses: [10.0.0.1, 192.0.2.7]}}":      {"spec.gatewayAPI.addresses[0]: has 192.0.2.7, which is one of status.addresses"},
		"{gatewayAPI: {addresses: [192.0.2.0/24]}, bind: {addresses: [0.0.0.0, '::', '${POD_IP}']}}": nil,
		"gatewayAPI: {enabled: true, fleet: shop/payments}":                                          nil,
		"{gatewayAPI: {enabled: true, fleet: shop/payments}, http: {port: 0}, https: {port: 0}}":     nil,
		"{gatewayAPI: {enabled: true}, http: {port: 0}, https: {port: 0}}":                           {"spec.http.port: is 0, like that of https: nothing would be served"},
		"gatewayAPI: {fleet: shop/payments}":                                                         {"spec.gatewayAPI.fleet: a fleet is for Gateways, and none are compiled"},
		"gatewayAPI: {enabled: true, fleet: payments}":                                               {`spec.gatewayAPI.fleet: "payments" is not the name of a fleet`},
		"gatewayAPI: {enabled: true, fleet: shop/*}":                                                 {`spec.gatewayAPI.fleet: "shop/*" is not the name of a fleet`},
		"gatewayAPI: {controllerName: example.com/gateways/edge-1}":                                  nil,
		"gatewayAPI: {controllerName: " + long + "}":                                                 nil, // 253 characters
		"gatewayAPI: {controllerName: " + long + "a}":                                                noName(long + "a"),
		"gatewayAPI: {controllerName: ''}":                                                           noName(""),
		"gatewayAPI: {controllerName: hapsnap}":                                                      noName("hapsnap"),
		"gatewayAPI: {controllerName: example.com/}":                                                 noName("example.com/"),
		"gatewayAPI: {controllerName: /edge}":                                                        noName("/edge"),
		"gatewayAPI: {controllerName: Example.com/edge}":                                             noName("Example.com/edge"),
		"gatewayAPI: {controllerName: -example.com/edge}":                                            noName("-example.com/edge"),
		"gatewayAPI: {controllerName: example..com/edge}":                                            noName("example..com/edge"),
		"gatewayAPI: {controllerName: 'https://example.com/edge'}":                                   noName("https://example.com/edge"),
		"gatewayAPI: {controllerName: 'example.com/edge one'}":                                       noName("example.com/edge one"),
		"gatewayAPI: {controllerName: \"example.com/edge\\n\"}":                                      noName("example.com/edge\n"),
		"gatewayAPI: {controllerName: 'example.com/édge'}":                                           noName("example.com/édge"),
	})
}

// Impossible values about connections are errors at their place.
func TestCheckOfTCPServices(t *testing.T) {
	t.Parallel()
	checkFindings(t, map[string][]string{
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
	})
}

// checkFindings parses specs. It fails if the findings are not as wanted, or if one has no hint.
func checkFindings(t *testing.T, cases map[string][]string) {
	t.Helper()
	for text, want := range cases {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			_, found := Parse("c.yaml", []byte(head+"spec:\n  "+text+"\n"))
			var got []string
			for _, d := range found {
				if got = append(got, d.Message); d.Hint == "" || d.Position.Line != 4 {
					t.Errorf("%s: no hint, or another place", d)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, slices.Sorted(slices.Values(want))) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// Annotations may use only listed ports.
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
