package migrate

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/expression"
)

// prefixPattern is a path of ingress-nginx that stands for a prefix, whose
// second group is the rest.
var prefixPattern = regexp.MustCompile(`^(/[A-Za-z0-9_./~-]*?)\(/\|\$\)\(\.\*\)$`)

// variables matches references of nginx to groups; ours are written \1.
var variables = regexp.MustCompile(`\$([1-9])`)

// nginxRewrite translates the rewriting of paths, and paths that are regular
// expressions.
func nginxRewrite(c *call) {
	target := c.value("rewrite-target")
	if !c.has("rewrite-target") && c.value("use-regex") != "true" {
		return
	}
	if c.redirectsByTarget(target) || c.rewritesSome(target) {
		return
	}
	patterns, prefixes := c.patterns()
	switch {
	case patterns > 0 && prefixes == len(c.object.paths) && strings.HasSuffix(target, "/$2"):
		for i, p := range c.object.paths {
			c.object.paths[i].prefix = orRoot(prefixPattern.FindStringSubmatch(p.path)[1])
		}
		c.set("rewrite-path", orRoot(strings.TrimSuffix(target, "/$2")))
	case patterns > 0:
		if err := c.nginxExpressions(target); err != nil {
			c.object.restorePaths()
			c.out, c.said = nil, nil
			c.keepAll(err.Error(), "see docs/reference/expressions.md, or write Prefix or Exact paths; rewrite-path may hold an expression")
		}
	case !c.has("rewrite-target"): // use-regex, and no path that needs it
	case strings.Contains(target, "$"):
		c.keepAll(fmt.Sprintf("%q refers to groups that its paths do not have", target), `use rewrite-path with an expression, such as "^/old/(.*) /new/\1"`)
	default:
		c.set("rewrite-path", "^.* "+target)
		c.differs("rewrite-target", "replaces the whole path, as it did", "with rewrite-path: "+target+" it would replace the path of the rule only")
	}
}

// patterns returns how many paths are regular expressions, and how many of these stand for a
// prefix.
func (c *call) patterns() (patterns, prefixes int) {
	for _, p := range c.object.paths {
		if strings.ContainsAny(p.path, patternSigns) {
			patterns++
		}
		if prefixPattern.MatchString(p.path) {
			prefixes++
		}
	}
	return patterns, prefixes
}

// staysExpression reports whether the paths of an Ingress become expressions of ours.
func (c *call) staysExpression() bool {
	patterns, prefixes := c.patterns()
	asks := c.has("rewrite-target") || c.value("use-regex") == "true"
	return asks && patterns > 0 && !(prefixes == len(c.object.paths) && strings.HasSuffix(c.value("rewrite-target"), "/$2"))
}

// nginxExpressions leaves paths the expressions that they are. To ingress-nginx, all paths of
// such an Ingress are expressions, unless they are exact.
func (c *call) nginxExpressions(target string) error {
	for i, p := range c.object.paths {
		if p.kind == "Exact" {
			if strings.ContainsAny(p.path, patternSigns) {
				return fmt.Errorf("the path %q is Exact and an expression", p.path)
			}
			continue
		}
		_, err := expression.Parse("(?i)^(?:" + p.path + ")")
		if why, ok := errors.AsType[*expression.Error](err); ok {
			return fmt.Errorf("the path %s is an expression that %s", strconv.Quote(p.path), why.Message)
		}
		c.object.paths[i].expression = true
	}
	c.set("path-type-default", "Regex")
	name := "use-regex"
	if target != "" {
		name = "rewrite-target"
		if target = variables.ReplaceAllString(target, `\$1`); strings.Contains(target, "$") {
			return fmt.Errorf("the target holds a variable of nginx other than a group")
		}
		c.set("rewrite-path", target)
	}
	c.differs(name, "compares its paths with requests after the exact and prefix paths of other Ingresses, and by length only with one another",
		"see docs/reference/expressions.md for what comes first")
	return nil
}
