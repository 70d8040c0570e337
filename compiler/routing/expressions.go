package routing

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/expression"
)

// Expression is the type of paths that are regular expressions. They are compared from the beginning of a request's path,
// and ignore case. An expression gets a request only if no exact path matches, and no prefix except those that the
// expression comes before.
const Expression PathType = "Expression"

// ExpressionRoute says when the expression of a Route is tried.
type ExpressionRoute struct {
	PathMatch
	// Prefixes are the prefixes of the host that it comes before, as [PrefixKey] writes them.
	Prefixes []string
}

// ID names the expression in files.
func (e ExpressionRoute) ID() string { return expressionID(e.Path) }

func expressionID(path string) string { return digestOf("expression " + path) }

// PrefixKey names a prefix of a host in the file of expressions.
func PrefixKey(path string) string { return digestOf("prefix " + path) }

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

// CheckExpression says why a path cannot be an expression.
func CheckExpression(path string) (message, hint string) {
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

// LiteralOf returns what every path begins with that an expression matches, in lower case.
func LiteralOf(path string) string {
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

// ClosedPrefixes returns the paths as prefixes that stand for an expression which cannot be used: what
// it is sure to begin with, and the whole elements of that.
func ClosedPrefixes(path string) []string {
	literal := LiteralOf(path)
	if _, err := regexp.Compile(path); err != nil {
		literal = path[:strings.IndexAny(path+"(", `\^$.|?*+()[]{}`)]
		if rest := path[len(literal):]; rest != "" && strings.Contains("?*{", rest[:1]) {
			literal = literal[:max(1, len(literal)-1)]
		}
	}
	return slices.Compact([]string{AsRequested(literal), AsRequested(literal[:1+strings.LastIndexByte(literal, '/')])})
}

// ExpressionSteps returns about how many steps expressions take together on the worst path. Two whose
// literal beginnings differ do not both get beyond them.
func ExpressionSteps(paths []string) int {
	type known struct {
		literal string
		steps   int
	}
	all := make([]known, len(paths))
	for i, path := range paths {
		e, _ := expression.Parse(patternOf(startOf(path)))
		all[i] = known{LiteralOf(path), e.Steps}
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
				out = append(out, ExpressionPrefix{h.Name + "|" + c.Path + "/", PrefixKey(c.Path), c.Routes[len(c.Routes)-1].Origin})
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

// NewBackendExpression returns a path that is an expression as a backend has it.
func NewBackendExpression(path string) BackendExpression {
	return BackendExpression{expressionID(path), patternOf(path)}
}

// SortExpressions returns expressions sorted, each once.
func SortExpressions(all []BackendExpression) []BackendExpression {
	slices.SortFunc(all, func(a, b BackendExpression) int { return cmp.Compare(a.ID, b.ID) })
	return slices.Compact(all)
}

// Choice is what becomes of the requests for one path of a host: the routes for
// it, in the order in which they are tried.
type Choice struct {
	PathMatch
	Routes []Route
	bound  bool // the host is one of a Bind with a name
}

// Choices returns the routes of the host by path.
func (h Host) Choices() []Choice {
	var out []Choice
	for rest := h.Routes; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Match.PathMatch == rest[0].Match.PathMatch {
			n++
		}
		out = append(out, Choice{rest[0].Match.PathMatch, rest[:n], h.Bind != ""})
		rest = rest[n:]
	}
	return out
}

// ReplacesPrefix reports whether a route replaces the path of which it matched the beginning.
func (c Choice) ReplacesPrefix() bool {
	return c.Type != Expression && slices.ContainsFunc(c.Routes, Route.ReplacesPrefix)
}

// Plain reports whether nothing but host and path decides.
func (c Choice) Plain() bool { return len(c.Routes) == 1 && len(c.Routes[0].Match.Conditions) == 0 }

// To names what maps lead to: the backend, or else the choice itself, by the
// backend of its last route and a digest of the others. Equal choices have one
// name, on whatever host and path they are. The name of a choice has a "?", and that of
// no backend has one.
func (c Choice) To() string {
	last := c.Routes[len(c.Routes)-1]
	if c.Plain() {
		return last.Backend
	}
	digest := sha256.New()
	for _, r := range c.Routes {
		fmt.Fprintf(digest, "%q %q %v\n", r.Match.Conditions, r.Backend, r.Yields)
	}
	length := 4
	if c.bound {
		length = 16 // objects of several namespaces put such a list together
	}
	return last.Backend + "?" + hex.EncodeToString(digest.Sum(nil)[:length])
}

// Complete reports whether some route takes every request that gets to the choice.
func (c Choice) Complete() bool { return len(c.Routes[len(c.Routes)-1].Match.Conditions) == 0 }
