package routingtest

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/migrate/gatewayapi"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// moved is the Gateway with routes that was generated from Ingresses.
type moved struct {
	http, https string // addresses of the Gateway
	yaml        string
	found       []diag.Diagnostic
}

// says reports whether a finding contains all the parts.
func (m moved) says(parts ...string) bool {
	return slices.ContainsFunc(m.found, func(d diag.Diagnostic) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(d.String(), part) })
	})
}

// send sends a literal request to the Gateway, over TLS with a host as SNI if secure.
func (m moved) send(t *testing.T, secure bool, host, request string) reply {
	t.Helper()
	if secure {
		return sendTo(t, m.https, &tls.Config{InsecureSkipVerify: true, ServerName: host}, request)
	}
	return sendTo(t, m.http, nil, request)
}

// move generates a Gateway with this name and with free ports from the Ingresses of manifests.
func move(t *testing.T, cfg config.Config, name, yaml string) moved {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	ip := cfg.Bind.Addresses[0]
	o := gatewayapi.Options{
		Gateway: types.NamespacedName{Namespace: "infra", Name: name}, Class: "hapsnap", HTTPPort: freePort(t, ip), HTTPSPort: freePort(t, ip),
		Config: cfg, Ingresses: compiler.IngressConfig(cfg), Form: routing.FormOf(cfg.Paths),
	}
	result, err := gatewayapi.Directory(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	again, err := gatewayapi.Directory(dir, o)
	if err != nil || string(again.Manifests) != string(result.Manifests) {
		t.Errorf("the same Ingresses become something else: %v", err)
	}
	return moved{fmt.Sprint(ip, ":", o.HTTPPort), fmt.Sprint(ip, ":", o.HTTPSPort), "---\n" + string(result.Manifests), result.Findings}
}

// wide reports whether a host matches the wildcard of a route but not that of its Ingress, and the report says
// so.
func (m moved) wide(ingresses []ingress, host string) bool {
	name := hostOf(host)
	owner := ownerOf(ingresses, name)
	for _, i := range ingresses {
		for _, r := range i.rules {
			wildcard := strings.Fields(r)[0]
			if parent, is := strings.CutPrefix(wildcard, "*"); is && strings.HasSuffix(name, parent) && owner != name && len(wildcard) > len(owner) {
				return m.says("host "+wildcard+" stands for names of one label or more") || !slices.ContainsFunc(ingresses, func(i ingress) bool { return len(rulesOf([]ingress{i}, wildcard)) > 0 })
			}
		}
	}
	return false
}

// The routes that are generated from the rows of the table give the answers of the rows. The report has the
// differences.
func TestRowsOfRoutes(t *testing.T) {
	t.Parallel()
	rows := slices.DeleteFunc(slices.Concat(pathRows, hostRows, backendRows), func(r row) bool {
		return len(r.ingresses) == 0 || strings.HasPrefix(r.name, "row_44") || strings.HasPrefix(r.name, "row_45") // rows about classes
	})
	gateways := map[string]moved{}
	startEdited(t, func(cfg *config.Config) string {
		cfg.GatewayAPI.Enabled = true
		yaml := gatewayClass + common(t)
		for _, r := range rows {
			for i := range r.ingresses {
				r.ingresses[i].name = strings.ReplaceAll(r.name, "_", "-") + "-" + or(r.ingresses[i].name, "main")
			}
			m := move(t, *cfg, strings.ReplaceAll(r.name, "_", "-"), r.extra+all(r.ingresses))
			gateways[r.name] = m
			yaml += m.yaml
		}
		return yaml
	})
	for _, r := range rows {
		m := gateways[r.name]
		if r.name == "row_59_long_path" && m.says("cannot be moved: no route may have it") {
			continue // a path of a route has 1024 bytes at most
		}
		t.Run(r.name, func(t *testing.T) {
			c := &client{address: m.http}
			for _, s := range r.steps {
				want := s.want
				if want == "503" && strings.HasPrefix(r.name, "row_37") && m.says("Service shop/gone is not among the manifests") {
					want = "500"
				}
				if m.wide(r.ingresses, s.host) {
					continue
				}
				if got := c.ask(t, s.host, s.target); got != want {
					t.Errorf("%s%s: %s, want %s\n%s", s.host, s.target, got, want, m.yaml)
				}
			}
		})
	}
}

// movedSets is the number of sets of Ingresses that share a HAProxy. Each set becomes a Gateway of its own.
const movedSets = 12

// The routes that are generated from random rules give the same answers as the rules.
func TestRandomRulesMoved(t *testing.T) {
	t.Parallel()
	services := randomServices(t)
	eachSeed(t, 2, 7, func(g generator) string {
		t := g.t
		var sets [movedSets][]ingress
		var gateways [movedSets]moved
		startEdited(t, func(cfg *config.Config) string {
			cfg.GatewayAPI.Enabled = true
			yaml := gatewayClass + services
			for n := range sets {
				sets[n] = g.ingresses()
				for i := range sets[n] {
					sets[n][i].name = fmt.Sprintf("s%d-%s", n, sets[n][i].name)
				}
				gateways[n] = move(t, *cfg, fmt.Sprint("g", n), services+all(sets[n]))
				yaml += gateways[n].yaml
			}
			return yaml
		})
		asked, wide := 0, 0
		for n, set := range sets {
			c := &client{address: gateways[n].http}
			inOrder := slices.SortedFunc(slices.Values(set), older)
			for range 200 {
				host, target := g.host(), g.target(set)
				if gateways[n].wide(inOrder, host) {
					wide++
					continue
				}
				asked++
				want := expected(set, host, target)
				got := c.ask(t, host, target)
				if r, is := ruleFor(set, host, target); want == "503" && got == "500" && (is && r.service == "gone" || !is) && gateways[n].says("/gone is not among the manifests") {
					continue
				}
				if got != want {
					t.Errorf("set %d: Host %q, target %q: %s, want %s\n%s", n, host, target, got, want, gateways[n].yaml)
					return all(set)
				}
			}
		}
		if t.Logf("%d requests, and %d for hosts that a route's wildcard takes besides", asked, wide); asked < wide {
			t.Error("the requests say little")
		}
		return ""
	})
}
