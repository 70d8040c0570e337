package config

import (
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/compiler/config/field"
)

// nested has every shape that a configuration may have.
type nested struct {
	List []named `json:"list"`
	Map  map[string]struct {
		Ports []int `json:"ports"`
		On    bool  `json:"on"`
	} `json:"map"`
}

type named struct {
	Name string  `json:"name"`
	Sub  []named `json:"sub"`
}

func parseNested(text string) (nested, reader) {
	r := reader{file: "c.yaml"}
	value := nested{List: []named{{Name: "default", Sub: []named{{Name: "x"}}}}}
	if root := r.root([]byte(text)); root != nil {
		r.decode(root, reflect.ValueOf(&value).Elem(), nil)
	}
	return value, r
}

func TestDecodeNestedListsAndMaps(t *testing.T) {
	t.Parallel()
	got, r := parseNested("list:\n- {name: a, sub: [{name: b}, {name: c}]}\n- &second {name: d}\n- *second\nmap:\n  \"80\": {ports: [1, 2], on: true}\n  y: {}\n")
	var want nested
	want.List = []named{{Name: "a", Sub: []named{{Name: "b"}, {Name: "c"}}}, {Name: "d"}, {Name: "d"}}
	want.Map = map[string]struct {
		Ports []int `json:"ports"`
		On    bool  `json:"on"`
	}{"80": {Ports: []int{1, 2}, On: true}, "y": {}}
	if diff := cmp.Diff(want, got); diff != "" || len(r.found) > 0 {
		t.Errorf("%v\n%s", r.found, diff)
	}
}

func TestDecodeReportsPositionInListsAndMaps(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"list:\n- name: a\n  sub:\n  - nam: b\n": "c.yaml:4:5: list[0].sub[0].nam: unknown field\n\thint: did you mean name?",
		"list: {name: a}\n":                      "c.yaml:1:7: list: want a list, not fields",
		"list:\n- a\n":                           "c.yaml:2:3: list[0]: want fields, not \"a\"",
		"list:\n- name: [a]\n":                   "c.yaml:2:9: list[0].name: want a text, not a list",
		"list:\n":                                "c.yaml:1:6: list: want a list, not nothing",
		"map:\n  x:\n    ports: [1, b]\n":        "c.yaml:3:16: map.x.ports[1]: want a number, not \"b\"",
		"map:\n  x: {on: maybe}\n":               "c.yaml:2:11: map.x.on: want true or false, not \"maybe\"",
		"map:\n  x: {}\n  x: {}\n":               "c.yaml:3:3: map.x: is set twice",
		"map: [a]\n":                             "c.yaml:1:6: map: want fields, not a list",
	} {
		_, r := parseNested(text)
		if len(r.found) != 1 || r.found[0].String() != want {
			t.Errorf("%q:\ngot  %v\nwant %s", text, r.found, want)
		}
	}
}

// An error of a check is at the value, or where the value should be.
func TestLookup(t *testing.T) {
	t.Parallel()
	var r reader
	root := r.root([]byte("list:\n- {name: sub}\n- {name: b, sub: [{name: c}]}\nalias: &a {x: 1}\nother: *a\n"))
	for _, c := range []struct {
		path         []string
		line, column int
	}{
		{[]string{"list", "1", "sub", "0", "name"}, 3, 26},
		{[]string{"list", "0", "sub"}, 2, 3},
		{[]string{"list", "7", "sub"}, 2, 1},
		{[]string{"none"}, 1, 1},
		{[]string{"other", "x"}, 4, 15},
	} {
		if n := lookup(root, c.path); n.Line != c.line || n.Column != c.column {
			t.Errorf("%v is at %d:%d, want %d:%d", c.path, n.Line, n.Column, c.line, c.column)
		}
	}
}

// Each case is a spec with its errors, which are at its line and have hints.
func TestCheckOfSettings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"tls: {policy: old}":                                                    {`spec.tls.policy: "old" is neither intermediate nor modern`},
		"tls: {minVersion: TLSv1.4}":                                            {`spec.tls.minVersion: "TLSv1.4" is not a version of TLS`},
		"tls: {minVersion: TLSv1.3, maxVersion: TLSv1.2}":                       {"spec.tls.maxVersion: TLSv1.2 is older than TLSv1.3, the oldest version that is accepted"},
		"tls: {minVersion: TLSv1.1, maxVersion: TLSv1.2}":                       nil,
		"tls: {maxVersion: TLSv1.2, cipherSuites: [TLS_X]}":                     {"spec.tls.cipherSuites: are never used: TLS 1.3 is not accepted"},
		"tls: {minVersion: TLSv1.3, ciphers: [X]}":                              {"spec.tls.ciphers: are never used: only TLS 1.3 is accepted"},
		"tls: {ciphers: ['A:B']}":                                               {`spec.tls.ciphers[0]: "A:B" is not a name`},
		"tls: {ciphers: ['DEFAULT@SECLEVEL=0', '!MD5', '-A+B', '@ON']}":         nil,
		"tls: {cipherSuites: ['!A']}":                                           {`spec.tls.cipherSuites[0]: "!A" is not a name`},
		"tls: {curves: ['x y', \"a\\nb\"]}":                                     {`spec.tls.curves[0]: "x y" is not a name`, `spec.tls.curves[1]: "a\nb" is not a name`},
		"https: {defaultCertificate: web}":                                      {`spec.https.defaultCertificate: "web" is not namespace/name`},
		"https: {defaultCertificate: edge/web/x}":                               {`spec.https.defaultCertificate: "edge/web/x" is not namespace/name`},
		"https: {defaultCertificate: edge/web.tls}":                             nil,
		"https: {port: 0, http3: {enabled: true}}":                              {"spec.https.http3.enabled: needs a listener for HTTPS"},
		"https: {http3: {enabled: true, advertisedPort: 65536}}":                {"spec.https.http3.advertisedPort: 65536 is not a port"},
		"https: {http3: {enabled: true}}, tls: {maxVersion: TLSv1.2}":           {"spec.https.http3.enabled: needs TLS 1.3, which is not accepted"},
		"proxyProtocol: {trusted: [10.0.0.1, '::/0', 10.1.0.0/8, 'fe80::1%0']}": {`spec.proxyProtocol.trusted[2]: "10.1.0.0/8" is not a network`, `spec.proxyProtocol.trusted[3]: "fe80::1%0" is not a network`},
		"haproxyVersion: '3.2'":                                                 nil,
		"haproxyVersion: '3.2.1'":                                               {`spec.haproxyVersion: "3.2.1" is not a version`},
		"haproxyVersion: '2.5'":                                                 {`spec.haproxyVersion: 2.5 is too old`},
		"nbthread: 65":                                                          {"spec.nbthread: 65 is not a number of threads"},
		"timeouts: {clientFin: never}":                                          {`spec.timeouts.clientFin: "never" is not a time`},
		"timeouts: {check: ''}":                                                 nil,
		"log: {target: logs}":                                                   {`spec.log.target: "logs" is not an address`},
		"log: {target: '0.0.0.0'}":                                              {`spec.log.target: "0.0.0.0" is not an address`},
		"log: {target: '10.0.0.1:0'}":                                           {`spec.log.target: "10.0.0.1:0" has no such port`},
		"log: {target: '10.0.0.1 x'}":                                           {`spec.log.target: "10.0.0.1 x" is not an address`},
		"log: {target: '${A}:99999'}":                                           {`spec.log.target: "${A}:99999" has no such port`},
		"log: {target: '${A}${B}'}":                                             {`spec.log.target: "${A}${B}" is not an address`},
		"log: {format: apache}":                                                 {`spec.log.format: "apache" is neither http nor json, nor a format with %`},
		"log: {format: \"%ci\\n%ST\"}":                                          {"spec.log.format: holds a character that cannot be printed"},
		"log: {facility: local8, level: loud}":                                  {`spec.log.facility: "local8" is not a facility of syslog`, `spec.log.level: "loud" is not a level of syslog`},
		"log: {syslog: gelf, maxLength: 79}":                                    {`spec.log.syslog: "gelf" is not a form of syslog's messages`, "spec.log.maxLength: 79 is not a length of lines"},
	} {
		_, found := Parse("c.yaml", []byte(head+"spec: {"+text+"}\n"))
		var got []string
		for _, d := range found {
			got = append(got, d.Message)
			if d.Hint == "" || d.Position.Line != 3 {
				t.Errorf("%s: no hint, or another place", d)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", text, got, want)
		}
	}
}

func TestLogTarget(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]struct {
		address string
		port    int
	}{
		"10.0.0.5": {"10.0.0.5", 514}, "10.0.0.5:1514": {"10.0.0.5", 1514},
		"fd00::5": {"fd00::5", 514}, "[fd00::5]": {"fd00::5", 514}, "[fd00::5]:1514": {"fd00::5", 1514},
		"${HOST_IP}": {"${HOST_IP}", 514}, "${HOST_IP}:1514": {"${HOST_IP}", 1514},
	} {
		l := Default().Log
		l.Target = target
		var found []field.Error
		l.Check(field.Into(&found))
		if l.Address() != want.address || l.Port() != want.port || len(found) > 0 {
			t.Errorf("%s: %s %d %v, want %s %d", target, l.Address(), l.Port(), found, want.address, want.port)
		}
	}
}
