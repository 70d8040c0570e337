package routing

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
)

// deny takes the routes of an Ingress that is left out, if it protects
// something, and answers them with 503: otherwise their requests might match a
// route of another Ingress, which does not protect them. A canary has none.
func (t *translation) deny(ing ingress) {
	protects, at := t.protected(ing)
	if protects == "" || options.IsCanary(ing.Value.Annotations) {
		return
	}
	t.report(diag.Warning, ing, at,
		protects+" protects an Ingress that cannot be used as it is; its routes answer 503", "see what else is said of this Ingress")
	t.readOptions(ing)
	t.asked.denied = true
	t.shutOnes = append(t.shutOnes, ing.Ref)
	sound := inputs.Object[networkingv1.Ingress]{Ref: ing.Ref, Value: ing.Value.DeepCopy(), At: ing.At}
	for i, rule := range ing.Value.Spec.Rules {
		rule = soundPaths(ing, rule, t.asked.expressions)
		sound.Value.Spec.Rules[i] = rule
		if rule.Host != "" && !soundHost(ing, rule.Host) {
			sound.Value.Spec.Rules[i].Host = ""
			continue
		}
		t.rule(sound, i, rule)
	}
	if backend := ing.Value.Spec.DefaultBackend; backend != nil {
		t.defaultBackend(sound, *backend)
	}
	if len(validation.IsDNS1123Label(ing.Ref.Namespace)) > 0 {
		return // no Secret is there, and no file may have such a name
	}
	for i, entry := range ing.Value.Spec.TLS {
		t.denyTLS(sound, i, entry)
	}
}

// denyTLS takes the hosts of a tls entry as far as they are sound, so that
// clients whose requests are refused are not shown another certificate too.
func (t *translation) denyTLS(ing ingress, i int, entry networkingv1.IngressTLS) {
	v := validator{ing: ing}
	if v.tlsEntry(networkingv1.IngressTLS{SecretName: entry.SecretName}); len(v.found) > 0 {
		return
	}
	entry.Hosts = slices.Clone(entry.Hosts)
	for j, host := range entry.Hosts {
		if !soundHost(ing, host) {
			entry.Hosts[j] = ""
		}
	}
	t.tlsEntry(ing, i, entry)
}

func soundHost(ing ingress, host string) bool {
	v := validator{ing: ing}
	v.host(host)
	return len(v.found) == 0
}

// soundPaths returns a rule with those paths that can be matched.
func soundPaths(ing ingress, rule networkingv1.IngressRule, expressions bool) networkingv1.IngressRule {
	if rule.HTTP == nil {
		return rule
	}
	paths := slices.DeleteFunc(slices.Clone(rule.HTTP.Paths), func(p networkingv1.HTTPIngressPath) bool {
		p.Backend = networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "any", Port: networkingv1.ServiceBackendPort{Number: 1}}}
		v := validator{ing: ing, expressions: expressions}
		v.path(p)
		unusable, _ := v.checkUsable(p)
		return len(v.found) > 0 || unusable != ""
	})
	rule.HTTP = &networkingv1.HTTPIngressRuleValue{Paths: paths}
	return rule
}

// A dropped Ingress is one that protects something and has no routes, not even closed ones,
// since HAProxy or a check refuses those too. Its requests get to whatever else matches them.
// Only routes of its own namespace lead to the Services that it protects. So those that may
// match its requests now are closed, and nobody else pays for it.

// bar finds out which hosts of which namespaces are closed for Ingresses that were dropped.
func (t *translation) bar(ingresses []ingress) {
	for _, ing := range ingresses {
		if !t.cfg.Dropped[ing.Ref] || options.IsCanary(ing.Value.Annotations) || !t.protects(ing) {
			continue
		}
		_, aliases := hostOptions(ing)
		bar := func(host string) {
			if _, known := t.barred[sharing{host, ing.Ref.Namespace}]; !known {
				t.barred[sharing{host, ing.Ref.Namespace}] = ing.Ref
			}
		}
		bar("") // where a request goes whose host has no other route, and the default backend
		t.eachHost(ing, aliases, func(host string, _ ...any) {
			bar(host)
			bar(wildcardKey(host))
		})
	}
}

// closeBarred has the Ingress at hand refuse requests for a host of the model that were those of
// an Ingress which was dropped. What it returns ends that.
func (t *translation) closeBarred(ing ingress, host string, at ...any) (end func()) {
	by, barred := t.barred[sharing{host, ing.Ref.Namespace}]
	was := t.asked.denied
	if !barred || was {
		return func() {}
	}
	t.asked.denied = true
	t.report(diag.Warning, ing, ing.Position(at...),
		"the routes"+ofHost(host)+" answer 503: "+by.String()+", which protects something there, cannot be used as it is, and its routes cannot even be closed",
		"mend "+by.String())
	return func() { t.asked.denied = was }
}
