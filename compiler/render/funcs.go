package render

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"

	"github.com/hapsnap/hapsnap/compiler/config/field"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// hermetic are the functions of sprig that templates may call: their result depends on nothing but
// their arguments, and they change none of them. Left out are, among others, now, env, shuffle, rand*,
// uuidv4, gen*, bcrypt, htpasswd, encryptAES, getHostByName (not hermetic), set, unset, merge (they
// change an argument), toString (it may print an address in memory) and sprig's keys, values and quote
// (we have our own).
const hermetic = `
abbrev abbrevboth trunc trim trimAll trimSuffix trimPrefix upper lower title
untitle substr repeat nospace initials swapcase snakecase camelcase kebabcase
contains hasPrefix hasSuffix replace plural split splitList splitn indent nindent
sha1sum sha256sum sha512sum adler32sum b64enc b64dec b32enc b32dec
atoi int int64 float64 toDecimal seq until untilStep
add1 add sub div mod mul max min biggest ceil floor round
join sortAlpha default empty coalesce all any compact ternary
fromJson mustFromJson toJson mustToJson
kindOf kindIs deepEqual base dir clean ext isAbs
tuple list dict get hasKey pluck pick omit dig
append mustAppend prepend mustPrepend first mustFirst rest mustRest last mustLast
initial mustInitial reverse mustReverse uniq mustUniq without mustWithout
has mustHas slice mustSlice concat chunk mustChunk
semver semverCompare fail
regexMatch mustRegexMatch regexFind mustRegexFind regexFindAll mustRegexFindAll
regexReplaceAll mustRegexReplaceAll regexReplaceAllLiteral mustRegexReplaceAllLiteral
regexSplit mustRegexSplit regexQuoteMeta`

// functions returns the functions that templates may call, besides those of text/template.
func functions() template.FuncMap {
	all := sprig.TxtFuncMap()
	funcs := template.FuncMap{
		"quote": quote, "literal": literal, "words": words, "listen": listen, "listenQUIC": listenQUIC, "listenAll": each(listen), "listenAllQUIC": each(listenQUIC), "socket": socket, "alike": alike, "verbatim": verbatim, "secret": secretWord,
		"answer": answers(nil).write, // until there are pages to bind to
		"keys":   sortedKeys, "values": sortedValues,
		"print": func(args ...any) string { return fmt.Sprint(decimals(args)...) }, "printf": printf,
	}
	for name := range strings.FieldsSeq(hermetic) {
		funcs[name] = all[name]
	}
	return funcs
}

// Text is output of one of our functions, in which every value was checked. It is interpolated as it
// is.
type Text string

// quote returns a value as one word of haproxy.cfg: in strong quotes, between
// which HAProxy interprets nothing.
func quote(value any) (Text, error) {
	s, err := scalar(value)
	if err != nil {
		return "", err
	}
	if err := checkPrintable(s); err != nil {
		return "", err
	}
	return Text("'" + strings.ReplaceAll(s, "'", `'\''`) + "'"), nil
}

// literal returns a value as one word of haproxy.cfg where HAProxy expects a format, so that HAProxy
// finds no format in it.
func literal(value any) (Text, error) {
	s, err := scalar(value)
	if err != nil {
		return "", err
	}
	return quote(strings.ReplaceAll(s, "%", "%%"))
}

// words returns the values of a list, each of which must be one word.
func words(list any) (Text, error) {
	v := reflect.ValueOf(list)
	if k := v.Kind(); k != reflect.Slice && k != reflect.Array {
		return "", fmt.Errorf("words: a value of type %T is not a list", list)
	}
	out := make([]string, v.Len())
	for i := range out {
		var err error
		if out[i], err = checkConfig(v.Index(i).Interface()); err != nil {
			return "", err
		}
	}
	return Text(strings.Join(out, " ")), nil
}

// mostAlike is how many hosts are in a group of [alike]. HAProxy limits the length of a line of a crt-list.
const mostAlike = 50

// alike returns server names in groups that can share lines of a crt-list: they have the same certificates, and ask clients
// for the same. HAProxy has a TLS context for each line, which takes it 0.1 ms, and with 300 authorities of clients 2 ms.
// The groups are in the order of their first hosts, and hosts in the order of the names. A name for clients that ask for no
// host, and a wildcard with exceptions, are alone.
func alike(names []routing.ServerName) [][]routing.ServerName {
	type key struct {
		certificates string
		asks         bool
		clients      routing.ClientCheck
	}
	var out [][]routing.ServerName
	last := map[key]int{} // the group that has room
	for _, name := range names {
		k := key{certificates: strings.Join(name.Certificates, " ")}
		if name.Clients != nil {
			k.asks, k.clients = true, *name.Clients
		}
		alone := name.Host == "" || len(name.Except) > 0
		if i, ok := last[k]; ok && !alone && len(out[i]) < mostAlike {
			out[i] = append(out[i], name)
			continue
		}
		if !alone {
			last[k] = len(out)
		}
		out = append(out, []routing.ServerName{name})
	}
	return out
}

// listen returns the address of a bind line.
func listen(address string, port int) (Text, error) {
	p := ":" + strconv.Itoa(port)
	switch {
	case field.IsVariable(address):
		return Text(`"` + address + p + `"`), nil
	case address == "::":
		return Text("[::]" + p + " v4v6"), nil
	case strings.Contains(address, ":"):
		address = "[" + address + "]"
	}
	word, err := checkConfig(address)
	return Text(word + p), err
}

// each returns a function that listens at every address. It makes two of "::": with one socket for both
// families, clients of IPv4 would look like ::ffff:192.0.2.1.
func each(listen func(string, int) (Text, error)) func([]string, int) ([]Text, error) {
	return func(addresses []string, port int) ([]Text, error) {
		var out []Text
		for _, address := range addresses {
			at, err := listen(address, port)
			if err != nil {
				return nil, err
			}
			if address == "::" {
				if !slices.Contains(addresses, "*") {
					v4, err := listen("*", port)
					if err != nil {
						return nil, err
					}
					out = append(out, v4)
				}
				at = Text(strings.TrimSuffix(string(at), "v4v6") + "v6only")
			}
			out = append(out, at)
		}
		return out, nil
	}
}

// socket returns the address of a socket within HAProxy. Its name holds an address and a port that
// HAProxy listens on, so that no other process can have it. It is in the abstract namespace, and leaves
// no file behind.
func socket(name, address string, port int) (Text, error) {
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_0123456789") != "" {
		return "", fmt.Errorf("socket: %q is not a plain name", name)
	}
	text := "abns@hapsnap/" + name + "/" + address + "/" + strconv.Itoa(port)
	if field.IsVariable(address) {
		return Text(`"` + text + `"`), nil
	}
	word, err := checkConfig(text)
	return Text(word), err
}

// listenQUIC returns the address of a bind line for HTTP/3, which must name a family. A variable counts
// as IPv4.
func listenQUIC(address string, port int) (Text, error) {
	at, err := listen(address, port)
	family := "quic4@"
	switch {
	case field.IsVariable(address):
		return `"` + Text(family) + at[1:], err
	case strings.Contains(address, ":"):
		family = "quic6@"
	}
	return Text(family) + at, err
}

// printf is fmt.Sprintf for values that always print the same way.
func printf(format string, args ...any) (string, error) {
	for _, arg := range args {
		if _, err := scalar(arg); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf(format, decimals(args)...), nil
}

// sortedKeys returns the keys of a map of any kind, sorted.
func sortedKeys(m any) ([]string, error) {
	v := reflect.ValueOf(m)
	if v.Kind() != reflect.Map || v.Type().Key().Kind() != reflect.String {
		return nil, fmt.Errorf("a value of type %T is not a map of names", m)
	}
	out := make([]string, 0, v.Len())
	for _, key := range v.MapKeys() {
		out = append(out, key.String())
	}
	slices.Sort(out)
	return out, nil
}

// sortedValues returns the values of a map of any kind, in the order of their keys.
func sortedValues(m any) ([]any, error) {
	keys, err := sortedKeys(m)
	out := make([]any, len(keys))
	for i, key := range keys {
		out[i] = reflect.ValueOf(m).MapIndex(reflect.ValueOf(key)).Interface()
	}
	return out, err
}

// pageOf writes an error page. Each of its lines comes from the ConfigMap.
func pageOf(page routing.ErrorPage) *assembly {
	return textOf([]byte(page.Body), page.Origin)
}

// authorityOf writes authorities as they are.
func authorityOf(a routing.Authority) *assembly { return textOf(a.PEM, a.Origins...) }

// textOf is a text whose lines are all of the same objects.
func textOf(text []byte, origins ...routing.Origin) *assembly {
	a, origin := &assembly{text: text}, &LineOrigin{Objects: origins}
	for range bytes.Lines(a.text) {
		a.origins = append(a.origins, origin)
	}
	return a
}

// answers are the answers of rules that give a status: the error page of the status, or a line of text.
type answers []routing.ErrorPage

// write returns the arguments of a return or deny rule for a status.
func (pages answers) write(status int, text string) (Text, error) {
	i := slices.IndexFunc(pages, func(p routing.ErrorPage) bool { return p.Status == status })
	if i >= 0 {
		page := pages[i] // nothing in its body is expanded, and no cache may keep it
		contentType, err := quote(page.ContentType)
		return Text(fmt.Sprintf("content-type %s file %s hdr Cache-Control no-cache", contentType, page.File())), err
	}
	if err := checkPrintable(text); err != nil {
		return "", err
	}
	if strings.ContainsAny(text, `"\$`) {
		return "", &ValueError{text, "holds what HAProxy interprets within quotes", "use letters, digits and spaces"}
	}
	return Text(`content-type text/plain string "` + text + `"`), nil
}
