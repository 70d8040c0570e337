package migrate

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/expression"
)

func nginxRedirectRule() Rule {
	return Rule{
		From: []string{"permanent-redirect", "permanent-redirect-code", "temporal-redirect", "temporal-redirect-code"}, To: []string{"redirect"}, convert: nginxRedirect,
		Note: "The redirect goes to exactly that URL. A URL without a path gets `/`, so that `redirect` does not append the request's path; `https://new.example$request_uri` keeps path and query. If both annotations are set, the temporal one wins. The redirect to HTTPS comes first, if `ssl-redirect` is on.",
	}
}

// nginxRedirect translates a redirect of all requests.
func nginxRedirect(c *call) {
	kind, usual, last := "permanent", 301, 308
	if c.has("temporal-redirect") {
		kind, usual, last = "temporal", 302, 307
	}
	location := c.value(kind + "-redirect")
	if location == "" {
		return
	}
	code, err := strconv.Atoi(c.value(kind + "-redirect-code"))
	if err != nil || code < 300 || code > last {
		code = usual // as in ingress-nginx
	}
	if !slices.Contains([]int{301, 302, 303, 307, 308}, code) {
		c.keepAll("the status "+strconv.Itoa(code)+" is that of no redirect", "use 301, 302, 303, 307 or 308")
		return
	}
	location, err = exactly(location)
	if err != nil {
		c.keepAll(err.Error(), "a redirect to a URL without a path keeps the request's path and query")
		return
	}
	c.set("redirect", location+" "+strconv.Itoa(code))
}

// exactly returns a location of nginx in the form of our option for redirects.
func exactly(location string) (string, error) {
	withPath := strings.HasSuffix(location, "$request_uri")
	u, err := url.Parse(strings.TrimSuffix(location, "$request_uri"))
	switch {
	case err != nil || strings.Contains(u.String(), "$") || withPath && strings.Trim(u.Path, "/") != "":
		return "", errors.New("the location holds a variable")
	case withPath:
		u.Path = ""
	case u.Path == "" && u.Host != "":
		u.Path = "/"
	}
	return u.String(), nil
}

// nginxAppRoot translates the redirect from the root of a host. ingress-nginx takes the path and query
// of a URL, and ignores anything that is neither a URL nor a path.
func nginxAppRoot(c *call) {
	root := c.value("app-root")
	switch u, err := url.ParseRequestURI(root); {
	case err != nil:
		c.differs("app-root", strconv.Quote(root)+" is no path: ingress-nginx ignores it, and it is removed", "write /"+strings.TrimLeft(root, "/")+" into app-root if that is meant")
		return
	case u.IsAbs():
		root = u.RequestURI()
		c.differs("app-root", fmt.Sprintf("is translated as %s: ingress-nginx takes no more than that of the URL", root), "")
	}
	c.set("app-root", root)
	if !slices.ContainsFunc(c.object.paths, func(p pathEdit) bool { return p.path == "/" || p.path == "" || strings.HasPrefix(p.path, "/(") }) {
		c.differs("app-root", "ingress-nginx redirects / of the host; here a rule of this Ingress must match it, and none does", "add the path / (Exact)")
	}
}

// nginxRetries translates how often, and after which failures, a request is repeated.
func nginxRetries(c *call) {
	if c.value("proxy-next-upstream") == "off" {
		c.set("retries", "0")
		return
	}
	for _, when := range strings.Fields(c.value("proxy-next-upstream")) {
		if when != "error" && when != "timeout" {
			c.differs("proxy-next-upstream", "is translated without "+strconv.Quote(when), "only connections that failed are tried again")
			break
		}
	}
	if !c.has("proxy-next-upstream-tries") {
		return
	}
	tries, err := strconv.Atoi(c.value("proxy-next-upstream-tries"))
	if err != nil || tries < 1 {
		c.keep("proxy-next-upstream-tries", "asks for any number of tries", "use retries, 0 to 100")
		return
	}
	c.set("retries", strconv.Itoa(tries-1))
}

// rewritesSome translates rewriting if some of the paths are the target itself, and so do not change. It
// reports whether nothing else is left to do.
func rewritesSome(c *call, target string) bool {
	if strings.ContainsAny(target, "$") || !c.has("rewrite-target") {
		return false
	}
	var others []string
	for _, p := range c.object.paths {
		switch path := strings.TrimSuffix(p.path, "/"); {
		case p.path == target:
		case strings.ContainsAny(p.path, patternSigns):
			return false
		case !slices.Contains(others, regexp.QuoteMeta(path)):
			others = append(others, regexp.QuoteMeta(path))
		}
	}
	switch {
	case len(others) == 0:
		return len(c.object.paths) > 0
	case !slices.ContainsFunc(c.object.paths, func(p pathEdit) bool { return p.path == target }):
		return false
	}
	c.set("rewrite-path", "^(?:"+strings.Join(others, "|")+")(?:/.*)?$ "+target)
	c.differs("rewrite-target", "replaces the whole path, as it did, but not for the path that is the target", "")
	return true
}

// targetURL matches a target that is a URL with the part of the path after its first slash.
var targetURL = regexp.MustCompile(`^(https?://[^/$]+)/\$1$`)

// redirectsByTarget translates a target that is a URL, to which nginx redirects. It reports whether the target
// keeps the path of all requests.
func redirectsByTarget(c *call, target string) bool {
	m := targetURL.FindStringSubmatch(target)
	if m == nil || len(c.object.paths) == 0 || slices.ContainsFunc(c.object.paths, func(p pathEdit) bool { return p.path != "/(.*)" && p.path != "/?(.*)" }) {
		return false
	}
	for i := range c.object.paths {
		c.object.paths[i].prefix = "/"
	}
	c.set("redirect", m[1]+" 302")
	return true
}

// prefixPattern is a path of ingress-nginx that matches a prefix, with the rest in its second group.
var prefixPattern = regexp.MustCompile(`^(/[A-Za-z0-9_./~-]*?)\(/\|\$\)\(\.\*\)$`)

// variables matches references to groups in nginx. Ours have the form \1.
var variables = regexp.MustCompile(`\$([1-9])`)

// nginxRewrite translates the rewriting of paths, and paths that are regular expressions.
func nginxRewrite(c *call) {
	target := c.value("rewrite-target")
	if !c.has("rewrite-target") && c.value("use-regex") != "true" {
		return
	}
	if redirectsByTarget(c, target) || rewritesSome(c, target) {
		return
	}
	patterns, prefixes := patterns(c)
	switch {
	case patterns > 0 && prefixes == len(c.object.paths) && strings.HasSuffix(target, "/$2"):
		for i, p := range c.object.paths {
			c.object.paths[i].prefix = orRoot(prefixPattern.FindStringSubmatch(p.path)[1])
		}
		c.set("rewrite-path", orRoot(strings.TrimSuffix(target, "/$2")))
	case patterns > 0:
		if err := nginxExpressions(c, target); err != nil {
			for i := range c.object.paths {
				c.object.paths[i].prefix, c.object.paths[i].expression = "", false
			}
			c.out, c.said = nil, nil
			c.keepAll(err.Error(), "see docs/reference/expressions.md, or write Prefix or Exact paths; rewrite-path may hold an expression")
		}
	case !c.has("rewrite-target"): // only use-regex, and no path needs it
	case strings.Contains(target, "$"):
		c.keepAll(fmt.Sprintf("%q refers to groups that its paths do not have", target), `use rewrite-path with an expression, such as "^/old/(.*) /new/\1"`)
	default:
		c.set("rewrite-path", "^.* "+target)
		c.differs("rewrite-target", "replaces the whole path, as it did", "with rewrite-path: "+target+" it would replace the path of the rule only")
	}
}

// patterns returns how many paths are regular expressions, and how many of these match a prefix.
func patterns(c *call) (patterns, prefixes int) {
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

// staysExpression reports whether the paths of an Ingress stay regular expressions.
func staysExpression(c *call) bool {
	patterns, prefixes := patterns(c)
	asks := c.has("rewrite-target") || c.value("use-regex") == "true"
	return asks && patterns > 0 && !(prefixes == len(c.object.paths) && strings.HasSuffix(c.value("rewrite-target"), "/$2"))
}

// nginxExpressions keeps paths as regular expressions. To ingress-nginx, all paths of such an Ingress are
// expressions unless they are exact.
func nginxExpressions(c *call, target string) error {
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
