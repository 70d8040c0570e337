package assert

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// check reports what makes no sense in a test.
func (r *reader) check(t *Test) {
	if t.Name == "" {
		r.fault(t, "has no name", "name it in metadata.name", "metadata")
	}
	if len(t.Spec.Assertions) == 0 {
		r.fault(t, "asserts nothing", "add spec.assertions", "spec")
	}
	for i, a := range t.Spec.Assertions {
		r.assertion(t, a, "spec", "assertions", i)
	}
}

// made lists what an assertion asserts.
func (a Assertion) made() []string {
	var out []string
	for _, made := range []struct {
		name string
		is   bool
	}{
		{"contains", a.Contains != nil},
		{"notContains", a.NotContains != nil},
		{"equals", a.Equals != nil},
		{"equalsFile", a.EqualsFile != ""},
		{"routesTo", a.RoutesTo != nil},
		{"fails", a.Fails != nil},
		{"warns", a.Warns != nil},
	} {
		if made.is {
			out = append(out, made.name)
		}
	}
	return out
}

func (r *reader) assertion(t *Test, a Assertion, path ...any) {
	made := a.made()
	switch len(made) {
	case 1:
	case 0:
		r.fault(t, "the assertion asserts nothing", "add one of contains, notContains, equals, equalsFile, routesTo, fails and warns", path...)
		return
	default:
		r.fault(t, "the assertion has "+strings.Join(made, " and "), "make one assertion of each", path...)
		return
	}
	field := append(path, made[0])
	for _, lines := range []*string{a.Contains, a.NotContains} {
		if lines != nil && strings.TrimSpace(*lines) == "" {
			r.fault(t, made[0]+" names no line", "", field...)
		}
	}
	for _, f := range []*Finding{a.Fails, a.Warns} {
		if f != nil && f.Object == "" && f.Message == "" {
			r.fault(t, made[0]+" says nothing of what is reported", "add object, such as Ingress shop/web, or message", field...)
		}
	}
	if a.In != "" && (a.RoutesTo != nil || a.Fails != nil || a.Warns != nil) {
		r.fault(t, made[0]+" is about no file", "leave out in", append(path, "in")...)
	}
	r.route(t, a, path...)
}

// route checks a request and who is to answer it.
func (r *reader) route(t *Test, a Assertion, path ...any) {
	switch {
	case a.RoutesTo == nil && a.Request == nil:
		return
	case a.RoutesTo == nil:
		r.fault(t, "a request is for routesTo", "say in routesTo who is to answer", append(path, "request")...)
		return
	case a.Request == nil:
		r.fault(t, "routesTo has no request", "add request, with a host", append(path, "routesTo")...)
		return
	}
	if (*a.RoutesTo == Route{}) {
		r.fault(t, "routesTo does not say who is to answer", "add backend, service, status or redirect", append(path, "routesTo")...)
	}
	if s := a.Request; s.Scheme != "" && s.Scheme != "http" && s.Scheme != "https" {
		r.fault(t, fmt.Sprintf("%q is no scheme", s.Scheme), "use http or https", append(path, "request", "scheme")...)
	}
	r.request(t, *a.Request, append(path, "request")...)
}

// The forms of the parts of a request. Nothing in them can end a line.
var (
	tokenForm = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	wordForm  = regexp.MustCompile(`^[!-~]+$`)
	valueForm = regexp.MustCompile(`^[ -~]*$`)
)

func (r *reader) request(t *Test, q Request, path ...any) {
	if !wordForm.MatchString(q.Host) {
		r.fault(t, fmt.Sprintf("%q is no host", q.Host), "name the host of the request, such as shop.example.com", append(path, "host")...)
	}
	if q.Path != "" && !wordForm.MatchString(q.Path) {
		r.fault(t, fmt.Sprintf("%q is no path that can be sent", q.Path), "write other characters than those of ASCII as %XX", append(path, "path")...)
	}
	if q.Method != "" && !tokenForm.MatchString(q.Method) {
		r.fault(t, fmt.Sprintf("%q is no method", q.Method), "use such as GET", append(path, "method")...)
	}
	if q.Port < 0 || q.Port > 65535 {
		r.fault(t, fmt.Sprintf("%d is no port", q.Port), "", append(path, "port")...)
	}
	if _, err := netip.ParseAddr(q.From); q.From != "" && err != nil {
		r.fault(t, fmt.Sprintf("%q is no IP address", q.From), "", append(path, "from")...)
	}
	for name, value := range q.Headers {
		if !tokenForm.MatchString(name) || !valueForm.MatchString(value) {
			r.fault(t, fmt.Sprintf("%q cannot be sent as a header", name), "", append(path, "headers", name)...)
		}
	}
}
