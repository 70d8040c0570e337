package options

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/policy"
)

// fastCGIOptions say which script of a FastCGI application a path is for.
func fastCGIOptions() []Option {
	return []Option{
		define(Option{
			Name: "fcgi-root", Group: Backends, On: onBoth, Needs: "backend-protocol", Value: "a directory", Example: "/srv/app/public", Default: "`/var/www/html`",
			Summary: "Where the scripts of a FastCGI application are, as it sees them.",
		}, scriptRoot, func(s *Settings, v string) { s.fastCGI.Root = v }),
		define(Option{
			Name: "fcgi-index", Group: Backends, On: onBoth, Needs: "backend-protocol", Value: "the name of a script", Example: "app.php", Default: "`index.php`",
			Summary: "The script of a FastCGI application for paths that end in `/`.",
		}, scriptName, func(s *Settings, v string) { s.fastCGI.Index = v }),
		define(Option{
			Name: "fcgi-path-info", Group: Backends, On: onBoth, Needs: "backend-protocol", Value: "a regular expression with one or two groups", Example: `^(/.+\.php)(/.*)?$`,
			Summary: "Divides a decoded path into the script and `PATH_INFO` (a part of [PCRE](expressions.md)). Without it the whole path is the script.",
		}, pathInfo, func(s *Settings, v string) { s.fastCGI.PathInfo = v }),
		define(Option{
			Name: "fcgi-params", Group: Backends, On: onBoth, Needs: "backend-protocol", Value: "lines of `NAME VALUE`", Example: "APP_ENV production\nSCRIPT_FILENAME /srv/app/front.php", most: mostText,
			Summary: "Variables that a FastCGI application is told, as they are written. They come in place of what HAProxy would tell it under these names.",
		}, scriptParams, func(s *Settings, v []string) { s.fastCGI.Params = v }),
	}
}

var (
	scriptRootForm = regexp.MustCompile(`^(/[A-Za-z0-9._+@-]+)*/?$`)
	scriptNameForm = regexp.MustCompile(`^[A-Za-z0-9._+@-]+$`)
)

// scriptRoot reads a directory.
func scriptRoot(text string) (string, error) {
	if !scriptRootForm.MatchString(text) {
		return "", fault("is not a directory", "use an absolute path of letters, digits and . _ + @ -, such as /var/www/html")
	}
	if trimmed := strings.TrimSuffix(text, "/"); trimmed != "" {
		return trimmed, nil
	}
	return "/", nil
}

// scriptName reads the name of a file.
func scriptName(text string) (string, error) {
	if !scriptNameForm.MatchString(text) {
		return "", fault("is not the name of a script", "use letters, digits and . _ + @ -, such as index.php")
	}
	return text, nil
}

// pathInfo reads the expression that divides a path.
func pathInfo(text string) (string, error) {
	n, err := groupsOf(text)
	if err != nil {
		return "", err
	}
	if n < 1 || n > 2 {
		return "", fault(fmt.Sprintf("has %d groups", n), "the first one in parentheses is the script, the second one PATH_INFO")
	}
	return text, nil
}

// paramNameForm is the name of a variable of CGI. HTTP_ is what headers of requests become.
var paramNameForm = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)

// settingPHP are variables by which PHP takes settings, such as files to run before all others:
// who may write an Ingress would run anything where the application runs.
var settingPHP = []string{"PHP_VALUE", "PHP_ADMIN_VALUE"}

// scriptParams reads variables: names and values, by turns.
func scriptParams(text string) ([]string, error) {
	var out []string
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		value = strings.TrimSpace(value)
		switch {
		case name == "":
			continue
		case !paramNameForm.MatchString(name) || strings.HasPrefix(name, "HTTP_"):
			return nil, faultOf(name, "is not the name of a variable", "use capital letters, digits and _, and not HTTP_, which is for headers of requests")
		case slices.Contains(settingPHP, name):
			return nil, faultOf(name, "is how PHP is configured, which would have it run what a request holds", "configure PHP where it runs")
		case value == "":
			return nil, faultOf(line, "has no value", "write NAME VALUE, one to a line")
		}
		for _, r := range value {
			if r < ' ' || r >= 0x7f {
				return nil, faultOf(value, fmt.Sprintf("holds %q", r), "use printable ASCII")
			}
		}
		out = append(out, name, value)
	}
	if len(out) > 2*mostEdits {
		return nil, fault(fmt.Sprintf("has %d lines", len(out)/2), fmt.Sprintf("use %d at most", mostEdits))
	}
	return out, nil
}

// fcgi joins what is said of FastCGI.
func (r *resolution) fcgi() {
	s := &r.settings
	if s.Upstream.Protocol == policy.FCGI {
		s.Upstream.FastCGI = &policy.FastCGI{Root: "/var/www/html", Index: "index.php", PathInfo: s.fastCGI.PathInfo, Params: s.fastCGI.Params}
		if s.fastCGI.Root != "" {
			s.Upstream.FastCGI.Root = s.fastCGI.Root
		}
		if s.fastCGI.Index != "" {
			s.Upstream.FastCGI.Index = s.fastCGI.Index
		}
		return
	}
	for _, o := range fastCGIOptions() {
		if r.has(o.Name) && r.has(o.Needs) {
			r.report(diag.Warning, o.Name, "has no effect without FastCGI", "set "+Prefix+"backend-protocol to fcgi")
		}
	}
}
