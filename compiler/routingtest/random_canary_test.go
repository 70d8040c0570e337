package routingtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Canaries of rules that nobody thought of share just those.
func TestRandomCanariesAgreeWithReference(t *testing.T) {
	t.Parallel()
	services := randomServices(t)
	for seed := range uint64(seeds / 2) {
		t.Run(fmt.Sprint("seed_", seed), func(t *testing.T) {
			t.Parallel()
			g := generator{rand.New(rand.NewPCG(seed, 1))}
			ingresses := g.ingresses()
			canaries := g.canaries(ingresses)
			yaml := all(ingresses) + all(canaries)
			e := start(t, services+yaml)
			compareCanaries(t, e, g, ingresses, canaries)
			if t.Failed() {
				t.Logf("rules:\n%s", yaml)
			}
		})
	}
}

func compareCanaries(t *testing.T, e edge, g generator, ingresses, canaries []ingress) {
	t.Helper()
	c := client{address: e.http}
	shared := 0
	for range requestsPerSeed {
		host, target := g.host(), g.target(ingresses)
		said := g.pick("always", "never", "else")
		want := expectedCanary(ingresses, canaries, host, target, said)
		if want != expected(ingresses, host, target) {
			shared++
		}
		if got := c.ask(t, host, target, "X-Canary: "+said+"\r\n"); got != want {
			t.Errorf("Host %q, target %q, header %s: %s, want %s", host, target, said, got, want)
		}
	}
	if shared < 10 {
		t.Errorf("the requests say little: %d for canaries", shared)
	}
}

// canaries returns some for the rules of Ingresses. Half of them get all of the
// requests for which the header does not decide.
func (g generator) canaries(ingresses []ingress) []ingress {
	var out []ingress
	for _, i := range ingresses {
		for _, rule := range i.rules {
			words := strings.Fields(rule)
			if len(words) != 4 || g.one(3) {
				continue
			}
			options := []string{"canary-by-header", "X-Canary"}
			if g.one(2) {
				options = append(options, "canary-weight", "100")
			}
			words[3] = g.service(i.namespace)
			c := canaryOf(fmt.Sprint("c", len(out)), []string{strings.Join(words, " ")}, options...)
			c.namespace, c.age = i.namespace, g.IntN(3)
			out = append(out, c)
		}
	}
	return out
}

// expectedCanary is expected with canaries, for a request whose header says
// something.
func expectedCanary(ingresses, canaries []ingress, host, target, said string) string {
	main, ok := ruleFor(ingresses, host, target)
	if !ok || main.service == "gone" {
		return expected(ingresses, host, target)
	}
	for _, c := range slices.SortedFunc(slices.Values(canaries), older) {
		rule := rulesOf([]ingress{c}, main.host)
		if len(rule) == 0 || !sameRoute(rule[0], main) || rule[0].service == "gone" || rule[0].service == main.service {
			continue
		}
		switch own, weighted := rule[0].service, strings.Contains(c.annotations, "canary-weight"); {
		case said == "always" && own != "empty", said == "else" && weighted:
			return answerOf(own)
		case said == "always" && weighted: // which has no servers, by weight either
			return "503"
		}
		return answerOf(main.service)
	}
	return answerOf(main.service)
}

// sameRoute reports whether two rules of a host match the same.
func sameRoute(a, b referenceRule) bool {
	path := func(r referenceRule) string { return strings.TrimSuffix(strings.TrimPrefix(r.path, "-"), "/") }
	if a.namespace != b.namespace || (a.kind == "E") != (b.kind == "E") {
		return false
	}
	return a.path == b.path || (a.kind != "E" && path(a) == path(b))
}
