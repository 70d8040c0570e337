package options

import (
	"fmt"
	"regexp"
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

// fcgi joins what is said of FastCGI.
func (r *resolution) fcgi() {
	s := &r.settings
	if s.Upstream.Protocol == policy.FCGI {
		s.Upstream.FastCGI = &policy.FastCGI{Root: "/var/www/html", Index: "index.php", PathInfo: s.fastCGI.PathInfo}
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
