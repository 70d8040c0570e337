package access

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/config/agents"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	wafpolicy "github.com/hapsnap/hapsnap/waf/policy"
)

// Inspection is what the configuration says of agents that are asked about requests.
type Inspection struct {
	Agents []agents.Agent
	// WAF says that there is an agent that looks for attacks, and SharedPolicies are the ConfigMaps, as namespace/name,
	// whose policies every namespace may name.
	WAF            bool
	SharedPolicies []string
	// MostPolicies bounds the ConfigMaps with policies of a namespace that are named, but for those that are shared, and
	// MostPolicyBytes the texts of all policies that a namespace names, once for each backend. 0 is no limit.
	MostPolicies, MostPolicyBytes int
	// Buffer is the size of HAProxy's buffers, and Wait how long the body of a request is waited for.
	Buffer int
	Wait   string
}

// FindAgents completes the agents that options name. It returns why one of them cannot be asked.
func FindAgents(s *options.Settings, by Asker) *diag.Diagnostic {
	s.Agents = slices.Clone(s.Agents) // which others read too
	for i, named := range s.Agents {
		at := slices.IndexFunc(by.Inspection.Agents, func(a agents.Agent) bool { return a.Name == named.Name && a.MayName(by.Namespace) })
		if at < 0 {
			d := by.Spot(options.Agents).Closes(fmt.Sprintf(": the configuration has no agent %s for namespace %s", named.Name, by.Namespace),
				"correct the name, or have the administrator list the namespace in agents of the configuration")
			return &d
		}
		a := by.Inspection.Agents[at]
		s.Agents[i] = policy.Agent{
			Name: a.Name, Engine: a.Engine(), Prefix: a.Prefix(), Answers: len(a.Sends(string(agents.Response))) > 0, Closes: a.Closes(), RefuseIf: a.RefuseIf,
		}
		if a.ReadsBody() {
			s.Agents[i].Wait = by.Inspection.Wait
		}
	}
	return nil
}

// Policy is a policy that an option names.
type Policy struct {
	filter policy.WAF
	spot   Spot
}

// FindPolicy names the policy of the settings by its namespace, and returns it.
func FindPolicy(s *options.Settings, by Asker) *Policy {
	w := *s.WAF
	w.By = by.Namespace
	if w.Namespace == "" {
		w.Namespace = by.Namespace
	}
	s.WAF = &w
	return &Policy{w, by.Spot(options.WAF)}
}

// policies are the policies of ConfigMaps.
type policies struct {
	add        func(...diag.Diagnostic)
	configMaps inputs.Lookup[corev1.ConfigMap]
	cfg        Inspection
	read       map[types.NamespacedName]*WAFPolicy // nil is malformed
	// named are how many ConfigMaps of a namespace were read, and bytes what its backends have of policies.
	named, bytes map[string]int
}

// Policy completes the filters for a policy, and reports whether it can be had. The filters that are given stay as they
// are.
func (t *Taker) Policy(p *Policy, filters []policy.Filter) ([]policy.Filter, bool) {
	if p == nil {
		return filters, true
	}
	found, message, hint := t.policies.find(p)
	if message != "" {
		t.policies.add(p.spot.Closes(fmt.Sprintf(": policy %s %s", p.filter.PolicyName(), message), hint))
		return filters, false
	}
	by := p.filter.By
	t.policies.bytes[by] += len(found.Policy.String())
	if most := t.policies.cfg.MostPolicyBytes; most > 0 && t.policies.bytes[by] > most {
		t.policies.add(p.spot.Closes(fmt.Sprintf(": policy %s is one too many: the policies of all routes of namespace %s have more than %d bytes", p.filter.PolicyName(), by, most),
			"exclude less, or have limits.namespaceOptionBytes raised in the configuration"))
		return filters, false
	}
	out := slices.Clone(filters)
	for i, f := range out {
		if f == policy.Filter(p.filter) {
			w := p.filter
			w.Policy, w.Rules, w.Open, w.Partial, w.BodyLimit = found.Policy.String(), wafpolicy.RulesVersion, found.Open, found.Partial, found.BodyLimit
			w.Wait, w.Buffer = t.policies.cfg.Wait, t.policies.cfg.Buffer
			out[i] = w
		}
	}
	return out, true
}

// PolicyKey is the key of a ConfigMap under which a policy is.
const PolicyKey = "policy"

func (p *policies) find(d *Policy) (found *WAFPolicy, message, hint string) {
	name := types.NamespacedName{Namespace: d.filter.Namespace, Name: d.filter.Name}
	switch {
	case !p.cfg.WAF:
		return nil, "cannot be followed: the configuration names no agent that looks for attacks", "the administrator names one in waf of the configuration"
	case name.Namespace != d.filter.By && !slices.Contains(p.cfg.SharedPolicies, name.String()):
		return nil, "is of another namespace, which does not share it", "copy it, or have " + name.String() + " added to shared.wafPolicies of the configuration"
	}
	configMap, exists := p.configMaps.Find(name)
	if !exists {
		return nil, fmt.Sprintf("cannot be read: ConfigMap %s does not exist", name), "create it, or correct the name"
	}
	text, exists := configMap.Value.Data[PolicyKey]
	if !exists {
		return nil, fmt.Sprintf("cannot be read: ConfigMap %s has no key %s", name, PolicyKey), "write the policy there"
	}
	if _, known := p.read[name]; !known {
		if !slices.Contains(p.cfg.SharedPolicies, name.String()) {
			if most := p.cfg.MostPolicies; most > 0 && p.named[name.Namespace] >= most {
				return nil, fmt.Sprintf("is one too many: namespace %s has the limit of %d policies", name.Namespace, most),
					"name one policy in several places, or have limits.namespaceWAFPolicies raised in the configuration"
			}
			p.named[name.Namespace]++
		}
		p.read[name] = p.parse(configMap, text)
	}
	if p.read[name] == nil {
		return nil, "is malformed", "see the message on ConfigMap " + name.String()
	}
	return p.read[name], "", ""
}

// parse returns a policy, or nil if anything of it is wrong, and says so.
func (p *policies) parse(configMap inputs.Object[corev1.ConfigMap], text string) *WAFPolicy {
	found, wrong := ParseWAFPolicy(text)
	if len(wrong) == 0 {
		return &found
	}
	for _, w := range wrong {
		p.add(diag.Diagnostic{
			Severity: diag.Error, Position: configMap.Position("data", PolicyKey), Object: configMap.Ref, Hint: w.Hint,
			Message: fmt.Sprintf("key %s, line %d: %s; the routes that are protected by this policy answer 503", PolicyKey, w.Line, w.Message),
		})
	}
	return nil
}
