package routing

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Listener is a port whose connections are routed as wholes, by the host that
// TLS asks for, without a look at requests.
type Listener struct {
	// Name tells it from the others: "tcp_5432", or "https".
	Name     string
	Port     int
	Protocol Protocol
	// Trusted are the networks whose connections begin with a header of the PROXY
	// protocol, sorted. Those of an HTTPS listener are the configuration's.
	Trusted []netip.Prefix
	Routes  []ConnectionRoute // by SNI
}

// Protocol is what becomes of the connections of a [Listener].
type Protocol string

// The protocols. Connections of an HTTPS listener that no route takes are those
// of the hosts of the [Model]; those of a TCP listener are closed.
const (
	HTTPS Protocol = "HTTPS"
	TCP   Protocol = "TCP"
)

// ConnectionRoute sends connections to a backend.
type ConnectionRoute struct {
	// SNI is the host that TLS asks for, named as a [Host] is: ".foo.com" is the
	// wildcard. "" stands for all connections that no other route takes, with TLS
	// or without.
	SNI string
	// Terminate ends TLS here, with the certificate in the file Certificate. Else
	// what the connection holds is passed on as it is.
	Terminate   bool
	Certificate string
	// Backend is the name of one of the model's ConnectionBackends. With Terminate
	// on an HTTPS listener there is none: the hosts of the model have it.
	Backend string
	Origin  Origin
}

// Fallback returns the backend of connections that no other route takes, or "".
func (l Listener) Fallback() string {
	if r, ok := l.fallback(); ok {
		return r.Backend
	}
	return ""
}

func (l Listener) fallback() (ConnectionRoute, bool) {
	i := slices.IndexFunc(l.Routes, func(r ConnectionRoute) bool { return r.SNI == "" })
	if i < 0 {
		return ConnectionRoute{}, false
	}
	return l.Routes[i], true
}

// Terminates reports whether TLS ends here for some of the connections.
func (l Listener) Terminates() bool {
	return l.Protocol == HTTPS || slices.ContainsFunc(l.Routes, func(r ConnectionRoute) bool { return r.Terminate })
}

// TerminatesRest reports whether TLS ends here for those that no other route takes.
func (l Listener) TerminatesRest() bool {
	r, ok := l.fallback()
	return l.Protocol == HTTPS || (ok && r.Terminate)
}

// Inspects reports whether a connection has to be looked at before it is known
// what becomes of it. It has not if TLS ends here for all, or if there is but one
// route.
func (l Listener) Inspects() bool {
	if l.Protocol == HTTPS {
		return true
	}
	if len(l.Routes) == 1 && l.Routes[0].SNI == "" {
		return false
	}
	return slices.ContainsFunc(l.Routes, func(r ConnectionRoute) bool { return !r.Terminate })
}

// Splits reports whether there are connections of both kinds, so that those whose
// TLS ends here are handed on to another frontend.
func (l Listener) Splits() bool { return l.Inspects() && l.Terminates() }

// Terminated returns the routes for which TLS ends here, the one for all others
// first.
func (l Listener) Terminated() []ConnectionRoute {
	return slices.DeleteFunc(slices.Clone(l.Routes), func(r ConnectionRoute) bool { return !r.Terminate })
}

// Except returns the hosts that a terminated route's wildcard does not stand for.
// Without them HAProxy might take its certificate for one of these, if its key is
// of another kind.
func (l Listener) Except(wildcard ConnectionRoute) []string {
	var out []string
	for _, r := range l.Routes {
		host, ok := strings.CutSuffix(r.SNI, wildcard.SNI)
		if ok && wildcard.SNI != "" && host != "" && !strings.Contains(host, ".") && r.Certificate != wildcard.Certificate {
			out = append(out, r.SNI)
		}
	}
	return out
}

// tcpListenerName names the listener of a port.
func tcpListenerName(port int) string { return "tcp_" + strconv.Itoa(port) }
