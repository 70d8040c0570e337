// Package policy holds what can be asked of the requests of a route and of the
// servers of a backend, as plain values: filters, which change a request or its
// answer, protection, which refuses requests, and how servers are spoken to.
//
// The values do not say where they were asked for, so that annotations and Gateway API routes become the same values. They
// contain no keywords of HAProxy, which the templates write. Values that package options made are valid: their texts have
// no line break or control character.
package policy

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

// Kind names the type of a [Filter] to templates.
type Kind string

// Filter changes a request, or the answer to it. The set of filters is closed:
// they are the types of this file. A list of filters is in the order in which
// they are applied.
type Filter interface {
	// Kind returns the name of the filter's type, such as "RewritePath".
	Kind() Kind
}

// HTTPSRedirect sends plain HTTP to the same URL with https.
type HTTPSRedirect struct {
	Code int
}

// CORS answers preflight requests, and tells browsers which other origins may
// read the answers. See the Fetch standard, section "CORS protocol".
type CORS struct {
	// AnyOrigin allows every origin. Otherwise Origins are allowed, such as "https://a.example", and
	// OriginPatterns, which are regular expressions.
	AnyOrigin      bool
	Origins        []string
	OriginPatterns []string
	// Expressions are regular expressions of the author's own, for origins of at most 1024 bytes.
	Expressions []string
	Methods     []string
	Headers     []string
	Expose      []string
	Credentials bool
	MaxAge      int // seconds
	// EchoMethods and EchoHeaders allow what the browser asks for, in place of Methods and Headers.
	EchoMethods, EchoHeaders bool
	// AnswerAll answers preflight requests of other origins too, without a word that allows them, and
	// names Expose in answers to preflight requests. The suite of the Gateway API asks for both.
	AnswerAll bool
}

// Redirect answers with a Location instead of asking a server. With Root it
// does so for the path "/" only. With KeepPath the request's path and query
// follow the location.
type Redirect struct {
	Location string
	KeepPath bool
	Root     bool
	Code     int
}

// Headers edits the headers of requests, or of answers.
type Headers struct {
	Of    Message
	Edits []HeaderEdit // in their order
}

// Message is what a [Headers] filter edits.
type Message string

// The messages.
const (
	Requests Message = "Requests"
	Answers  Message = "Answers"
)

// HeaderEdit changes one header.
type HeaderEdit struct {
	Do          EditVerb
	Name, Value string // Value with Set and Add only
	From        Source // with Copy only
}

// Source is a part of a request, as it came, that is known by a name. Header is the name of a
// header, with SourceHeader only.
type Source struct {
	Of     SourceKind
	Header string
}

// SourceKind is a kind of [Source].
type SourceKind string

// The kinds of sources.
const (
	sourceHost          SourceKind = "host" // in lower case, without a port
	sourceURI           SourceKind = "uri"  // path and query
	sourceQuery         SourceKind = "query"
	sourceMethod        SourceKind = "method"
	sourceScheme        SourceKind = "scheme"
	sourceClientAddress SourceKind = "client-address"
	sourceClientPort    SourceKind = "client-port"
	sourceRequestID     SourceKind = "request-id"
	SourceHeader        SourceKind = "header"
)

// IsWhole reports whether k is a kind that needs no name.
func (k SourceKind) IsWhole() bool {
	switch k {
	case sourceHost, sourceURI, sourceQuery, sourceMethod, sourceScheme,
		sourceClientAddress, sourceClientPort, sourceRequestID:
		return true
	}
	return false
}

// EditVerb is what is done to a header. The verb set replaces all of its values.
type EditVerb string

// The verbs. Copy sets a header to a part of the request, and removes the header if that part does not exist.
const (
	Copy   EditVerb = "copy"
	Set    EditVerb = "set"
	Add    EditVerb = "add"
	Remove EditVerb = "remove"
)

// IsKnown reports whether v is one of the verbs.
func (v EditVerb) IsKnown() bool {
	return v == Copy || v == Set || v == Add || v == Remove
}

// HSTS tells browsers, over HTTPS, to use nothing else from now on (RFC 6797).
type HSTS struct {
	Value string // of the header
}

// ForwardedFor says what becomes of the X-Forwarded-For that a proxy of a trusted
// network sent. Without this filter the configuration says it.
type ForwardedFor struct {
	Mode ForwardedMode
}

// ForwardedMode is a way to treat X-Forwarded-For.
type ForwardedMode string

// The modes: send the address that the request came from; append it to what came;
// leave what came, or send that address if none came; send none at all, nor X-Real-IP.
const (
	ForwardedReplace ForwardedMode = "replace"
	ForwardedAppend  ForwardedMode = "append"
	ForwardedKeep    ForwardedMode = "keep"
	ForwardedOff     ForwardedMode = "off"
)

// RewriteHost replaces the Host header.
type RewriteHost struct {
	Host string
}

// RewritePath replaces the path, and leaves the query. With a Pattern, a path
// that it matches becomes Replacement, in which \1 is its first group. Without
// one, Replacement takes the place of the prefix that the route matched; it has
// no slash at its end, and is "" for the root. Where the route matched an expression, Whole
// takes the place of the path, and \1 in it is the first group of that.
type RewritePath struct {
	Pattern, Replacement, Whole string
}

// HasGroups reports whether the replacement refers to a group.
func (r RewritePath) HasGroups() bool { return strings.Contains(r.Replacement, `\`) }

// Kind returns "HTTPSRedirect".
func (HTTPSRedirect) Kind() Kind { return "HTTPSRedirect" }

// Kind returns "CORS".
func (CORS) Kind() Kind { return "CORS" }

// Kind returns "Redirect".
func (Redirect) Kind() Kind { return "Redirect" }

// Kind returns "Headers".
func (Headers) Kind() Kind { return "Headers" }

// Kind returns "HSTS".
func (HSTS) Kind() Kind { return "HSTS" }

// Kind returns "ForwardedFor".
func (ForwardedFor) Kind() Kind { return "ForwardedFor" }

// Kind returns "RewriteHost".
func (RewriteHost) Kind() Kind { return "RewriteHost" }

// Kind returns "RewritePath".
func (RewritePath) Kind() Kind { return "RewritePath" }

// InterceptErrors answers in place of servers that answered with a status.
type InterceptErrors struct {
	Statuses []int // sorted
}

// Kind returns "InterceptErrors".
func (InterceptErrors) Kind() Kind { return "InterceptErrors" }

// HostRedirect sends all requests to another host, by the scheme that they came by, with their
// path and query.
type HostRedirect struct {
	Host string
	Code int
}

// Kind returns "HostRedirect".
func (HostRedirect) Kind() Kind { return "HostRedirect" }

// RewriteCookies changes the cookies that servers set: a Path that begins with From gets To in its
// place, and a Domain that is From becomes To. What has no From stays.
type RewriteCookies struct {
	Path, Domain Replacement
}

// Replacement is a text to find, and the text that replaces it.
type Replacement struct{ From, To string }

// Kind returns "RewriteCookies".
func (RewriteCookies) Kind() Kind { return "RewriteCookies" }

// Line is a line of haproxy.cfg that an object's author wrote, checked by [NewLine]. It is the only
// value that is written as it is; no other value can be turned into one.
type Line struct{ text string }

// Text returns the line, without white space around it.
func (l Line) Text() string { return l.text }

// maxLine is how many bytes a [Line] may have.
const maxLine = 4096

// plainWord is a keyword: HAProxy would take others apart before it reads them,
// and find a section behind quotes.
var plainWord = regexp.MustCompile(`^[a-z][a-z0-9.-]*$`)

// keywords are the words that a line may not begin with, each with the reason.
var keywords = map[string][]string{
	"begins a section, and is not possible here": haproxycfg.SectionKeywords,
	"is written by the templates, and is not possible here": strings.Fields(`server server-template use-server dispatch bind mode id guid
		disabled enabled`),
	"reaches beyond the backend, and is not possible here": strings.Fields(`stats external-check errorfile errorfiles
		load-server-state-from-file log filter`),
}

// NewLine checks a line. HAProxy itself checks its meaning.
func NewLine(text string) (Line, error) {
	text = strings.Trim(text, " \t")
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return Line{}, fmt.Errorf("holds the unprintable character %U", r)
		}
	}
	if len(text) > maxLine {
		return Line{}, fmt.Errorf("has %d bytes; a line may have %d", len(text), maxLine)
	}
	if strings.HasSuffix(text, `\`) {
		return Line{}, errors.New("ends in a backslash")
	}
	words := strings.Fields(text)
	if len(words) > 1 && (words[0] == "no" || words[0] == "default") {
		words = words[1:]
	}
	if len(words) == 0 || !plainWord.MatchString(words[0]) {
		return Line{}, errors.New("begins with no keyword")
	}
	for why, refused := range keywords { // of which one at most holds it
		if slices.Contains(refused, words[0]) {
			return Line{}, errors.New("begins with " + words[0] + ", which " + why)
		}
	}
	return Line{text}, nil
}

// RedirectURL answers with the URL of the request, as filters before it have changed the path, with
// another scheme, host or port. What is empty stays: the port is then that of the given scheme, or
// else the one that the client connected to.
type RedirectURL struct {
	Scheme, Host string
	Port         int
	Code         int
}

// Kind returns "RedirectURL".
func (RedirectURL) Kind() Kind { return "RedirectURL" }

// Schemes returns the schemes that the redirect may have, and of each the port that is not written.
func (r RedirectURL) Schemes() map[string]int {
	all := map[string]int{"http": 80, "https": 443}
	maps.DeleteFunc(all, func(scheme string, _ int) bool { return r.Scheme != "" && scheme != r.Scheme })
	return all
}

// Mirror sends a copy of a share of the requests, as the filters before it have made them, to a backend
// whose answers nobody gets. It is written by files/hapsnap.lua and haproxy/46-mirror.cfg.
type Mirror struct {
	Backend string
	// Numerator in Denominator requests are copied.
	Numerator, Denominator int
	// Address and Port are where HAProxy listens for something else: they name the socket by which the copies
	// come, so that no other HAProxy of the machine has it. Without an Address it is the configuration's.
	Address string
	Port    int
}

// Kind returns "Mirror".
func (Mirror) Kind() Kind { return "Mirror" }

// Always reports whether every request is copied.
func (m Mirror) Always() bool { return m.Numerator >= m.Denominator }

// Answer answers every request with a status.
type Answer struct{ Status int }

// Kind returns "Answer".
func (Answer) Kind() Kind { return "Answer" }
