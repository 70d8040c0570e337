// Package policy has the text that says how a request is inspected: the engine, the paranoia level, the
// threshold, and what is excluded. A compiler writes it into the configuration of HAProxy, HAProxy sends it with
// each request, and an agent reads it.
//
// Decisions:
//   - The text is JSON in one canonical form, so that equal policies are equal texts, and an agent prepares each once.
//   - A policy holds nothing that the language of the rules (SecLang) could read as more than a number, a tag or
//     a target. What is allowed in each is a list of characters that has no quote, blank, comma, bar or backslash.
//     So a tenant's policy cannot become a directive, whichever way an agent writes it down.
//   - Exclusions name detection rules of requests only, [FirstRule] to [LastRule]. The rules that set the engine up
//     and those that add up the score are out of reach.
//   - The package knows neither the rules nor an engine: the compiler imports it, and must not carry them.
package policy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
)

// The versions of the Core Rule Set that agents of this build carry. A compiler of this build makes snapshots
// for RulesVersion. With PreviousRulesVersion agents continue with a snapshot of the previous compiler, or with
// a pinned one.
const (
	RulesVersion         = "4.25.0"
	PreviousRulesVersion = "4.22.0"
)

// MaxText is how long the canonical text of a policy may be, in bytes.
const MaxText = 4096

// Engine says what happens to a request that reaches the threshold.
type Engine string

// The engines. The zero value is Detect.
const (
	// Detect reports the request and lets it pass.
	Detect Engine = "detect"
	// Block denies the request.
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
	// MaxExclusions is how many exclusions a policy may have, and MaxNames how many rules, tags or targets each
	// of them may have. MaxTargets is how many targets all of them may have together: each one makes the
	// preparation of a policy, and each inspection, slower.
	MaxExclusions = 64
	MaxNames      = 64
	MaxTargets    = 100
)

// A Policy says how requests are inspected. The zero value has all defaults.
type Policy struct {
	Engine Engine `json:"engine,omitempty"`
	// Paranoia is how suspicious the rules are, 1 to 4. Each level adds rules that find more attacks, and have
	// more false positives.
	Paranoia int `json:"paranoia,omitempty"`
	// Threshold is the score at which a request is taken for an attack. A critical rule counts 5.
	Threshold int         `json:"threshold,omitempty"`
	Exclude   []Exclusion `json:"exclude,omitempty"`
}

// An Exclusion removes rules from a policy, or targets from rules.
type Exclusion struct {
	// Rules are ids, such as 942100, and ranges of them, such as 942000-942999.
	Rules []string `json:"rules,omitempty"`
	// Tags name the rules that carry one of them, such as attack-sqli.
	Tags []string `json:"tags,omitempty"`
	// Targets are parts of requests that the rules ignore, such as ARGS:q. Without targets the rules are off.
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

// String returns the canonical text: no blanks, no default values, and everything sorted. So policies with the
// same meaning have the same text.
func (p Policy) String() string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(p.canonical()); err != nil {
		panic(err) // the type has nothing that JSON cannot express
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// Digest returns a short name for a policy: 12 digits that depend only on its canonical text. Metrics and audit
// logs use it.
func (p Policy) Digest() string {
	sum := sha256.Sum256([]byte(p.String()))
	return hex.EncodeToString(sum[:6])
}

// canonical returns the policy without default values, sorted.
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

// sorted returns the texts sorted, each once, or nil if there are none.
func sorted(texts []string) []string {
	if len(texts) == 0 {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(texts)))
}

// FirstRule and LastRule bound the ids that exclusions may name: those of the rules that inspect requests. The
// ids of the rules that deny an unreadable body are allowed too.
const (
	FirstRule = 911000
	LastRule  = 944999

	UnreadableBody      = 200002
	UnreadableMultipart = 200003
)

// InPolicies reports whether policies may name a rule.
func InPolicies(id int) bool {
	return id == UnreadableBody || id == UnreadableMultipart || id >= FirstRule && id <= LastRule
}

// collections are the parts of requests that rules inspect, and whether a target of each may have a key.
var collections = map[string]bool{
	"ARGS": true, "ARGS_GET": true, "ARGS_POST": true,
	"ARGS_NAMES": true, "ARGS_GET_NAMES": true, "ARGS_POST_NAMES": true,
	"FILES": true, "FILES_NAMES": true,
	"MULTIPART_PART_HEADERS": true,
	"QUERY_STRING":           false,
	"REQUEST_BASENAME":       false, "REQUEST_BODY": false, "REQUEST_FILENAME": false, "REQUEST_LINE": false, "REQUEST_METHOD": false,
	"REQUEST_COOKIES": true, "REQUEST_COOKIES_NAMES": true,
	"REQUEST_HEADERS": true, "REQUEST_HEADERS_NAMES": true,
	"REQUEST_PROTOCOL": false, "REQUEST_URI": false, "REQUEST_URI_RAW": false,
	"XML": false,
}

var (
	tagSyntax = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9/_.-]{0,63}$`)
	// keySyntax matches names of parameters, cookies and headers as applications use them: user[name],
	// ctl00$Main, json.items.0.id. A * at the end stands for anything.
	keySyntax = regexp.MustCompile(`^[A-Za-z0-9_.$\[\]-]{1,128}\*?$`)
)

// check returns what is wrong with an exclusion. The text begins with the name of a field.
func (e Exclusion) check() error {
	if len(e.Rules) == 0 && len(e.Tags) == 0 {
		return errors.New("rules: an exclusion names rules, or tags of rules")
	}
	for _, field := range []struct {
		name  string
		items []string
		check func(string) error
	}{
		{"rules", e.Rules, func(s string) error { _, _, err := ParseRange(s); return err }},
		{"tags", e.Tags, checkTag},
		{"targets", e.Targets, func(s string) error { _, _, err := ParseTarget(s); return err }},
	} {
		if n := len(field.items); n > MaxNames {
			return fmt.Errorf("%s: there are %d, and the limit is %d", field.name, n, MaxNames)
		}
		for i, item := range field.items {
			if err := field.check(item); err != nil {
				return fmt.Errorf("%s[%d]: %w", field.name, i, err)
			}
		}
	}
	return nil
}

// ParseRange reads the id of a rule, or a range of ids with both ends.
func ParseRange(text string) (first, last int, err error) {
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	first, err = ruleID(low)
	if err == nil {
		last, err = ruleID(high)
	}
	switch {
	case err != nil:
	case first > last:
		err = errors.New("it ends before it begins")
	case first < FirstRule && last >= FirstRule:
		err = errors.New("it begins and ends among different rules")
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%.64q is no id of a rule, such as 942100, and no range, such as 942000-942999: %w", text, err)
	}
	return first, last, nil
}

// ruleID reads an id: six digits.
func ruleID(text string) (int, error) {
	id, err := strconv.Atoi(text)
	if err != nil || len(text) != 6 || text[0] < '1' {
		return 0, errors.New("an id has six digits")
	}
	if !InPolicies(id) {
		return 0, fmt.Errorf("rules that inspect requests have ids from %d to %d, %d and %d", FirstRule, LastRule, UnreadableBody, UnreadableMultipart)
	}
	return id, nil
}

func checkTag(text string) error {
	if !tagSyntax.MatchString(text) {
		return fmt.Errorf("%.64q is no tag: letters, digits and / _ . -, at most 64", text)
	}
	return nil
}

// ParseTarget reads a target: a collection such as REQUEST_BODY, and perhaps a colon and a key, such as ARGS:q.
// A key that ends in * stands for all keys with that beginning.
func ParseTarget(text string) (collection, key string, err error) {
	collection, key, hasKey := strings.Cut(text, ":")
	keyed, known := collections[collection]
	switch {
	case !known:
		return "", "", fmt.Errorf("%.64q is no target: it begins with none of %s", text, strings.Join(Collections(), ", "))
	case hasKey && !keyed:
		return "", "", fmt.Errorf("%.64q is no target: %s takes no key", text, collection)
	case hasKey && !keySyntax.MatchString(key):
		return "", "", fmt.Errorf("%.64q is no target: a key has letters, digits and _ . $ [ ] -, at most 128, and may end in *", text)
	}
	return collection, key, nil
}

// Collections returns the names that targets begin with, sorted.
func Collections() []string {
	var names []string
	for name := range collections {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
