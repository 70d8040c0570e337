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

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	wafpolicy "github.com/hapsnap/hapsnap/waf/policy"
)

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
	// mostPolicyErrors bounds what is said of one policy.
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
		r.spec(spec)
	}
}

// spec reads the fields that say what is done.
func (r *policyReader) spec(n *yaml.Node) {
	r.lines = map[string]int{}
	r.fields(n, "spec.", map[string]func(*yaml.Node){
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
