package routing

import (
	"fmt"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/snapshots"
)

// clientClaim is what the clients of a host are asked for when they connect, and
// the Ingress that said so first.
type clientClaim struct {
	by        ingress
	authority snapshots.SecretName
	required  bool // by all Ingresses that ask for it
	origin    Origin
}

// askClients has the clients of the Ingress's hosts asked for certificates. They
// are asked when they connect, before there is a request, so that one authority
// holds for all of a host; where it cannot be had, the routes are closed.
func (t *translation) askClients(ing ingress) {
	asked := t.asked.clients
	if asked.Authority == "" || t.asked.values.Closed {
		return
	}
	at := originOf(ing, annotationPath("client-ca-secret")...)
	authority := snapshots.SecretName{Namespace: ing.Ref.Namespace, Name: asked.Authority}
	hosts := append(ruleHosts(ing.Value.Spec.Rules), t.asked.aliases...)
	if message, hint := t.cannotAsk(ing, authority, hosts); message != "" {
		t.asked.refused = true
		t.report(diag.Error, ing, at.Position, "annotation "+options.Prefix+"client-ca-secret "+message+"; the routes that it protects answer 503", hint)
		return
	}
	t.authority(ing, authority, at)
	for _, host := range hosts {
		host = normalHost(host)
		claim := t.clients[host]
		if claim == nil {
			claim = &clientClaim{by: ing, authority: authority, required: true, origin: at}
			t.clients[host] = claim
		}
		claim.required = claim.required && asked.Check.Required && asked.Check.ErrorPage == ""
	}
}

// cannotAsk says why clients cannot be asked for certificates of an authority.
func (t *translation) cannotAsk(ing ingress, authority snapshots.SecretName, hosts []string) (message, hint string) {
	if ing.Value.Spec.DefaultBackend != nil {
		return "is for hosts, and there is a defaultBackend", "clients are asked when they connect, by host: give rules with hosts"
	}
	for _, rule := range ing.Value.Spec.Rules {
		if rule.Host == "" {
			return "is for hosts, and a rule names none", "clients are asked when they connect, by host: give rules with hosts"
		}
	}
	for _, host := range hosts {
		switch s, o := t.standingOf(ing, hostName(host)); {
		case s != owns && o == nil:
			return fmt.Sprintf("asks nothing of clients of host %s, which is in a domain that is reserved for other namespaces", host), "use another host"
		case s != owns:
			return fmt.Sprintf("asks nothing of clients of host %s: that is up to its owner, namespace %s, by %s", host, o.namespace(), precedes(o.by, ing)), "use a host of your own"
		}
		if claim := t.clients[normalHost(host)]; claim != nil && claim.authority != authority {
			return fmt.Sprintf("cannot ask for certificates of Secret %s: clients of host %s are asked for those of Secret %s by %s",
				authority, host, claim.authority, precedes(claim.by, ing)), "name the same Secret in both" + winnerAt(claim.origin)
		}
	}
	return "", ""
}

// servesAll reports whether the Ingress at hand serves clients without a
// certificate too.
func (t *translation) servesAll() bool {
	return t.asked.clients.Authority == "" && !t.asked.denied && !t.asked.values.Closed
}

func (t *translation) isOpen(host string) bool {
	h := t.hosts[host]
	return h != nil && h.open
}

// clientCheck returns what the clients of a host are asked for when they
// connect, nil if nothing. One who shows none is only refused then if no Ingress
// serves the host to such; else its requests are, where they are not served.
func (t *translation) clientCheck(host string) *ClientCheck {
	claim := t.clients[host]
	if claim == nil {
		return nil
	}
	return &ClientCheck{Authority: authorityFile(claim.authority), Required: claim.required && !t.isOpen(hostName(host))}
}
