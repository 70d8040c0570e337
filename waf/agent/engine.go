package agent

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	coreruleset "github.com/corazawaf/coraza-coreruleset/v4"
	"github.com/corazawaf/coraza/v3"
	"github.com/corazawaf/coraza/v3/experimental"
	"github.com/corazawaf/coraza/v3/types"
	previous "hapsnap.dev/previous/coreruleset/v4"

	"github.com/hapsnap/hapsnap/waf/policy"
)

// maxBody is the longest body that is inspected, in bytes. It is beyond any frame.
const maxBody = 16 << 20

// base are the settings of the engine. It always evaluates all rules and decides as if it blocked; what comes of it
// is the agent's to say. Rules 200000 to 200006 are those of coraza.conf-recommended: which bodies are read how, and
// that a body which cannot be read is denied.
const base = `
SecRuleEngine On
SecRequestBodyAccess On
SecResponseBodyAccess Off
SecAuditEngine Off
SecRxPreFilter On
SecRequestBodyJsonDepthLimit 128
SecRequestBodyLimitAction Reject
SecDefaultAction "phase:1,nolog,noauditlog,pass"
SecDefaultAction "phase:2,nolog,noauditlog,pass"
SecRule REQUEST_HEADERS:Content-Type "^(?:application(?:/soap\+|/)|text/)xml" "id:200000,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=XML"
SecRule REQUEST_HEADERS:Content-Type "^application/json" "id:200001,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=JSON"
SecRule REQUEST_HEADERS:Content-Type "^application/[a-z0-9.-]+[+]json" "id:200006,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=JSON"
SecRule REQBODY_ERROR "!@eq 0" "id:200002,phase:2,t:none,log,deny,status:400,msg:'The body of the request cannot be read',logdata:'%{reqbody_error_msg}',tag:'attack-protocol',severity:2"
SecRule MULTIPART_STRICT_ERROR "!@eq 0" "id:200003,phase:2,t:none,log,deny,status:400,msg:'The multipart body is not well-formed',tag:'attack-protocol',severity:2"
`

// A ruleSet is a version of the Core Rule Set.
type ruleSet struct {
	version string
	files   fs.FS
	// detection returns the rules that exclusions may name. Those that only skip others, by the paranoia level,
	// are none.
	detection func() ([]rule, error)
}

func newRuleSet(version string, files fs.FS) *ruleSet {
	s := &ruleSet{version: version, files: files}
	s.detection = sync.OnceValues(s.detectionRules)
	return s
}

// ruleSets are what the agent carries, the newest first: agents are upgraded first, and a snapshot goes on with the
// rules that it was made for until the compiler makes another, and when somebody pins it.
var ruleSets = []*ruleSet{newRuleSet(policy.RulesVersion, coreruleset.FS), newRuleSet(policy.PreviousRulesVersion, previous.FS)}

// ruleSetFor returns the rules of a version, or the newest if the agent does not carry it.
func ruleSetFor(version []byte) (s *ruleSet, carried bool) {
	for _, s := range ruleSets {
		if s.version == string(version) {
			return s, true
		}
	}
	return ruleSets[0], false
}

// requests returns the files of rules about requests, in their order: the set-up of the Core Rule Set, detection,
// and the evaluation of the score. Rules about responses are of no use here.
func (s *ruleSet) requests() ([]string, error) {
	all, err := fs.Glob(s.files, "@owasp_crs/REQUEST-*.conf")
	if err != nil {
		return nil, err
	}
	slices.Sort(all)
	return slices.DeleteFunc(all, func(file string) bool {
		// 905 lets requests of a local Apache through, and 900 and 999 are places for people's own rules.
		name := path.Base(file)
		return strings.HasPrefix(name, "REQUEST-905-") || strings.HasPrefix(name, "REQUEST-900-") || strings.HasPrefix(name, "REQUEST-999-")
	}), nil
}

// directives returns a policy in the language of the engine.
func (s *ruleSet) directives(p policy.Policy) (string, error) {
	p = p.OrDefaults()
	files, err := s.requests()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	out.WriteString(base)
	fmt.Fprintf(&out, "SecAction \"id:900990,phase:1,pass,t:none,nolog,setvar:tx.crs_setup_version=%s,"+
		"setvar:tx.blocking_paranoia_level=%d,setvar:tx.detection_paranoia_level=%d,setvar:tx.inbound_anomaly_score_threshold=%d\"\n",
		strings.ReplaceAll(s.version, ".", ""), p.Paranoia, p.Paranoia, p.Threshold)
	for _, file := range files {
		fmt.Fprintf(&out, "Include %s\n", file)
	}
	return out.String(), nil
}

// concerns reports whether an exclusion names a rule, by its id or by a tag.
func concerns(e policy.Exclusion, r rule) bool {
	for _, text := range e.Rules {
		if first, last, err := policy.ParseRange(text); err == nil && first <= r.id && r.id <= last {
			return true
		}
	}
	return slices.ContainsFunc(e.Tags, func(tag string) bool { return slices.Contains(r.tags, tag) })
}

// inLanguage returns a target as the language of the rules has it. A * at the end becomes a regular expression.
func inLanguage(target string) string {
	collection, key, err := policy.ParseTarget(target)
	switch {
	case err != nil:
		return target // policies are checked before
	case collection == "XML":
		return "XML:/*"
	case strings.HasSuffix(key, "*"):
		return collection + ":/^" + regexp.QuoteMeta(strings.TrimSuffix(key, "*")) + "/"
	}
	return target
}

// A rule is one of detection.
type rule struct {
	id   int
	tags []string
}

func (s *ruleSet) detectionRules() ([]rule, error) {
	files, err := s.requests()
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for _, file := range files {
		fmt.Fprintf(&text, "Include %s\n", file)
	}
	var rules []rule
	config := experimental.WAFConfigWithRuleObserver(s.configuration(base+text.String()), func(r types.RuleMetadata) {
		if policy.InPolicies(r.ID()) && (r.ID() < policy.FirstRule || len(r.Tags()) > 1) {
			rules = append(rules, rule{r.ID(), slices.Clone(r.Tags())})
		}
	})
	if _, err := coraza.NewWAF(config); err != nil {
		return nil, err
	}
	return rules, nil
}

func (s *ruleSet) configuration(text string) coraza.WAFConfig {
	return coraza.NewWAFConfig().WithRootFS(s.files).WithRequestBodyLimit(maxBody).WithRequestBodyInMemoryLimit(maxBody).WithDirectives(text)
}

// engine prepares a policy.
func (s *ruleSet) engine(p policy.Policy) (coraza.WAF, error) {
	rules, err := s.detection()
	if err != nil {
		return nil, err
	}
	text, err := s.directives(p)
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	out.WriteString(text)
	// Exclusions of the policy follow.
	for _, e := range p.Exclude {
		for _, r := range rules {
			if !concerns(e, r) {
				continue
			}
			if len(e.Targets) == 0 {
				fmt.Fprintf(&out, "SecRuleRemoveById %d\n", r.id)
			}
			for _, target := range e.Targets {
				fmt.Fprintf(&out, "SecRuleUpdateTargetById %d \"!%s\"\n", r.id, inLanguage(target))
			}
		}
	}
	return coraza.NewWAF(s.configuration(out.String()))
}
