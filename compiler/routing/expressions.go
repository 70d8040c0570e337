package routing

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/expression"
)

// Expression is the type of paths that are regular expressions. They are compared from the
// beginning of a request's path, without regard to case. A request gets to one only where no
// exact path takes it, and no prefix but those that the expression comes before.
const Expression PathType = "Expression"

// The most expressions of a host and of a namespace, and the most steps that those of a host
// may take together on one path.
const (
	mostOfHost      = 64
	mostOfNamespace = 512
	mostSteps       = 250_000
)

// ExpressionRoute says when the expression of a Route is tried.
type ExpressionRoute struct {
	PathMatch
	// Prefixes are the prefixes of the host that it comes before, as [prefixKey] writes them.
	Prefixes []string
}

// ID names the expression in files.
func (e ExpressionRoute) ID() string { return expressionID(e.Path) }

func expressionID(path string) string { return digestOf("expression " + path) }

// prefixKey names a prefix of a host in the file of expressions.
func prefixKey(path string) string { return digestOf("prefix " + path) }

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}

// noPrefix stands for requests that no prefix takes.
const noPrefix = "-"

// patternOf returns a path as an expression that HAProxy runs on paths.
func patternOf(path string) string { return "(?i)^(?:" + path + ")" }

// startOf returns an expression without an end that takes whatever follows, which is not worth
// looking at to see whether it matches.
func startOf(path string) string {
	for _, end := range []string{"(.*)$", ".*$", "(.*)", ".*"} {
		if start, ok := strings.CutSuffix(path, end); ok && !strings.HasSuffix(start, `\`) {
			return start
		}
	}
	return path
}

// checkExpression says why a path cannot be an expression.
func checkExpression(path string) (message, hint string) {
	for _, r := range path {
		if r <= ' ' || r >= 0x7f || r == '"' || r == '#' {
			return fmt.Sprintf("holds %q", r), "requests carry it percent-encoded"
		}
	}
	_, err := expression.Parse(patternOf(path))
	if err == nil {
		return "", ""
	}
	e := err.(*expression.Error) //nolint:errorlint // as Parse says
	return e.Message, e.Hint
}

// literalOf returns what every path begins with that an expression matches, in lower case.
func literalOf(path string) string {
	re, err := regexp.Compile(path)
	if err != nil {
		return "/"
	}
	literal, _ := re.LiteralPrefix()
	if !strings.HasPrefix(literal, "/") {
		return "/"
	}
	return strings.ToLower(literal)
}

// shutAs returns the paths as prefixes that stand for an expression which cannot be used: what
// it is sure to begin with, and the whole elements of that.
func shutAs(path string) []string {
	literal := literalOf(path)
	if _, err := regexp.Compile(path); err != nil {
		literal = path[:strings.IndexAny(path+"(", `\^$.|?*+()[]{}`)]
		if rest := path[len(literal):]; rest != "" && strings.Contains("?*{", rest[:1]) {
			literal = literal[:max(1, len(literal)-1)]
		}
	}
	return slices.Compact([]string{asRequested(literal), asRequested(literal[:1+strings.LastIndexByte(literal, '/')])})
}

// stepsOf returns about how many steps expressions take together on the worst path. Two whose
// literal beginnings differ do not both get beyond them.
func stepsOf(paths []string) int {
	type known struct {
		literal string
		steps   int
	}
	all := make([]known, len(paths))
	for i, path := range paths {
		e, _ := expression.Parse(patternOf(startOf(path)))
		all[i] = known{literalOf(path), e.Steps}
	}
	most := 0
	for _, a := range all {
		sum := 0
		for _, b := range all {
			if strings.HasPrefix(a.literal, b.literal) {
				sum += b.steps
			} else {
				sum += len(b.literal)
			}
		}
		most = max(most, sum)
	}
	return most
}

// expressionRoutes returns the expressions of a host in the order in which they are tried: by
// namespace, that of the oldest Ingress first, so that nobody takes the requests of an older
// one; of a namespace, the longest first, as ingress-nginx does.
func (h *virtualHost) expressionRoutes() []ExpressionRoute {
	if len(h.expressions) == 0 {
		return nil
	}
	oldest := map[string]ingress{}
	var matches []PathMatch
	for match, c := range h.routes {
		if match.Type != Expression {
			continue
		}
		matches = append(matches, match)
		namespace := c.by.Ref.Namespace
		if o, known := oldest[namespace]; !known || cmp.Or(compareAge(c.by, o), c.by.Ref.Compare(o.Ref)) < 0 {
			oldest[namespace] = c.by
		}
	}
	slices.SortFunc(matches, func(a, b PathMatch) int {
		x, y := h.routes[a].by.Ref.Namespace, h.routes[b].by.Ref.Namespace
		if x != y {
			return cmp.Or(compareAge(oldest[x], oldest[y]), oldest[x].Ref.Compare(oldest[y].Ref))
		}
		return cmp.Or(cmp.Compare(len(b.Path), len(a.Path)), cmp.Compare(a.Path, b.Path))
	})
	var out []ExpressionRoute
	for _, match := range matches {
		e := ExpressionRoute{PathMatch: match}
		for _, prefix := range slices.SortedFunc(maps.Keys(h.routes), PathMatch.compare) {
			if prefix.Type == Prefix && h.precedes(match, prefix) {
				e.Prefixes = append(e.Prefixes, prefixKey(prefix.Path))
			}
		}
		out = append(out, e)
	}
	return out
}

// precedes reports whether an expression comes before a prefix: only if all that it matches
// is below the prefix, which is of the same Ingress, or shorter and of the same namespace.
// So no expression takes requests from a path that is as long as what it is sure of, nor
// from anybody else.
func (h *virtualHost) precedes(expression, prefix PathMatch) bool {
	e, p := h.routes[expression].by.Ref, h.routes[prefix].by.Ref
	literal, below := literalOf(expression.Path), strings.ToLower(prefix.Path)+"/"
	if e == p {
		return strings.HasPrefix(literal+"/", below)
	}
	return e.Namespace == p.Namespace && strings.HasPrefix(literal, below) && len(literal) > len(below)
}

// ExpressionEntry is a line of the file of expressions: what the host, the prefix and the path
// of a request are compared with, and what the request gets to.
type ExpressionEntry struct {
	Pattern, ID, To string
	Origin          Origin
}

// Expressions returns the expressions of hosts in the order in which they are tried.
func Expressions(hosts []Host) []ExpressionEntry {
	var out []ExpressionEntry
	for _, h := range hosts {
		if len(h.Expressions) == 0 {
			continue
		}
		to := map[PathMatch]Choice{}
		for _, c := range h.Choices() {
			to[c.PathMatch] = c
		}
		for _, e := range h.Expressions {
			c := to[e.PathMatch]
			prefixes := strings.Join(append([]string{noPrefix}, e.Prefixes...), "|")
			out = append(out, ExpressionEntry{
				Pattern: fmt.Sprintf(`(?i)^%s\|(?:%s)\|(?:%s)`, regexp.QuoteMeta(h.Name), prefixes, startOf(e.Path)),
				ID:      e.ID(), To: c.To(), Origin: c.Routes[len(c.Routes)-1].Origin,
			})
		}
	}
	return out
}

// ExpressionPrefix is a line of the file of prefixes of hosts with expressions.
type ExpressionPrefix struct {
	Key, Value string
	Origin     Origin
}

// ExpressionPrefixes returns the prefixes of hosts that have expressions, by key.
func ExpressionPrefixes(hosts []Host) []ExpressionPrefix {
	var out []ExpressionPrefix
	for _, h := range hosts {
		if len(h.Expressions) == 0 {
			continue
		}
		root := false
		for _, c := range h.Choices() {
			if c.Type == Prefix {
				root = root || c.Path == ""
				out = append(out, ExpressionPrefix{h.Name + "|" + c.Path + "/", prefixKey(c.Path), c.Routes[len(c.Routes)-1].Origin})
			}
		}
		if !root {
			out = append(out, ExpressionPrefix{h.Name + "|/", noPrefix, h.Origin})
		}
	}
	slices.SortFunc(out, func(a, b ExpressionPrefix) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// BackendExpression is an expression that leads to a backend whose filters replace what it
// matches.
type BackendExpression struct{ ID, Pattern string }

func backendExpression(path string) BackendExpression {
	return BackendExpression{expressionID(path), patternOf(path)}
}

// sortedExpressions returns expressions sorted, each once.
func sortedExpressions(all []BackendExpression) []BackendExpression {
	slices.SortFunc(all, func(a, b BackendExpression) int { return cmp.Compare(a.ID, b.ID) })
	return slices.Compact(all)
}
