package agent

import (
	"container/list"
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	coreruleset "github.com/corazawaf/coraza-coreruleset/v4"
	"github.com/corazawaf/coraza/v3"
	"github.com/corazawaf/coraza/v3/experimental"
	"github.com/corazawaf/coraza/v3/types"
	"golang.org/x/sync/singleflight"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/waf/agent/previous"
	"github.com/hapsnap/hapsnap/waf/policy"
)

// policyKey identifies a policy as a request does: by its text, and by the version of the rules for which it is
// prepared.
type policyKey struct{ rules, text string }

// prepared is a policy with its engine, or why it has none.
type prepared struct {
	key    policyKey
	policy policy.Policy
	digest string
	engine coraza.WAF
	err    error

	users   int // requests that use the engine
	dropped bool
}

// policies are the most recently used policies, prepared. Their number is bounded.
type policies struct {
	most    int
	metrics *metrics
	flight  singleflight.Group
	turn    chan struct{} // of the one policy that is being prepared; inspections continue meanwhile
	lock    sync.Mutex
	byKey   map[policyKey]*list.Element
	recent  list.List // of *prepared, the last used first
}

func newPolicies(most int, m *metrics) *policies {
	return &policies{most: most, metrics: m, turn: make(chan struct{}, 1), byKey: map[policyKey]*list.Element{}}
}

// use returns a policy by its text and the version of its rules, and a function to call after use. The policy
// is prepared once, however many requests ask at the same time. It returns nil if ctx is done before that; the
// preparation then continues, for later requests.
func (p *policies) use(ctx context.Context, rules *ruleSet, text []byte) (*prepared, func()) {
	for ctx.Err() == nil {
		if held := p.held(rules.version, text); held != nil {
			return held, func() { p.done(held) }
		}
		key := string(text)
		over := p.flight.DoChan(rules.version+" "+key, func() (any, error) { // the result is in memory
			select {
			case p.turn <- struct{}{}:
			case <-ctx.Done():
				return nil, nil
			}
			defer func() { <-p.turn }()
			if held := p.held(rules.version, []byte(key)); held != nil {
				p.done(held)
				return nil, nil
			}
			p.hold(prepare(rules, key, p.metrics))
			return nil, nil
		})
		select {
		case <-over:
		case <-ctx.Done():
		}
	}
	return nil, nil
}

func prepare(rules *ruleSet, text string, m *metrics) *prepared {
	start := time.Now()
	made := &prepared{key: policyKey{rules.version, text}, digest: noPolicy}
	made.policy, made.err = policy.Parse(text)
	if made.err == nil {
		made.digest = made.policy.Digest()
		made.err = process.Caught(func() (err error) {
			made.engine, err = rules.engine(made.policy)
			return err
		})
	}
	m.prepared.Observe(time.Since(start).Seconds())
	return made
}

func (p *policies) held(version string, text []byte) *prepared {
	p.lock.Lock()
	defer p.lock.Unlock()
	element := p.byKey[policyKey{version, string(text)}]
	if element == nil {
		return nil
	}
	p.recent.MoveToFront(element)
	held := element.Value.(*prepared)
	held.users++
	return held
}

// hold adds a policy, and drops the least recently used one if there are too many.
func (p *policies) hold(made *prepared) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.byKey[made.key] = p.recent.PushFront(made)
	for p.recent.Len() > p.most {
		last := p.recent.Remove(p.recent.Back()).(*prepared)
		delete(p.byKey, last.key)
		last.dropped = true
		last.close()
		if !p.holds(last.digest) {
			p.metrics.forget(last.digest)
		}
	}
	p.metrics.policies.Set(float64(p.recent.Len()))
}

// holds reports whether a policy is in memory, with any rules.
func (p *policies) holds(digest string) bool {
	for e := p.recent.Front(); e != nil; e = e.Next() {
		if e.Value.(*prepared).digest == digest {
			return true
		}
	}
	return false
}

func (p *policies) done(used *prepared) {
	p.lock.Lock()
	defer p.lock.Unlock()
	used.users--
	used.close()
}

// close frees what the engine shares with others, once nobody uses it.
func (p *prepared) close() {
	if closer, ok := p.engine.(io.Closer); ok && p.dropped && p.users == 0 {
		_ = closer.Close() // releases memory, and cannot fail
	}
}

// shares bound how many requests of a route are inspected at a time, so that requests that take long hold up
// only their own route.
type shares struct {
	most int
	lock sync.Mutex
	// of has the shares of the routes that have requests.
	of map[string]*share
}

// share is the share of a route.
type share struct {
	slots chan struct{}
	users int // requests that wait or are inspected
}

func newShares(most int) *shares { return &shares{most: most, of: map[string]*share{}} }

// enter waits for the turn of a request, and returns a function to call at its end. It returns false if ctx is
// done before that.
func (s *shares) enter(ctx context.Context, route string) (leave func(), ok bool) {
	s.lock.Lock()
	of := s.of[route]
	if of == nil {
		of = &share{slots: make(chan struct{}, s.most)}
		s.of[route] = of
	}
	of.users++
	s.lock.Unlock()
	select {
	case of.slots <- struct{}{}:
		return func() { <-of.slots; s.leave(route, of) }, true
	case <-ctx.Done():
		s.leave(route, of)
		return nil, false
	}
}

func (s *shares) leave(route string, of *share) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if of.users--; of.users == 0 {
		delete(s.of, route)
	}
}

// maxBody is the longest body that is inspected, in bytes. It is larger than any frame.
const maxBody = 16 << 20

// base are the settings of the engine. It always evaluates all rules and decides as if it blocked; the agent
// decides what follows. Rules 200000 to 200006 are those of coraza.conf-recommended: they say how each kind of
// body is read, and deny a body that cannot be read.
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
	// detection returns the rules that exclusions may name. Rules that only skip others, by the paranoia level,
	// are not among them.
	detection func() ([]rule, error)
}

func newRuleSet(version string, files fs.FS) *ruleSet {
	s := &ruleSet{version: version, files: files}
	s.detection = sync.OnceValues(s.detectionRules)
	return s
}

// ruleSets are the versions that the agent carries, the newest first. Agents are upgraded first. A snapshot
// keeps the rules that it was made for until the compiler makes another one, and while it is pinned.
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

// requests returns the files of rules about requests, in their order: the set-up of the Core Rule Set,
// detection, and the evaluation of the score. Rules about responses are not needed.
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

// inLanguage returns a target in the language of the rules. A * at the end becomes a regular expression.
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

// A rule is a detection rule.
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
