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

// notEdited are headers that are not for options to change: the connection's
// own, and Host, which has an option.
var notEdited = []string{
	"connection", "content-length", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
}

// mostEdits bounds the edits of a value.
const mostEdits = 64

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
	case !slices.Contains([]policy.EditVerb{policy.Set, policy.Add, policy.Copy, policy.Remove}, e.Do):
		return e, faultOf(line, "is not an edit of a header", hint)
	case (e.Do == policy.Remove) != (e.Value == ""):
		return e, faultOf(line, "has one word too few or too many", hint)
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
	switch s.Of {
	case policy.SourceHeader:
		if !keyForm.MatchString(s.Header) || len(s.Header) > 200 {
			return s, faultOf(text, "names no header", "write header NAME; use letters, digits, - and _")
		}
		return s, nil
	case policy.SourceHost, policy.SourceURI, policy.SourceQuery, policy.SourceMethod, policy.SourceScheme,
		policy.SourceClientAddress, policy.SourceClientPort, policy.SourceRequestID:
		if s.Header == "" {
			return s, nil
		}
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
		return out, fault("lists origins beside *", `write "*" alone`)
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
