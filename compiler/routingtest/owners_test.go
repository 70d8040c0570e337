package routingtest

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// inNamespace moves a Secret from shop to another namespace.
func inNamespace(namespace, secret string) string {
	return strings.Replace(secret, "namespace: shop", "namespace: "+namespace, 1)
}

// A younger Ingress of another namespace gets paths of a host, and nothing else: its certificate, its request
// for client certificates, its ssl-passthrough and its aliases do not apply to the host. The owner is told who
// has paths.
func TestRow36HostsHaveOwners(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	objects := common(t) + inNamespace("other", ca.secret(t, "", "theirs", "h.example", "*.w.example")) + secretOf(t, "w.example") + strings.Join([]string{
		ingress{name: "owner", rules: []string{"h.example P / a", "exact.w.example P / a", "w.example P / b"}, tls: []string{"w.example w.example"}}.yaml(),
		ingress{namespace: "other", name: "taker", age: 1, rules: []string{"H.example. E / e", "h.example P /x e", "*.w.example P / e"}, tls: []string{"theirs h.example *.w.example"}}.yaml(),
		ingress{namespace: "other", name: "asks", age: 1, rules: []string{"h.example P /asks e"}, annotations: "hapsnap.dev/client-ca-secret: theirs"}.yaml(),
		ingress{namespace: "other", name: "passes", age: 1, rules: []string{"w.example P / e"}, annotations: "hapsnap.dev/ssl-passthrough: \"true\""}.yaml(),
		ingress{namespace: "other", name: "named", age: 1, rules: []string{"e.example P /e e"}, annotations: "hapsnap.dev/server-alias: w.example"}.yaml(),
	}, "")
	e := start(t, objects)
	serves(t, e, map[string]string{
		"h.example": "fallback.invalid", "exact.w.example": "fallback.invalid", "any.w.example": "theirs", "w.example": "w.example",
	})
	for request, want := range map[string]string{
		"h.example /": "e", "h.example /x/y": "e", "h.example /y": "a", "exact.w.example /": "a", "any.w.example /": "e",
		"h.example /asks": "503", "w.example /": "b", "w.example /e": "b", "e.example /e": "e",
	} {
		host, target, _ := strings.Cut(request, " ")
		got, err := e.ask(t, &tls.Config{InsecureSkipVerify: true, ServerName: host}, host, target)
		if got != want {
			t.Errorf("%s: %s %v, want %s", request, got, err, want)
		}
	}
	for _, name := range []string{"taker", "asks", "passes", "named"} {
		reportedOn(t, e, diag.Object{Kind: "Ingress", Namespace: "other", Name: name})
	}
	told := fmt.Sprint(e.result.Diagnostics)
	for _, want := range []string{
		`Ingress shop/owner: other namespaces have paths of host h.example: "/" (Exact) by Ingress other/taker`,
		`Secret other/theirs is not used for host h.example: the host belongs to namespace shop, by Ingress shop/owner, which is older`,
	} {
		if !strings.Contains(told, want) {
			t.Errorf("nobody was told %q in\n%s", want, told)
		}
	}
}

// With owned hosts and reserved domains, no other namespace gets requests for a host: not with a path, a
// wildcard, a rule without a host or a default backend, and not while the owner's Ingress is left out.
func TestOwnedAndReservedHosts(t *testing.T) {
	t.Parallel()
	ingresses := []ingress{
		{name: "owner", rules: []string{"h.example P /a a", "*.h.example P /a a", "shared.example P /a a"}},
		{name: "wide", age: 1, rules: []string{"wide.example P /a a"}, annotations: `hapsnap.dev/share-host: "other"`},
		{name: "bank", age: 5, rules: []string{"www.bank.example P /a b"}},
		{namespace: "other", name: "any", age: 2, rules: []string{"- P / e"}, fallback: "e"},
		{namespace: "other", name: "taker", age: 2, rules: []string{
			"h.example P /x e", "below.h.example P / e", "wide.example P /x e", "shared.example P /x e", "*.example P / e",
			"www.bank.example P / e", "*.bank.example P / e", "own.example P / e",
		}, tls: []string{"- www.bank.example"}},
	}
	e := startWith(t, common(t)+all(ingresses), func(c *config.Config) {
		c.Hosts = config.OwnHosts
		c.SharedHosts = []config.SharedHost{{Host: "shared.example", Namespaces: config.Namespaces{"other"}}}
		c.ReservedDomains = []config.ReservedDomain{{Domain: "bank.example", Namespaces: config.Namespaces{"shop"}}}
	})
	for request, want := range map[string]string{
		"h.example /a": "a", "h.example /x": "404", "below.h.example /a": "a", "below.h.example /": "404",
		"wide.example /a": "a", "wide.example /x": "e", "wide.example /z": "e", "shared.example /x": "e", "own.example /": "e",
		"www.bank.example /a": "b", "www.bank.example /": "404", "bank.example /": "404", "BANK.example. /": "404",
		"deep.www.bank.example /": "404", "x.bank.example /": "404", "notbank.example /": "e", "unknown.invalid /": "e", ".bank.example /": "404",
	} {
		host, target, _ := strings.Cut(request, " ")
		if got := answer(e.get(t, host, target).Response); got != want {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
}

// arranged is an edge whose servers the test changes at run time, like a pusher.
type arranged struct {
	edge
	socket  string
	servers []bind.Server
}

// startArranged is start with a runtime socket, and with slots that arrange changes before they are bound.
func startArranged(t *testing.T, yaml string, arrange func([]bind.Slot) []bind.Slot, configure ...func(*config.Config)) arranged {
	t.Helper()
	cfg := config.Default()
	ip := ownAddress()
	cfg.Bind.Addresses = []string{ip}
	cfg.HTTP.Port, cfg.HTTPS.Port, cfg.Status.Port = freePort(t, ip), 0, 0
	cfg.MaxConn = 100
	for _, f := range configure {
		f(&cfg)
	}
	result, objects := compile(t, yaml, cfg)
	table := slots(t, result.Draft, objects)
	for key, group := range table {
		table[key] = arrange(group)
	}
	dir := t.TempDir()
	bound := bindSlots(t, dir, result.Draft, objects, table)
	socket := filepath.Join(dir, "socket")
	bound.Config = bytes.Replace(bound.Config, []byte("global\n"), []byte("global\n    stats socket "+socket+" level admin\n"), 1)
	write(t, dir, bound)
	a := arranged{edge{http: fmt.Sprint(ip, ":", cfg.HTTP.Port), result: result}, socket, bound.Servers}
	run(t, dir)
	await(t, func() error { // the socket appears under its name after the port is open
		_, err := os.Stat(socket)
		return err
	})
	for _, s := range bound.Servers {
		if s.State == bind.SlotDrain {
			a.runtime(t, fmt.Sprintf("set server %s/%s state drain", s.Backend, s.Name))
		}
	}
	return a
}

// runtime sends HAProxy a command.
func (a arranged) runtime(t *testing.T, command string) string {
	t.Helper()
	var c net.Conn
	await(t, func() (err error) { // the socket may open after the ports
		c, err = net.Dial("unix", a.socket)
		return err
	})
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(c, command); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSpace(string(answer))
	if strings.Contains(text, "No such") || strings.Contains(text, "nvalid") || strings.Contains(text, "nknown") {
		t.Fatalf("%s: %s", command, text)
	}
	return text
}

// server returns the name of the server at a port in the runtime API. Port 1 is a spare slot.
func (a arranged) server(t *testing.T, port int) string {
	t.Helper()
	for _, s := range a.servers {
		if s.Port == port {
			return s.Backend + "/" + s.Name
		}
	}
	t.Fatalf("no server at port %d", port)
	return ""
}
