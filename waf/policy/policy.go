package policy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
)

// The versions of the Core Rule Set that agents of this build carry. A compiler of this build makes snapshots for
// RulesVersion; with PreviousRulesVersion agents go on with a snapshot of the compiler before, and with one that is pinned.
const (
	RulesVersion         = "4.25.0"
	PreviousRulesVersion = "4.22.0"
)

// MaxText is how long the canonical text of a policy may be, in bytes.
const MaxText = 4096

// Engine says what becomes of a request that reaches the threshold.
type Engine string

// The engines. The zero value is Detect.
const (
	// Detect reports the request and lets it pass.
	Detect Engine = "detect"
	// Block denies it.
	Block Engine = "block"
)

// Defaults of a policy.
const (
	DefaultEngine    = Detect
	DefaultParanoia  = 1
	DefaultThreshold = 5
)

// Bounds of a policy.
const (
	MaxParanoia  = 4
	MaxThreshold = 10000
	// MaxExclusions is how many exclusions a policy may have, and MaxNames how many rules, tags or targets one of
	// them. MaxTargets is how many targets all of them may have: preparing a policy, and each inspection, takes longer
	// with each.
	MaxExclusions = 64
	MaxNames      = 64
	MaxTargets    = 100
)

// A Policy says how requests are inspected. The zero value has all defaults.
type Policy struct {
	Engine Engine `json:"engine,omitempty"`
	// Paranoia is how much is suspected, 1 to 4. Each level adds rules that find more, and find it wrongly more often.
	Paranoia int `json:"paranoia,omitempty"`
	// Threshold is the score at which a request is taken for an attack. A critical rule counts 5.
	Threshold int         `json:"threshold,omitempty"`
	Exclude   []Exclusion `json:"exclude,omitempty"`
}

// An Exclusion takes rules out of a policy, or targets out of rules.
type Exclusion struct {
	// Rules are ids, such as 942100, and ranges of them, such as 942000-942999.
	Rules []string `json:"rules,omitempty"`
	// Tags name the rules that carry one of them, such as attack-sqli.
	Tags []string `json:"tags,omitempty"`
	// Targets are what the rules do not look at, such as ARGS:q. Without targets the rules are off.
	Targets []string `json:"targets,omitempty"`
}

// Parse reads the text of a policy, strictly, and checks it. The text need not be canonical.
func Parse(text string) (Policy, error) {
	if len(text) > MaxText {
		return Policy{}, fmt.Errorf("the policy has %d bytes, and the limit is %d", len(text), MaxText)
	}
	if !strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") {
		return Policy{}, errors.New("the policy is no JSON object")
	}
	var p Policy
	strict, err := kjson.UnmarshalStrict([]byte(text), &p)
	if err = errors.Join(append(strict, err)...); err != nil {
		return Policy{}, fmt.Errorf("read the policy: %w", err)
	}
	if err := p.Check(); err != nil {
		return Policy{}, err
	}
	return p.canonical(), nil
}

// Check returns what is wrong with a policy, field by field, or nil.
func (p Policy) Check() error {
	var wrong []error
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if p.Engine != "" && p.Engine != Detect && p.Engine != Block {
		fail("engine: %q is neither %q nor %q", p.Engine, Detect, Block)
	}
	if p.Paranoia < 0 || p.Paranoia > MaxParanoia {
		fail("paranoia: %d is not from 1 to %d", p.Paranoia, MaxParanoia)
	}
	if p.Threshold < 0 || p.Threshold > MaxThreshold {
		fail("threshold: %d is not from 1 to %d", p.Threshold, MaxThreshold)
	}
	if n := len(p.Exclude); n > MaxExclusions {
		fail("exclude: there are %d, and the limit is %d", n, MaxExclusions)
	}
	targets := 0
	for i, e := range p.Exclude {
		if err := e.check(); err != nil {
			fail("exclude[%d].%w", i, err)
		}
		targets += len(e.Targets)
	}
	if targets > MaxTargets {
		fail("exclude: there are %d targets, and the limit is %d", targets, MaxTargets)
	}
	if len(wrong) == 0 {
		if n := len(p.String()); n > MaxText {
			fail("the policy has %d bytes, and the limit is %d", n, MaxText)
		}
	}
	return errors.Join(wrong...)
}

// OrDefaults returns the policy with its defaults written out.
func (p Policy) OrDefaults() Policy {
	p.Engine = cmp.Or(p.Engine, DefaultEngine)
	p.Paranoia = cmp.Or(p.Paranoia, DefaultParanoia)
	p.Threshold = cmp.Or(p.Threshold, DefaultThreshold)
	return p
}

// String returns the canonical text: no blanks, nothing that is the default, and everything sorted. Policies that
// mean the same by that have the same text.
func (p Policy) String() string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(p.canonical()); err != nil {
		panic(err) // the type has nothing that JSON cannot express
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// Digest returns a short name for a policy, 12 digits that depend on its canonical text alone. Metrics and audit
// logs have it.
func (p Policy) Digest() string {
	sum := sha256.Sum256([]byte(p.String()))
	return hex.EncodeToString(sum[:6])
}

// canonical returns the policy without defaults, sorted.
func (p Policy) canonical() Policy {
	if p.Engine == DefaultEngine {
		p.Engine = ""
	}
	if p.Paranoia == DefaultParanoia {
		p.Paranoia = 0
	}
	if p.Threshold == DefaultThreshold {
		p.Threshold = 0
	}
	var exclude []Exclusion
	for _, e := range p.Exclude {
		exclude = append(exclude, Exclusion{Rules: sorted(e.Rules), Tags: sorted(e.Tags), Targets: sorted(e.Targets)})
	}
	slices.SortFunc(exclude, Exclusion.compare)
	p.Exclude = slices.CompactFunc(exclude, func(a, b Exclusion) bool { return a.compare(b) == 0 })
	return p
}

func (e Exclusion) compare(other Exclusion) int {
	return cmp.Or(slices.Compare(e.Rules, other.Rules), slices.Compare(e.Tags, other.Tags), slices.Compare(e.Targets, other.Targets))
}

// sorted returns the texts sorted, each once, or nil for none.
func sorted(texts []string) []string {
	if len(texts) == 0 {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(texts)))
}
