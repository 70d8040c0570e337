package options

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/policy"
)

// The options of programs that are asked about requests.
const (
	WAF    = "waf"
	Agents = "agents"
)

// mostAgents is how many agents a request may be told to.
const mostAgents = 8

func agentOptions() []Option {
	return []Option{
		define(Option{
			Name: WAF, Group: Protecting, On: onAll, Closes: true, Value: "`NAME` of a ConfigMap of the same namespace, or `NAMESPACE/NAME`", Example: "strict",
			Summary: "Has requests looked through for attacks (SQL injection, cross-site scripting and others), as the [policy](waf.md) under the key `policy` of the ConfigMap says. One of another namespace can be named if the configuration shares it (`shared.wafPolicies`). An attack gets 403 if the policy blocks. **What an agent has not seen is not served: a body that does not fit into HAProxy's buffer gets 413, unless the policy says `uninspected: allow`.** While the agent gives no answer, requests get 503, unless the policy says `failure: open`. The routes are closed while the policy cannot be used.",
		}, wafPolicy, func(s *Settings, v policy.WAF) { s.WAF = &v }),
		define(Option{
			Name: Agents, Group: Protecting, On: onAll, Closes: true, Value: "names, separated by commas", Example: "bots",
			Summary: "Asks [agents](waf.md#any-agent) about each request, in this order, before an endpoint gets it. The administrator lists them in `agents` of the configuration, and says there which namespaces may name each, what it is told, and what happens while it gives no answer.",
		}, agentNames, func(s *Settings, v []policy.Agent) { s.Agents = v }),
	}
}

// wafPolicy reads the name of a ConfigMap, perhaps with a namespace.
func wafPolicy(text string) (policy.WAF, error) {
	var w policy.WAF
	namespace, name, both := strings.Cut(text, "/")
	if !both {
		namespace, name = "", text
	}
	if both && len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return w, fault("is not the name of a ConfigMap", "use NAME, or NAMESPACE/NAME")
	}
	w.Namespace, w.Name = namespace, name
	return w, nil
}

var agentForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,29}$`)

// agentNames reads names of agents, each once.
func agentNames(text string) ([]policy.Agent, error) {
	out, err := listOf(func(word string) (policy.Agent, error) {
		if !agentForm.MatchString(word) {
			return policy.Agent{}, fault("is not the name of an agent", "use names that the configuration has in agents")
		}
		return policy.Agent{Name: word}, nil
	})(text)
	for i, a := range out {
		if slices.Contains(out[:i], a) {
			return nil, faultOf(a.Name, "is listed twice", "list each agent once")
		}
	}
	if len(out) > mostAgents {
		return nil, fault(fmt.Sprintf("lists %d agents", len(out)), fmt.Sprintf("use %d at most", mostAgents))
	}
	return out, err
}

// Asks reports whether somebody is asked whether a request may pass: who sent it, or an agent.
func (s Settings) Asks() bool {
	return s.Basic != nil || s.External != nil || s.WAF != nil || len(s.Agents) > 0
}
