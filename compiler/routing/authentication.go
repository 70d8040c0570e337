package routing

import (
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/snapshots"
)

// authenticate finds what settings let clients in by, and reports whether all of
// it can be had.
func (t *translation) authenticate(s *options.Settings, by asker) bool {
	if s.Basic != nil {
		t.basicAuth(s.Basic, by)
	}
	return s.External == nil || t.externalAuth(s.External, by)
}

// externalAuth gives the Service that is asked a backend of its own: its servers
// are found there, whatever they are today.
func (t *translation) externalAuth(a *policy.ExternalAuth, by asker) bool {
	if a.Service.Namespace == "" {
		a.Service.Namespace = by.ingress.Ref.Namespace
	}
	name := snapshots.SecretName{Namespace: a.Service.Namespace, Name: a.Service.Name}
	refuse := func(message, hint string) bool {
		by.report(t, "auth-url", ": "+message, hint)
		return false
	}
	if name.Namespace != by.ingress.Ref.Namespace && !slices.Contains(t.cfg.SharedAuthServices, name.String()) {
		return refuse(fmt.Sprintf("Service %s is of another namespace, which does not share it", name),
			"use one of the same namespace, or have it added to shared.authServices of the configuration")
	}
	service, exists := t.services[name]
	if !exists {
		return refuse(fmt.Sprintf("Service %s does not exist", name), "create it, or correct the name")
	}
	r := t.resolvePort(service.Value, name, networkingv1.ServiceBackendPort{Number: int32(a.Service.Port)}, fmt.Sprint(a.Service.Port))
	if len(r.targets) == 0 {
		return refuse(r.finding.message, r.finding.hint)
	}
	settings, _, closed := options.Resolve(t.offer(service))
	if u := settings.Upstream; closed || u.TLS != nil || (u.Protocol != "" && u.Protocol != policy.HTTP1) || u.ProxyProtocol != 0 {
		return refuse(fmt.Sprintf("Service %s is spoken to in another way than HTTP/1.1 in the clear", name),
			"only that is supported towards an authentication service; see the annotations of the Service")
	}
	if external := r.targets[0].Name; external != nil {
		a.Host = fmt.Sprintf("%s:%d", external.Host, external.Port)
	}
	a.Backend = t.authBackend(r, settings.Upstream, by)
	return true
}

// authBackend returns the name of the backend of a Service that is asked for
// authentication. Three underscores tell it from the backends of routes.
func (t *translation) authBackend(r resolved, upstream policy.Upstream, by asker) string {
	name := "auth_" + r.name
	b := t.backends[name]
	upstream.Affinity = nil // there are no sessions to keep
	if b == nil {
		b = &Backend{Name: name, Targets: r.targets}
		if upstream != (policy.Upstream{}) {
			b.Upstream = &upstream
		}
		t.backends[name] = b
	}
	if n := len(b.Origins); n == 0 || b.Origins[n-1].Object != by.ingress.Ref {
		b.Origins = append(b.Origins, originOf(by.ingress, annotationPath("auth-url")...))
	}
	return name
}
