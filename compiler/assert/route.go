package assert

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/trial"
)

// asked makes the request that is sent.
func (q Request) asked(c config.Config) trial.Request {
	r := trial.Request{TLS: q.Scheme == "https", Port: q.Port, Method: q.Method, Host: q.Host, Path: q.Path, Headers: q.Headers}
	if r.Port == 0 {
		r.Port = c.HTTP.Port
		if r.TLS {
			r.Port = c.HTTPS.Port
		}
	}
	if q.From != "" {
		r.From = netip.MustParseAddr(q.From) // it was checked
	}
	return r
}

// String is the request in few words.
func (q Request) String() string {
	port := ""
	if q.Port != 0 {
		port = fmt.Sprint(":", q.Port)
	}
	return fmt.Sprintf("%s %s://%s%s%s", or(q.Method, "GET"), or(q.Scheme, "http"), q.Host, port, or(q.Path, "/"))
}

func or(s, unset string) string {
	if s == "" {
		return unset
	}
	return s
}

// met reports whether an answer is what was asked for.
func (r Route) met(a trial.Answer) bool {
	server := trial.Server{}
	if a.Server != nil {
		server = *a.Server
	}
	return (r.Backend == "" || r.Backend == server.Backend) &&
		(r.Service == "" || r.Service == server.Service || strings.HasPrefix(server.Service, r.Service+":")) &&
		(r.Status == 0 || r.Status == a.Status) &&
		(r.Redirect == "" || r.Redirect == a.Location)
}

// String is who is to answer, in few words.
func (r Route) String() string {
	var parts []string
	for _, p := range [][2]string{{"backend ", r.Backend}, {"Service ", r.Service}, {"redirect to ", r.Redirect}} {
		if p[1] != "" {
			parts = append(parts, p[0]+p[1])
		}
	}
	if r.Status != 0 {
		parts = append(parts, fmt.Sprint("status ", r.Status))
	}
	return strings.Join(parts, ", ")
}

// describe says who answered.
func describe(a trial.Answer) string {
	got := Route{Status: a.Status, Redirect: a.Location}
	if a.Server == nil {
		return "HAProxy itself, " + got.String()
	}
	got.Backend, got.Service = a.Server.Backend, a.Server.Service
	return got.String()
}
