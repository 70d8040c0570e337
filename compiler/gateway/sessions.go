package gateway

import (
	"regexp"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/policy"
)

// sessionName is what the name of a cookie may be made of.
var sessionName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// mostSession is the longest life of a session, of which HAProxy writes the beginning into the cookie.
const mostSession = 365 * 24 * time.Hour

// sessionsOf returns what a rule says of sessions, or nil. Where several backends share the requests of a rule, one of them
// is drawn for each request, whatever cookie that has: sessions would not stay.
func sessionsOf(rule gatewayv1.HTTPRouteRule) (*policy.Affinity, *problem) {
	in := rule.SessionPersistence
	if in == nil {
		return nil, nil
	}
	if in.Type != nil && *in.Type != gatewayv1.CookieBasedSessionPersistence {
		return nil, unsupported("sessions are kept by cookies only, and not by a %s", *in.Type).in("type")
	}
	shares := 0
	for _, ref := range rule.BackendRefs {
		if ref.Weight == nil || *ref.Weight > 0 {
			shares++
		}
	}
	if shares > 1 {
		return nil, unsupported("sessions are not kept where a rule has several backends")
	}
	out := &policy.Affinity{HTTPSOnly: policy.HTTPSAuto}
	if in.SessionName != nil {
		if !sessionName.MatchString(*in.SessionName) {
			return nil, unsupported("a cookie named %q is not supported: use letters, digits, - and _", *in.SessionName).in("sessionName")
		}
		out.Cookie = *in.SessionName
	}
	if in.AbsoluteTimeout != nil {
		d, err := time.ParseDuration(string(*in.AbsoluteTimeout))
		if err != nil || d < time.Second || d > mostSession || d%time.Second != 0 {
			return nil, unsupported("%q is no lifetime of a session: use whole seconds, up to %s", *in.AbsoluteTimeout, mostSession).in("absoluteTimeout")
		}
		out.MaxLife = int(d / time.Second)
	}
	if c := in.CookieConfig; c != nil && c.LifetimeType != nil && *c.LifetimeType != gatewayv1.SessionCookieLifetimeType {
		if *c.LifetimeType != gatewayv1.PermanentCookieLifetimeType || out.MaxLife == 0 {
			return nil, unsupported("a %s cookie without absoluteTimeout is not supported", *c.LifetimeType).in("cookieConfig", "lifetimeType")
		}
		out.MaxAge = out.MaxLife
	}
	return out, nil
}

// keepSessions gives a backend the cookie that a rule, or else its Service, asks for.
func keepSessions(upstream policy.Upstream, ofRule *policy.Affinity, ref reference) policy.Upstream {
	if ofRule != nil {
		upstream.Affinity = ofRule
	}
	if upstream.Affinity != nil {
		named := upstream.Affinity.Named(ref.target.Service.String())
		upstream.Affinity = &named
	}
	return upstream
}
