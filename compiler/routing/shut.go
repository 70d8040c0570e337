package routing

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
)

// shut takes the routes of an Ingress that is left out, if it protects
// something, and answers them with 503: otherwise their requests might match a
// route of another Ingress, which does not protect them. A canary has none.
func (t *translation) shut(ing ingress) {
	protects, at := t.protected(ing)
	if protects == "" || options.IsCanary(ing.Value.Annotations) {
		return
	}
	t.report(diag.Warning, ing, at,
		protects+" protects an Ingress that cannot be used as it is; its routes answer 503", "see what else is said of this Ingress")
	t.ask(ing)
	t.asked.shut = true
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
		t.shutTLS(sound, i, entry)
	}
}

// shutTLS takes the hosts of a tls entry as far as they are sound, so that
// clients whose requests are refused are not shown another certificate too.
func (t *translation) shutTLS(ing ingress, i int, entry networkingv1.IngressTLS) {
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
