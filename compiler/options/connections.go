package options

import (
	"slices"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/policy"
)

// onConnections are the options that hold for connections whose requests are not
// looked at, by name.
var onConnections = map[string]bool{
	"balance": true, "max-connections": true, "max-queue": true, "slow-start": true, "retries": true,
	"health-check-path": true, "health-check-host": true, "health-check-status": true, "health-check-interval": true,
	"health-check-timeout": true, "health-check-rise": true, "health-check-fall": true,
	"backend-protocol": true, "backend-verify": true, "backend-sni": true, "backend-ca-secret": true, "backend-client-secret": true,
	"send-proxy-protocol": true,
	"timeout-connect":     true, "timeout-server": true, "timeout-queue": true, "timeout-tunnel": true,
	"allow-list": true, "deny-list": true,
}

// whole says what options that look at requests cannot be applied to.
const whole = "connections that are passed on as they are"

// ofServerTLS are those of them that say how HAProxy speaks TLS or HTTP to
// servers: where clients speak TLS to these, it does neither.
var ofServerTLS = map[string]bool{
	"health-check-path": true, "health-check-host": true, "health-check-status": true,
	"backend-protocol": true, "backend-verify": true, "backend-sni": true, "backend-ca-secret": true, "backend-client-secret": true,
}

// ForConnections is [Resolve] for connections whose requests are not looked at.
// With encrypted, they are known to hold TLS. An option that looks at requests is
// left out and reported; closed says that it protects something.
func ForConnections(encrypted bool, objects ...Values) (s Settings, problems map[int][]Problem, closed bool) {
	r := resolution{objects: objects}
	kept := make([]Values, len(objects))
	for i, v := range objects {
		kept[i].Closed = v.Closed
		for _, g := range v.given {
			if encrypted && ofServerTLS[g.option.Name] {
				continue
			}
			if g.option.Matches || onConnections[g.option.Name] {
				kept[i].given = append(kept[i].given, g)
			} else {
				r.lookless(g.option)
			}
		}
	}
	s, problems, closed = Resolve(kept...)
	r.settings = s
	r.connections()
	for i, found := range problems {
		r.merge(i, found)
	}
	return r.settings, r.problems, closed || r.closed
}

// merge adds problems of one object.
func (r *resolution) merge(i int, found []Problem) {
	if r.problems == nil {
		r.problems = map[int][]Problem{}
	}
	r.problems[i] = slices.Concat(found, r.problems[i])
}

// lookless reports an option that cannot be applied without a look at requests.
func (r *resolution) lookless(o Option) {
	switch {
	case o.Closes:
		r.closed = true
		r.report(diag.Error, o.Name, "cannot protect "+whole+"; they are refused", "remove it, or serve HTTP")
	case o.Group != Routing: // those are for plain HTTP all the same
		r.report(diag.Warning, o.Name, "has no effect on "+whole, "")
	}
}

// connections takes out of the settings what needs a request.
func (r *resolution) connections() {
	u := &r.settings.Upstream
	switch u.Balance.By {
	case policy.ByURI, policy.ByHeader, policy.ByQuery:
		r.report(diag.Warning, "balance", "looks at requests, and has no effect on "+whole, "use roundrobin, leastconn, random, first or source")
		u.Balance = policy.Balance{}
	}
	if u.TLS != nil && u.TLS.OfRequest {
		r.closed = true
		r.report(diag.Error, "backend-sni", "cannot be the host of a request for "+whole+"; they are refused", "name the host")
	}
	u.Protocol, u.FastCGI = policy.Opaque, nil
}
