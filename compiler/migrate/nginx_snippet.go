package migrate

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// snippetEdits are the edits of headers that a snippet of nginx consists of, as lines of our
// options.
type snippetEdits struct {
	requests, answers []string
	// host is the Host that the snippet sends, or "".
	host string
	said []string // differences
}

// snippetRule translates snippets that do nothing but edit headers.
func snippetRule() Rule {
	return Rule{
		From: []string{"configuration-snippet"}, To: []string{"request-headers", "response-headers", "rewrite-host", "allow-list", "deny-list", "redirect"},
		Note: "This is translated if it only edits headers: `more_set_headers`, `more_clear_headers`, `more_set_input_headers`, `more_clear_input_headers`, `add_header`, `proxy_set_header`, `grpc_set_header` and `proxy_hide_header`; or only has `allow`, `deny` or `return`. " +
			"A value may be one variable that `request-headers` has a source for. " +
			"Else see which option does the same, or use `snippet`, if the administrator allows it.",
		convert: func(c *call) { snippet(c, "configuration-snippet") },
	}
}

// snippet translates a snippet that edits headers, or that refuses or redirects all requests.
func snippet(c *call, name string) {
	text := expandNames(c.value(name), c.object)
	if c.snippetAccess(name, text) {
		return
	}
	edits, err := readSnippet(text)
	if err != nil {
		c.keep(name, err.Error(), "only edits of headers are translated, and allow, deny and return alone; see which of docs/reference/annotations.md does the same, or use snippet, if the administrator allows it")
		return
	}
	setLines(c, "request-headers", edits.requests)
	setLines(c, "response-headers", edits.answers)
	if edits.host != "" {
		c.set("rewrite-host", edits.host)
	}
	if clash := c.clash(); clash != "" {
		c.out = nil
		c.keep(name, "stands beside "+clash+", which says something else", "write one of both")
		return
	}
	for _, said := range edits.said {
		c.differs(name, said, "")
	}
}

// setLines writes an option of several lines, if there are any.
func setLines(c *call, name string, lines []string) {
	if len(lines) > 0 {
		c.set(name, strings.Join(lines, "\n"))
	}
}

// ownVariables are headers that both ingress-nginx and hapsnap send to endpoints by default: a snippet
// may set them to the value that they have anyway.
var ownVariables = map[string][]string{
	"host":              {"$host", "$http_host", "$best_http_host"},
	"upgrade":           {"$http_upgrade"},
	"connection":        {"upgrade", "Upgrade", "$connection_upgrade"},
	"x-forwarded-proto": {"$scheme", "$pass_access_scheme"},
	"x-forwarded-host":  {"$host", "$http_host", "$best_http_host"},
	"x-forwarded-for":   {"$remote_addr"},
}

// readSnippet reads directives of nginx that edit headers. The error names a directive that does something
// else, or the mistake.
func readSnippet(text string) (snippetEdits, error) {
	var out snippetEdits
	directives, err := directivesOf(text)
	if err != nil {
		return out, err
	}
	var hidden []string // nginx hides headers before it adds any
	for _, words := range directives {
		name, args := words[0], words[1:]
		if name == "grpc_set_header" {
			name = "proxy_set_header"
		}
		for _, arg := range args {
			if strings.Contains(arg, "$") && !isOwnVariable(name, args) && !isCopied(name, args) {
				return out, fmt.Errorf("%s holds the variable %q", words[0], arg)
			}
		}
		switch name {
		case "more_set_headers", "more_clear_headers":
			out.answers, err = moreHeaders(out.answers, name, args)
		case "more_set_input_headers", "more_clear_input_headers":
			out.requests, err = moreHeaders(out.requests, name, args)
		case "proxy_hide_header":
			if len(args) != 1 {
				return out, errors.New("proxy_hide_header does not name one header")
			}
			hidden = append(hidden, "remove "+args[0])
		case "add_header":
			err = out.addHeader(args)
		case "proxy_set_header":
			err = out.proxySetHeader(args)
		case "proxy_http_version":
			// HAProxy does this itself.
		default:
			return out, fmt.Errorf("%s is no edit of a header", name)
		}
		if err != nil {
			return out, err
		}
	}
	out.answers = slices.Concat(hidden, out.answers)
	return out, nil
}

// isOwnVariable reports whether a directive sets a header to the value that endpoints get anyway.
func isOwnVariable(directive string, args []string) bool {
	return directive == "proxy_set_header" && len(args) == 2 && slices.Contains(ownVariables[strings.ToLower(args[0])], args[1])
}

// addHeader reads the arguments of add_header.
func (s *snippetEdits) addHeader(args []string) error {
	switch {
	case len(args) == 3 && args[2] == "always":
	case len(args) == 2:
		s.said = append(s.said, args[0]+" is added to answers of every status: nginx leaves errors out without \"always\"")
	default:
		return errors.New("add_header does not have a name and a value")
	}
	if args[1] != "" { // nginx adds no empty header
		s.answers = append(s.answers, "add "+args[0]+" "+args[1])
	}
	return nil
}

// proxySetHeader reads the arguments of proxy_set_header.
func (s *snippetEdits) proxySetHeader(args []string) error {
	switch {
	case len(args) != 2:
		return errors.New("proxy_set_header does not have a name and a value")
	case isOwnVariable("proxy_set_header", args):
	case strings.EqualFold(args[0], "host"):
		s.host = args[1]
	case args[1] == "":
		s.requests = append(s.requests, "remove "+args[0])
	default:
		s.requests = append(s.requests, setOrCopy(args[0], args[1]))
	}
	return nil
}

// moreHeaders reads the arguments of a directive of the module headers-more. Each is "NAME: VALUE", or a name
// if headers are removed.
func moreHeaders(lines []string, directive string, args []string) ([]string, error) {
	if len(args) == 0 {
		return nil, errors.New(directive + " names no header")
	}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case strings.HasPrefix(arg, "-"):
			return nil, fmt.Errorf("%s has the option %s", directive, arg)
		case strings.Contains(name, "*"):
			return nil, fmt.Errorf("%s names headers by a wildcard, %s", directive, name)
		case value == "" || strings.Contains(directive, "clear"):
			lines = append(lines, "remove "+name)
		default:
			lines = append(lines, setOrCopy(name, value))
		}
	}
	return lines, nil
}

// headerDirectives are the directives of nginx that edit headers.
var headerDirectives = []string{
	"more_set_headers", "more_clear_headers", "more_set_input_headers", "more_clear_input_headers",
	"add_header", "proxy_set_header", "grpc_set_header", "proxy_hide_header", "proxy_http_version",
}

// directivesOf splits a text like nginx: into directives that end in ";", and these into words, which may be
// quoted. It accepts no blocks.
func directivesOf(text string) ([][]string, error) {
	var out [][]string
	var words []string
	for i := 0; i < len(text); {
		switch c := text[i]; c {
		case ' ', '\t', '\r', '\n':
			i++
		case '#':
			n := strings.IndexByte(text[i:], '\n')
			if n < 0 {
				n = len(text) - i
			}
			i += n
		case ';':
			if len(words) > 0 {
				out = append(out, words)
			}
			words, i = nil, i+1
		case '{', '}':
			return nil, fmt.Errorf("%s opens a block", strings.Join(append(words[:min(1, len(words))], "{"), " "))
		default:
			word, n, err := wordAt(text[i:])
			if err != nil {
				return nil, err
			}
			words, i = append(words, word), i+n
		}
	}
	if len(words) > 0 {
		return nil, fmt.Errorf("%s has no ; at its end", words[0])
	}
	if len(out) == 0 {
		return nil, errors.New("holds no directive")
	}
	return out, nil
}

// wordAt returns the first word of a text, and its length in the text.
func wordAt(text string) (word string, n int, err error) {
	var b strings.Builder
	quote := byte(0)
	if text[0] == '"' || text[0] == '\'' {
		quote, n = text[0], 1
	}
	for ; n < len(text); n++ {
		c := text[n]
		switch {
		case c == '\\' && n+1 < len(text) && strings.IndexByte(`"'\`, text[n+1]) >= 0:
			n++
			b.WriteByte(text[n])
		case c == '\\':
			return "", 0, errors.New("a word holds a backslash")
		case quote != 0 && c == quote:
			if n++; n < len(text) && strings.IndexByte(" \t\r\n;", text[n]) < 0 {
				return "", 0, fmt.Errorf("%q is not followed by a space", b.String())
			}
			return b.String(), n, nil
		case c == '{' && n > 0 && text[n-1] == '$': // the name of a variable
			b.WriteByte(c)
		case quote == 0 && strings.IndexByte(" \t\r\n;{", c) >= 0:
			return b.String(), n, nil
		default:
			b.WriteByte(c)
		}
	}
	if quote != 0 {
		return "", 0, errors.New("a quote is not closed")
	}
	return b.String(), n, nil
}

// named matches the variables in which ingress-nginx has the names of a location.
var named = regexp.MustCompile(`\$\{?(namespace|ingress_name|service_name|service_port)\b\}?`)

// expandNames replaces variables that have the same value for all requests of an object. If the object has
// several Services, it keeps the variables of the Service.
func expandNames(text string, o *object) string {
	values := map[string]string{"namespace": o.namespace, "ingress_name": o.name}
	if len(o.paths) > 0 && !slices.ContainsFunc(o.paths, func(p pathEdit) bool { return p.service != o.paths[0].service || p.port != o.paths[0].port }) {
		values["service_name"], values["service_port"] = o.paths[0].service, o.paths[0].port
	}
	return named.ReplaceAllStringFunc(text, func(variable string) string {
		if value := values[strings.Trim(variable, "${}")]; value != "" {
			return value
		}
		return variable
	})
}

// sources are the parts of a request by their names in nginx, with their names in our options for headers.
var sources = map[string]string{
	"$host": "host", "$http_host": "header Host", "$best_http_host": "header Host", "$remote_addr": "client-address", "$the_real_ip": "client-address",
	"$remote_port": "client-port", "$request_uri": "uri", "$args": "query", "$query_string": "query", "$scheme": "scheme", "$pass_access_scheme": "scheme",
	"$request_method": "method", "$req_id": "request-id",
}

// headerVariable matches the variable for a header of the request.
var headerVariable = regexp.MustCompile(`^\$http_([a-z0-9_]+)$`)

// sourceOf returns the source if a value is one variable of nginx, or "".
func sourceOf(value string) string {
	value = strings.NewReplacer("{", "", "}", "").Replace(value)
	if source := sources[value]; source != "" {
		return source
	}
	if m := headerVariable.FindStringSubmatch(value); m != nil {
		return "header " + strings.ReplaceAll(m[1], "_", "-")
	}
	return ""
}

// setOrCopy returns the line that sets a header to a value or a variable.
func setOrCopy(name, value string) string {
	if source := sourceOf(value); source != "" {
		return "copy " + name + " " + source
	}
	return "set " + name + " " + value
}

// isCopied reports whether each value of a directive is fixed, or a variable with a source.
func isCopied(directive string, args []string) bool {
	switch directive {
	case "proxy_set_header":
		return len(args) == 2 && !strings.EqualFold(args[0], "host") && sourceOf(args[1]) != ""
	case "more_set_headers", "more_set_input_headers":
		return !slices.ContainsFunc(args, func(arg string) bool {
			name, value, _ := strings.Cut(arg, ":")
			return strings.Contains(name, "$") || strings.Contains(value, "$") && sourceOf(strings.TrimSpace(value)) == ""
		})
	}
	return false
}
