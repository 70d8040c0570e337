package options

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/policy"
)

// balance reads an algorithm, and its key.
func balance(text string) (policy.Balance, error) {
	words := strings.Fields(text)
	b := policy.Balance{By: policy.Algorithm(words[0])}
	const hint = "use roundrobin, leastconn, random, first, source, uri, header NAME or query NAME"
	switch b.By {
	case policy.RoundRobin, policy.LeastConn, policy.Random, policy.First, policy.BySource, policy.ByURI:
		if len(words) > 1 {
			return b, fault("has a word too many", hint)
		}
		return b, nil
	case policy.ByHeader, policy.ByQuery:
		if len(words) != 2 {
			return b, fault("needs one name", hint)
		}
		b.Key = words[1]
		if !keyForm.MatchString(b.Key) {
			return b, faultOf(b.Key, "is not a name", "use letters, digits, - and _")
		}
		return b, nil
	}
	return b, fault("is not an algorithm", hint)
}

// keyForm is what may stand in parentheses in haproxy.cfg.
var keyForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// headerValueForm is what a header can be compared with. A brace would end the
// condition.
var headerValueForm = regexp.MustCompile(`^[A-Za-z0-9._~:/@+=,;*-]{1,200}$`)

// protocol is what is spoken to servers, and whether over TLS.
type protocol struct {
	name policy.Protocol
	tls  bool
}

var protocols = map[string]protocol{
	"h1": {policy.HTTP1, false}, "h1-tls": {policy.HTTP1, true},
	"h2": {policy.HTTP2, false}, "h2-tls": {policy.HTTP2, true},
	"grpc": {policy.GRPC, false}, "grpc-tls": {policy.GRPC, true},
	"fcgi": {policy.FCGI, false},
}

// serverName reads the name that is sent as SNI.
func serverName(text string) (policy.TLS, error) {
	if text == requestHost {
		return policy.TLS{OfRequest: true}, nil
	}
	name, err := hostName(text)
	return policy.TLS{ServerName: name}, err
}

var statusForm = regexp.MustCompile(`^([1-5][0-9]{2})(?:-([1-5][0-9]{2}))?$`)

// statuses reads a status or a range of them.
func statuses(text string) (string, error) {
	m := statusForm.FindStringSubmatch(text)
	if m == nil || (m[2] != "" && m[2] < m[1]) {
		return "", fault("is not a status", "use one such as 200, or a range such as 200-399")
	}
	return text, nil
}

// rateKey reads what tells clients apart: "" is the address.
func rateKey(text string) (string, error) {
	words := strings.Fields(text)
	switch {
	case len(words) == 1 && words[0] == "address":
		return "", nil
	case len(words) == 2 && words[0] == "header" && keyForm.MatchString(words[1]):
		return words[1], nil
	}
	return "", fault("is not possible", "use address, or header and its name")
}

// refusal reads a status to refuse with.
func refusal(text string) (int, error) {
	code, err := strconv.Atoi(text)
	if err != nil || (text != "403" && text != "429" && text != "503") {
		return 0, fault("is not possible", "use 403, 429 or 503")
	}
	return code, nil
}
