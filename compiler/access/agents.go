package access

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/hapsnap/hapsnap/compiler/config/agents"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	wafpolicy "github.com/hapsnap/hapsnap/waf/policy"
)

// Inspection is what the configuration says of agents that are asked about requests.
type Inspection struct {
	Agents []agents.Agent
	// WAF says that there is an agent that looks for attacks, and SharedPolicies are the ConfigMaps, as namespace/name,
	// whose policies every namespace may name.
	WAF            bool
	SharedPolicies []string
	// MostPolicies bounds how many ConfigMaps with policies of a namespace are named, without shared ones. MostPolicyBytes
	// bounds the texts of all policies that a namespace names, counted for each backend. 0 is no limit.
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
		why, hint := p.configMaps.Missing(name)
		return nil, fmt.Sprintf("cannot be read: ConfigMap %s %s", name, why), hint
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

// WAFPolicyKind is the kind of a policy.
const WAFPolicyKind = "WAFPolicy"

// WAFPolicy says how requests are looked through for attacks, and what becomes of those that are not.
type WAFPolicy struct {
	wafpolicy.Policy
	// Open lets requests pass while the agent gives no answer (failure: open).
	Open bool
	// Partial lets bodies pass of which only a part is looked at (uninspected: allow).
	Partial bool
	// BodyLimit is how many bytes of a body are looked at; 0 is what there is room for.
	BodyLimit int
}

const (
	// mostPolicyErrors bounds the errors that are reported for one policy.
	mostPolicyErrors = 20
	// mostPolicyBytes is how long its document may be, with comments.
	mostPolicyBytes = 64 << 10
)

// ParseWAFPolicy reads a document of kind WAFPolicy, strictly: an unknown field is an error.
func ParseWAFPolicy(text string) (WAFPolicy, []options.LineError) {
	r := policyReader{}
	r.document(text)
	if len(r.wrong) == 0 {
		if err := r.out.Check(); err != nil {
			r.checked(err)
		}
	}
	return r.out, r.wrong[:min(len(r.wrong), mostPolicyErrors)]
}

// policyReader is one call of ParseWAFPolicy.
type policyReader struct {
	out   WAFPolicy
	lines map[string]int // of the fields of spec
	wrong []options.LineError
}

func (r *policyReader) fail(line int, message, hint string) {
	r.wrong = append(r.wrong, options.LineError{Line: max(line, 1), Message: message, Hint: hint})
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func (r *policyReader) document(text string) {
	if len(text) > mostPolicyBytes {
		r.fail(1, fmt.Sprintf("the policy has %d bytes, and the limit is %d", len(text), mostPolicyBytes), "")
		return
	}
	var doc, more yaml.Node
	decoder := yaml.NewDecoder(strings.NewReader(text))
	if err := decoder.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		line := 1
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil && m[1] != "" {
			line, _ = strconv.Atoi(m[1])
		}
		r.fail(line, fmt.Sprintf("this is not YAML: %.200s", strings.TrimSpace(yamlLine.ReplaceAllString(err.Error(), ""))), "")
		return
	}
	const begin = "begin with apiVersion: " + snapshots.APIVersion + " and kind: " + WAFPolicyKind
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		r.fail(1, "this is not a "+WAFPolicyKind, begin)
		return
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		r.fail(more.Line, "this is a second document", "keep one policy to a key")
		return
	}
	version, kind := "", ""
	var spec *yaml.Node
	r.fields(doc.Content[0], "", map[string]func(*yaml.Node){
		"apiVersion": func(n *yaml.Node) { version = r.text(n, "apiVersion") },
		"kind":       func(n *yaml.Node) { kind = r.text(n, "kind") },
		"metadata":   func(*yaml.Node) {}, // a name, for people
		"spec":       func(n *yaml.Node) { spec = n },
	})
	if len(r.wrong) == 0 && (version != snapshots.APIVersion || kind != WAFPolicyKind) {
		r.fail(1, fmt.Sprintf("this is %s of %s, not a %s", printable.Quoted(kind), printable.Quoted(version), WAFPolicyKind), begin)
		return
	}
	if spec != nil {
		// These fields say what is done.
		r.lines = map[string]int{}
		r.fields(spec, "spec.", map[string]func(*yaml.Node){
			"engine":    func(n *yaml.Node) { r.out.Engine = wafpolicy.Engine(r.choice(n, "spec.engine", "detect", "block")) },
			"paranoia":  func(n *yaml.Node) { r.out.Paranoia = r.number(n, "spec.paranoia", 1, wafpolicy.MaxParanoia) },
			"threshold": func(n *yaml.Node) { r.out.Threshold = r.number(n, "spec.threshold", 1, wafpolicy.MaxThreshold) },
			"bodyLimit": func(n *yaml.Node) { r.out.BodyLimit = r.number(n, "spec.bodyLimit", 1, 1<<20) },
			"failure": func(n *yaml.Node) {
				r.out.Open = r.choice(n, "spec.failure", "closed", "open") == "open"
			},
			"uninspected": func(n *yaml.Node) {
				r.out.Partial = r.choice(n, "spec.uninspected", "deny", "allow") == "allow"
			},
			"exclude": r.exclude,
		})
	}
}

func (r *policyReader) exclude(n *yaml.Node) {
	for i, item := range r.list(n, "spec.exclude", wafpolicy.MaxExclusions) {
		var e wafpolicy.Exclusion
		at := fmt.Sprintf("exclude[%d]", i)
		texts := func(name string, into *[]string) func(*yaml.Node) {
			return func(n *yaml.Node) {
				for j, word := range r.list(n, "spec."+at+"."+name, wafpolicy.MaxNames) {
					place := fmt.Sprintf("%s.%s[%d]", at, name, j)
					r.lines[place] = word.Line
					*into = append(*into, r.text(word, "spec."+place))
				}
			}
		}
		r.lines[at] = item.Line
		r.fields(item, "spec."+at+".", map[string]func(*yaml.Node){
			"rules": texts("rules", &e.Rules), "tags": texts("tags", &e.Tags), "targets": texts("targets", &e.Targets),
		})
		r.out.Exclude = append(r.out.Exclude, e)
	}
}

// checked says what the check of a policy found, of which each line begins with the name of a field.
func (r *policyReader) checked(err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		field, _, _ := strings.Cut(line, ":")
		at := r.lines[field]
		for at == 0 && field != "" { // the line of the next larger thing
			field = field[:max(0, strings.LastIndexAny(field, ".["))]
			at = r.lines[field]
		}
		r.fail(at, "spec."+line, "docs/reference/waf.md says what a policy may have")
	}
}

// fields calls what is to be done with each field of a mapping.
func (r *policyReader) fields(n *yaml.Node, path string, known map[string]func(*yaml.Node)) {
	if n = follow(n); n.Kind != yaml.MappingNode {
		r.fail(n.Line, strings.TrimSuffix(path, ".")+": want fields", "")
		return
	}
	var names, seen []string
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	for i := 0; i+1 < len(n.Content); i += 2 {
		if len(r.wrong) >= mostPolicyErrors {
			return
		}
		key := n.Content[i]
		read, ok := known[key.Value]
		switch {
		case !ok:
			r.fail(key.Line, path+printable.Quoted(key.Value)+": unknown field", cmp.Or(process.DidYouMean(key.Value, names), "use one of "+strings.Join(names, ", ")))
		case slices.Contains(seen, key.Value):
			r.fail(key.Line, path+key.Value+": is set twice", "")
		default:
			if r.lines != nil {
				r.lines[strings.TrimPrefix(path+key.Value, "spec.")] = key.Line
			}
			read(n.Content[i+1])
		}
		seen = append(seen, key.Value)
	}
}

// list returns the items of a list, if they are not more than they may be: aliases make a short text long.
func (r *policyReader) list(n *yaml.Node, path string, most int) []*yaml.Node {
	line := n.Line
	switch n = follow(n); {
	case n.Kind != yaml.SequenceNode:
		r.fail(line, path+": want a list", "")
		return nil
	case len(n.Content) > most:
		r.fail(line, fmt.Sprintf("%s: there are %d, and the limit is %d", path, len(n.Content), most), "")
		return nil
	}
	return n.Content
}

func (r *policyReader) text(n *yaml.Node, path string) string {
	if n = follow(n); n.Kind != yaml.ScalarNode || n.Tag == yaml.NodeTagNull {
		r.fail(n.Line, path+": want a text", "")
		return ""
	}
	return n.Value
}

func (r *policyReader) choice(n *yaml.Node, path, first, second string) string {
	text := r.text(n, path)
	if text != first && text != second {
		r.fail(n.Line, fmt.Sprintf("%s: %.80q is neither %s nor %s", path, text, first, second), "use one of the two")
	}
	return text
}

func (r *policyReader) number(n *yaml.Node, path string, least, most int) int {
	text := r.text(n, path)
	number, err := strconv.Atoi(text)
	if err != nil || number < least || number > most || strconv.Itoa(number) != text {
		r.fail(n.Line, fmt.Sprintf("%s: %.80q is not a number from %d to %d", path, text, least, most), "")
		return 0
	}
	return number
}

func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
