package options

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/expression"
	"github.com/hapsnap/hapsnap/compiler/policy"
)

func headerOptions() []Option {
	return []Option{
		define(Option{
			Name: "request-headers", Group: HeaderEdit, On: OnIngress | OnRoute, Value: valueEdits, Example: "set X-Env production\nremove X-Debug", most: mostText,
			Summary: "Edits the headers that endpoints get. `set` replaces all values of a header, `add` leaves them. `copy` sets it to a part of the request: `host` (in lower case, without a port), `uri` (path and query), `query`, `method`, `scheme`, `client-address`, `client-port`, `request-id` or `header NAME`; where the request has none, the header is removed.",
		}, headerEdits, func(s *Settings, v []policy.HeaderEdit) { s.edits[0] = v }),
		define(Option{
			Name: "response-headers", Group: HeaderEdit, On: OnIngress | OnRoute, Value: valueEdits, Example: "set X-Frame-Options DENY\nremove Server", most: mostText,
			Summary: "Edits the headers of every answer, HAProxy's own included. `copy` is from the request, as in `request-headers`.",
		}, headerEdits, func(s *Settings, v []policy.HeaderEdit) { s.edits[1] = v }),
		define(Option{
			Name: "forwarded-for", Group: HeaderEdit, On: OnIngress, Value: "`replace`, `append`, `keep` or `off`", Example: "append", Default: "the configuration's `forwarded.policy`",
			Summary: "What endpoints get as X-Forwarded-For: the address that the request came from; what came, and that address; what came, or that address if none came; nothing, and no X-Real-IP either. What came counts if it is from a network that the configuration trusts, see `forwarded.trusted`; without one, `append` and `keep` are `replace`. See [headers.md](headers.md).",
		}, oneOf(map[string]policy.ForwardedMode{
			"replace": policy.ForwardedReplace, "append": policy.ForwardedAppend, "keep": policy.ForwardedKeep, "off": policy.ForwardedOff,
		}), func(s *Settings, v policy.ForwardedMode) { s.forwardedFor = v }),
		define(Option{
			Name: "rewrite-cookie-path", Group: HeaderEdit, On: OnIngress | OnRoute, Value: "two paths", Example: "/internal /app",
			Summary: "If the Path of a cookie that an endpoint sets begins with the first path, it is replaced with the second.",
		}, cookiePaths, func(s *Settings, v policy.Replacement) { s.cookies.Path = v }),
		define(Option{
			Name: "rewrite-cookie-domain", Group: HeaderEdit, On: OnIngress | OnRoute, Value: "two DNS names", Example: "internal.example shop.example",
			Summary: "If the Domain of a cookie that an endpoint sets is the first name, with or without a leading dot, it is replaced with the second.",
		}, cookieDomains, func(s *Settings, v policy.Replacement) { s.cookies.Domain = v }),
		define(Option{
			Name: "intercept-errors", Group: HeaderEdit, On: OnIngress | OnRoute, Value: "statuses from 400 to 599, separated by commas", Example: "404, 503",
			Summary: "Replaces answers of endpoints with one of these statuses, headers included, with the page that the configuration has for the status (`errorPages`), or with a short text. The status stays.",
		}, errorStatuses, func(s *Settings, v []int) { s.intercept = v }),
		define(Option{
			Name: "hsts", Group: HeaderEdit, On: OnIngress | OnRoute, Value: "seconds, and perhaps `includeSubDomains` and `preload`", Example: "31536000 includeSubDomains",
			Summary: "Sends Strict-Transport-Security over HTTPS.",
		}, hsts, func(s *Settings, v string) { s.hsts = v }),
	}
}

func corsOptions() []Option {
	return []Option{
		define(Option{
			Name: "cors-allow-origin", Group: HeaderEdit, On: OnIngress, Value: "origins, separated by commas, or `*`; `https://*.` is a wildcard for one label",
			Example: "https://shop.example, https://*.shop.example", most: mostText,
			Summary: "The origins whose pages may read the answers. Turns CORS on: HAProxy answers preflight requests.",
		}, allowOrigins, func(s *Settings, v origins) {
			s.cors.AnyOrigin, s.cors.Origins, s.cors.OriginPatterns = v.any, v.plain, v.patterns
		}),
		define(Option{
			Name: "cors-allow-origin-pattern", Group: HeaderEdit, On: OnIngress, Value: "regular expressions, one to a line", Example: `https://[a-z0-9-]+\.preview\.example`, most: mostText,
			Summary: "More origins whose pages may read the answers: those that match one of the expressions (a part of [PCRE](expressions.md)) as a whole, 8 at most. Turns CORS on, like `cors-allow-origin`, and works without it.",
		}, originPatterns, func(s *Settings, v []string) { s.cors.Expressions = v }),
		define(Option{
			Name: "cors-allow-methods", Group: HeaderEdit, On: OnIngress, Needs: "cors-allow-origin", Value: "methods, separated by commas", Example: "GET, POST",
			Default: "`GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS`", Summary: "The methods in the answer to a preflight request.",
		}, listOf(methodName), func(s *Settings, v []string) { s.cors.Methods = v }),
		define(Option{
			Name: "cors-allow-headers", Group: HeaderEdit, On: OnIngress, Needs: "cors-allow-origin", Value: "headers, separated by commas", Example: "Content-Type, X-Token", most: mostText,
			Default: "`Accept, Authorization, Content-Type, X-Requested-With`", Summary: "The headers in the answer to a preflight request.",
		}, listOf(token), func(s *Settings, v []string) { s.cors.Headers = v }),
		define(Option{
			Name: "cors-expose-headers", Group: HeaderEdit, On: OnIngress, Needs: "cors-allow-origin", Value: "headers, separated by commas", Example: "X-Total", most: mostText,
			Summary: "The headers of answers that pages may read.",
		}, listOf(token), func(s *Settings, v []string) { s.cors.Expose = v }),
		define(Option{
			Name: "cors-allow-credentials", Group: HeaderEdit, On: OnIngress, Needs: "cors-allow-origin", Value: valueBool, Example: "true", Default: "`false`",
			Summary: "Whether pages may send cookies. Refused with the origin `*`.",
		}, boolean, func(s *Settings, v bool) { s.cors.Credentials = v }),
		define(Option{
			Name: "cors-max-age", Group: HeaderEdit, On: OnIngress, Needs: "cors-allow-origin", Value: "seconds", Example: "3600", Default: "`600`",
			Summary: "How long browsers keep the answer to a preflight request.",
		}, number(1, 1<<31-1), func(s *Settings, v int) { s.cors.MaxAge = v }),
	}
}

// pathOptions say how the paths of requests are compared with those of rules.
func pathOptions() []Option {
	const oldest = " The oldest Ingress with a host decides for the host."
	return []Option{
		define(Option{
			Name: "normalize-paths", Group: Routing, On: OnIngress, Matches: true, Value: valueBool, Example: "false", Default: "`paths.normalize` of the configuration",
			Summary: "Compares paths in a form in which `/admin`, `//admin` and `/%61dmin` are one: see [paths](paths.md). Servers get the path as it came." + oldest,
		}, boolean, func(s *Settings, v bool) { s.Paths.Normalize = &v }),
		define(Option{
			Name: "unsafe-paths", Group: Routing, On: OnIngress, Matches: true, Value: "`reject` or `pass`", Example: "pass", Default: "`paths.unsafe` of the configuration",
			Summary: "What happens to requests whose path different servers read in different ways, such as `/admin%2f`, where this Ingress [protects](paths.md) something: `reject` answers 400 on its hosts, `pass` does not.",
		}, oneOf(words("reject", "pass")), func(s *Settings, v string) { s.Paths.Unsafe = v }),
		define(Option{
			Name: "path-parameters", Group: Routing, On: OnIngress, Matches: true, Value: "`reject`, `ignore` or `match`", Example: "ignore", Default: "`paths.parameters` of the configuration",
			Summary: "What `;` in a path means. `reject` makes such a path an unsafe one, `ignore` compares paths without their parameters, as servers of Java do, and `match` takes it for a character like others. Whether parameters are ignored is said by the oldest Ingress with a host; whether they are rejected, by each that protects something.",
		}, oneOf(words("reject", "ignore", "match")), func(s *Settings, v string) { s.Paths.Parameters = v }),
	}
}

// Paths are what the options say of how paths are compared; what they do not say is zero.
type Paths struct {
	Normalize          *bool
	Unsafe, Parameters string
}

// words are the values of an option that stand for themselves.
func words(values ...string) map[string]string {
	out := map[string]string{}
	for _, v := range values {
		out[v] = v
	}
	return out
}

// SnippetOption is the name of the option that adds lines.
const SnippetOption = "snippet"

// snippetOptions add lines of haproxy.cfg.
func snippetOptions() []Option {
	return []Option{
		define(Option{
			Name: SnippetOption, Group: Snippets, On: OnIngress, Closes: true, most: mostText,
			Value:   "lines of a backend section of haproxy.cfg, 100 at most",
			Example: "http-request deny if { path_beg /internal }",
			Summary: "Lines for the backends of the Ingress. They stand after the lines that protect the backends and before those that change requests. Refused unless the administrator allows the namespace in `snippets`. HAProxy checks the lines. Since they may deny requests, the routes answer 503 if one of them cannot be used. They cannot begin a section or add servers. Comments are left out.",
		}, snippet, func(s *Settings, v []policy.Line) { s.Snippet = v }),
	}
}

// mostLines is how many lines a snippet may have.
const mostLines = 100

// snippet reads lines. Empty ones and comments are left out.
func snippet(text string) ([]policy.Line, error) {
	var out []policy.Line
	number := 0
	for text := range strings.SplitSeq(text, "\n") {
		number++
		text = strings.Trim(text, " \t")
		if text == "" || (strings.HasPrefix(text, "#") && !strings.HasPrefix(text, "#hapsnap")) {
			continue
		}
		line, err := policy.NewLine(text)
		if err != nil {
			return nil, faultOf(text, fmt.Sprintf("in line %d %s", number, err), "use lines of a backend section")
		}
		out = append(out, line)
	}
	switch {
	case len(out) == 0:
		return nil, fault("holds no line", "write one, or remove the annotation")
	case len(out) > mostLines:
		return nil, fault(fmt.Sprintf("has %d lines", len(out)), fmt.Sprintf("it may have %d", mostLines))
	}
	return out, nil
}

// redirectCodes are the statuses of a redirect.
var redirectCodes = []string{"301", "302", "303", "307", "308"}

// httpsRedirect reads whether, and with which status, to redirect to HTTPS.
func httpsRedirect(text string) (*policy.HTTPSRedirect, error) {
	switch text {
	case "false":
		return nil, nil
	case "true":
		return &policy.HTTPSRedirect{Code: 308}, nil
	}
	if !slices.Contains(redirectCodes, text) {
		return nil, fault("is not possible", "use true, false, or the status to redirect with: "+alternatives(redirectCodes))
	}
	code, _ := strconv.Atoi(text)
	return &policy.HTTPSRedirect{Code: code}, nil
}

// redirect reads a location and perhaps a status.
func redirect(text string) (*policy.Redirect, error) {
	words := strings.Fields(text)
	out := policy.Redirect{Location: words[0], Code: 302}
	switch {
	case len(words) > 2:
		return nil, fault("has more than two words", "write the location and perhaps the status")
	case len(words) == 2 && !slices.Contains(redirectCodes, words[1]):
		return nil, faultOf(words[1], "is not the status of a redirect", "use "+alternatives(redirectCodes))
	case len(words) == 2:
		out.Code, _ = strconv.Atoi(words[1])
	}
	if strings.HasPrefix(out.Location, "/") {
		_, err := localPath(out.Location)
		return &out, err
	}
	u, err := url.Parse(out.Location)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
		return nil, faultOf(out.Location, "is not a location", "use a path, or a URL with http or https")
	}
	if _, err := hostPort(u.Host); err != nil {
		return nil, faultOf(u.Host, "is not a host", "use a DNS name in lower case, perhaps with a port")
	}
	out.KeepPath = u.Path == "" && u.RawQuery == "" && u.Fragment == "" && !strings.ContainsAny(out.Location, "?#")
	return &out, visible(out.Location)
}

// localPath reads a path, perhaps with a query, of the same host.
func localPath(text string) (string, error) {
	if !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") {
		return "", fault("is not a path", "use one that begins with one slash, such as /app")
	}
	return text, visible(text)
}

// visible refuses what a URL carries percent-encoded.
func visible(text string) error {
	for _, r := range text {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune(`"'\<>`+"`", r) {
			return fault(fmt.Sprintf("holds %q", r), "write it percent-encoded")
		}
	}
	return nil
}

// groupForm matches the backslashes of a replacement.
var groupForm = regexp.MustCompile(`\\(.?)`)

// oneGroupForm matches a reference to a group.
var oneGroupForm = regexp.MustCompile(`\\[1-9]`)

// rewritePath reads what takes the place of a prefix, or a regular expression
// and what a path becomes that it matches.
func rewritePath(text string) (*policy.RewritePath, error) {
	words := strings.Fields(text)
	if len(words) == 1 {
		_, err := localPath(oneGroupForm.ReplaceAllString(words[0], "1"))
		if err == nil && strings.ContainsAny(words[0], "?#") {
			err = fault("holds a query", "give a path only: the query stays as it is")
		}
		return &policy.RewritePath{Replacement: strings.TrimRight(words[0], "/"), Whole: words[0]}, err
	}
	if len(words) > 2 {
		return nil, fault("has more than two words", `write a path, or a regular expression and what its matches become; in an expression, \s stands for a space`)
	}
	pattern, replacement := words[0], words[1]
	groups, err := groupsOf(pattern)
	if err != nil {
		return nil, err
	}
	for _, m := range groupForm.FindAllStringSubmatch(replacement, -1) {
		group, err := strconv.Atoi(m[1])
		if err != nil || group > groups {
			return nil, faultOf(replacement, fmt.Sprintf("refers to %s, which is no group of the expression", m[0]), `use \1 for the first group in parentheses`)
		}
	}
	if _, err := localPath(groupForm.ReplaceAllString(replacement, "")); err != nil || strings.HasPrefix(replacement, `/\`) && len(replacement) == 1 {
		return nil, faultOf(replacement, "is not a path", "begin it with a slash")
	}
	return &policy.RewritePath{Pattern: pattern, Replacement: replacement}, nil
}

// groupsOf returns how many groups a regular expression has that can be referred to. The
// error says why HAProxy may not run it.
func groupsOf(pattern string) (int, error) {
	e, err := expression.Parse(pattern)
	if why, ok := errors.AsType[*expression.Error](err); ok {
		return 0, faultOf(pattern, why.Message, why.Hint)
	}
	return e.Groups, err
}

// notEdited are headers that are not for options to change: the connection's own, CDN-Loop, which ends loops, and
// Host, which has an option.
var notEdited = []string{
	"cdn-loop", "connection", "content-length", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
}

// mostEdits bounds the edits of a value.
const mostEdits = 64

// OfConnection reports whether a header is one that nobody may change but HAProxy: it says how a message goes on, or
// ends loops of requests.
func OfConnection(name string) bool {
	name = strings.ToLower(name)
	return name != "host" && slices.Contains(notEdited, name)
}

// headerEdits reads lines of "set NAME VALUE", "add NAME VALUE", "remove NAME".
func headerEdits(text string) ([]policy.HeaderEdit, error) {
	var out []policy.HeaderEdit
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		edit, err := headerEdit(line)
		if err != nil {
			return nil, err
		}
		out = append(out, edit)
	}
	if len(out) > mostEdits {
		return nil, fault(fmt.Sprintf("has %d lines", len(out)), fmt.Sprintf("use %d at most", mostEdits))
	}
	return out, nil
}

func headerEdit(line string) (policy.HeaderEdit, error) {
	verb, rest, _ := strings.Cut(line, " ")
	name, value, _ := strings.Cut(strings.TrimSpace(rest), " ")
	e := policy.HeaderEdit{Do: policy.EditVerb(verb), Name: name, Value: strings.TrimSpace(value)}
	const hint = "write set NAME VALUE, add NAME VALUE, copy NAME SOURCE or remove NAME, one to a line"
	switch {
	case !e.Do.IsKnown():
		return e, faultOf(line, "is not an edit of a header", hint)
	case (e.Do == policy.Remove) != (e.Value == ""):
		return e, faultOf(line, "has too few or too many words", hint)
	case slices.Contains(notEdited, strings.ToLower(name)):
		return e, faultOf(name, "is not a header that can be edited", "for Host, use "+Prefix+"rewrite-host")
	}
	if _, err := token(name); err != nil {
		return e, faultOf(name, err.Error(), "use letters, digits and -")
	}
	if e.Do == policy.Copy {
		source, err := headerSource(e.Value)
		e.Value, e.From = "", source
		return e, err
	}
	for _, r := range e.Value {
		if r < ' ' || r >= 0x7f {
			return e, faultOf(e.Value, fmt.Sprintf("holds %q", r), "use printable ASCII")
		}
	}
	return e, nil
}

// headerSource reads what a header is copied from.
func headerSource(text string) (policy.Source, error) {
	kind, name, _ := strings.Cut(text, " ")
	s := policy.Source{Of: policy.SourceKind(kind), Header: strings.TrimSpace(name)}
	switch {
	case s.Of == policy.SourceHeader:
		if !keyForm.MatchString(s.Header) || len(s.Header) > 200 {
			return s, faultOf(text, "names no header", "write header NAME; use letters, digits, - and _")
		}
		return s, nil
	case s.Of.IsWhole() && s.Header == "":
		return s, nil
	}
	return s, faultOf(text, "is not a part of a request", "use host, uri, query, method, scheme, client-address, client-port, request-id or header NAME")
}

// hsts reads the seconds and the words of Strict-Transport-Security.
func hsts(text string) (string, error) {
	words := strings.Fields(text)
	if _, err := number(0, 1<<31-1)(words[0]); err != nil {
		return "", faultOf(words[0], "is not a number of seconds", "use one such as 31536000, a year")
	}
	value := "max-age=" + words[0]
	for i, word := range words[1:] {
		if (word != "includeSubDomains" && word != "preload") || slices.Contains(words[1:i+1], word) {
			return "", faultOf(word, "is not possible here", "use includeSubDomains and preload, each once")
		}
		value += "; " + word
	}
	return value, nil
}

// origins are those of a CORS filter.
type origins struct {
	any             bool
	plain, patterns []string
}

var originForm = regexp.MustCompile(`^([a-z][a-z0-9+.-]*://)(\*\.)?([a-z0-9.-]+(?::[0-9]{1,5})?)$`)

// allowOrigins reads "*" or origins, which may have a wildcard for one label.
func allowOrigins(text string) (origins, error) {
	var out origins
	for _, word := range fields(text) {
		m := originForm.FindStringSubmatch(word)
		switch {
		case word == "*":
			out.any = true
		case word == "null":
			out.plain = append(out.plain, word)
		case m == nil:
			return out, faultOf(word, "is not an origin", `use such as https://shop.example, https://*.shop.example, or "*"`)
		case m[2] != "":
			out.patterns = append(out.patterns, "^"+m[1]+`[a-z0-9-]+\.`+regexp.QuoteMeta(m[3])+"$")
		default:
			out.plain = append(out.plain, word)
		}
	}
	if out.any && len(out.plain)+len(out.patterns) > 0 {
		return out, fault("lists other origins besides *", `write "*" alone`)
	}
	return out, nil
}

// originPatterns reads expressions of which one is to match the whole of an origin.
func originPatterns(text string) ([]string, error) {
	const most = 8
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if _, err := wholeMatch(line); err != nil {
			return nil, err
		}
		out = append(out, "^(?:"+line+`)\z`)
	}
	if len(out) > most {
		return nil, fault(fmt.Sprintf("has %d lines", len(out)), fmt.Sprintf("use %d at most", most))
	}
	return out, nil
}
