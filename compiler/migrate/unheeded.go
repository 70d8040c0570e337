package migrate

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/options"
)

// Unheeded is an annotation of another controller that says something, and that hapsnap does
// not obey.
type Unheeded struct {
	Annotation string // whole
	Controller string // that obeys it
	// Protects says that it keeps requests out. Served without it, the route is open.
	Protects bool
	// Instead are the options of ours that say the same, whole; none if there are none.
	Instead []string
	Note    string
}

// protectsAlone are annotations that keep requests out and have no option of ours.
var protectsAlone = []string{
	"auth-url-method", "auth-proxy", "auth-tls-strict", "allowlist-source-header", "oauth", "enable-modsecurity", "modsecurity-snippet", "enable-owasp-core-rules", "waf", "waf-mode",
}

// snippets are annotations with configuration of the other controller; refusing matches
// those that may keep requests out.
var (
	snippets = []string{"server-snippet", "configuration-snippet", "auth-snippet", "location-snippet", "config-backend", "config-backend-early", "config-backend-late", "backend-config-snippet", "config-frontend"}
	refusing = regexp.MustCompile(`(?i)deny|return\s+4|reject|tarpit|auth|allow\s|access_by|status\s+4`)
)

// mayRefuse reports whether a snippet may keep requests out. A snippet that does nothing but edit
// headers does not, whatever their values.
func mayRefuse(snippet string) bool {
	_, err := readSnippet(snippet)
	return err != nil && refusing.MatchString(snippet)
}

// says reports whether a value asks for anything.
func says(value string) bool {
	return !slices.Contains([]string{"", "false", "off", "none", "no", "0"}, strings.ToLower(strings.TrimSpace(value)))
}

// FindUnheeded returns the annotations of other controllers that are not obeyed, sorted. An
// annotation is obeyed where an option of ours, beside it, says the same.
func FindUnheeded(annotations map[string]string) []Unheeded {
	var out []Unheeded
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if !strings.Contains(key, "/") || strings.HasPrefix(key, options.Prefix) || !says(annotations[key]) {
			continue
		}
		for _, d := range dialects {
			if u, ok := d.unheeded(key, annotations); ok {
				out = append(out, u)
				break
			}
		}
	}
	return out
}

// HasPatterns reports whether annotations of another controller make the paths of an
// Ingress regular expressions.
func HasPatterns(annotations map[string]string) bool {
	for _, name := range []string{"nginx.ingress.kubernetes.io/use-regex", "nginx.ingress.kubernetes.io/rewrite-target"} {
		if says(annotations[name]) {
			return true
		}
	}
	return annotations["haproxy-ingress.github.io/path-type"] == "regex"
}

// dialects are those that are known, made once.
var dialects = Dialects()

func (d Dialect) unheeded(key string, annotations map[string]string) (Unheeded, bool) {
	i := slices.IndexFunc(d.Prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
	if i < 0 {
		return Unheeded{}, false
	}
	name := strings.TrimPrefix(key, d.Prefixes[i])
	u := Unheeded{Annotation: key, Controller: d.Name, Protects: slices.Contains(protectsAlone, name) || slices.Contains(snippets, name) && mayRefuse(annotations[key])}
	known := u.Protects || slices.Contains(snippets, name)
	for _, r := range d.Rules {
		if !slices.Contains(r.From, name) {
			continue
		}
		if r.Needless {
			return Unheeded{}, false
		}
		known, u.Note = true, r.Note
		standing := r.To
		if of := r.Of[name]; of != nil {
			standing = of
		}
		if slices.Contains(snippets, name) {
			standing = standsForSnippet(annotations[key], u.Protects, standing)
		}
		for _, to := range standing {
			if options.Stands(to, annotations) {
				return Unheeded{}, false
			}
			if len(u.Instead) == 0 || !options.Part(to) {
				u.Instead = append(u.Instead, options.Prefix+to)
			}
			u.Protects = u.Protects || options.Closing(to)
		}
	}
	return u, known
}

// standsForSnippet returns those of some options that may say what a snippet says: of one that
// keeps requests out, that which keeps out the same, and of others none that does.
func standsForSnippet(snippet string, protects bool, all []string) []string {
	same := "snippet"
	if directives, err := directivesOf(snippet); err == nil && !slices.ContainsFunc(directives, func(words []string) bool { return !isAccess(words) }) {
		if option, _, err := readAccess(directives); err == nil {
			same = option
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(to string) bool {
		return protects && to != same || !protects && options.Closing(to) && to != "snippet"
	})
}
