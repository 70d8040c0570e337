package routing

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
)

// shut takes the routes of an Ingress that is left out, if it protects
// something, and answers them with 503: otherwise their requests might match a
// route of another Ingress, which does not protect them.
func (t *translation) shut(ing ingress) {
	if !options.Protect(ing.Value.Annotations) {
		return
	}
	t.ask(ing)
	t.asked.shut = true
	sound := inputs.Object[networkingv1.Ingress]{Ref: ing.Ref, Value: ing.Value.DeepCopy(), At: ing.At}
	for i, rule := range ing.Value.Spec.Rules {
		rule = soundPaths(ing, rule)
		sound.Value.Spec.Rules[i] = rule
		if v := (validator{ing: ing}); rule.Host != "" {
			if v.host(rule.Host); len(v.found) > 0 {
				continue
			}
		}
		t.rule(sound, i, rule)
	}
	if backend := ing.Value.Spec.DefaultBackend; backend != nil {
		t.defaultBackend(sound, *backend)
	}
}

// soundPaths returns a rule with those paths that can be matched.
func soundPaths(ing ingress, rule networkingv1.IngressRule) networkingv1.IngressRule {
	if rule.HTTP == nil {
		return rule
	}
	paths := slices.DeleteFunc(slices.Clone(rule.HTTP.Paths), func(p networkingv1.HTTPIngressPath) bool {
		p.Backend = networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "any", Port: networkingv1.ServiceBackendPort{Number: 1}}}
		v := validator{ing: ing}
		v.path(p)
		return len(v.found) > 0
	})
	rule.HTTP = &networkingv1.HTTPIngressRuleValue{Paths: paths}
	return rule
}
