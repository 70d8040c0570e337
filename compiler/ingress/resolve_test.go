package ingress

import "testing"

func TestExternalNames(t *testing.T) {
	t.Parallel()
	const namespace = "shop"
	listed := ExternalNames{Domains: []string{"partner.example", "*.partner.example", "localhost"}}
	for _, c := range []struct {
		rule ExternalNames
		name string
		ok   bool
	}{
		{ExternalNames{}, "partner.example", true},
		{ExternalNames{}, "a.b.partner.example", true},
		{ExternalNames{}, "svc.partner.example", true},
		{ExternalNames{}, "web.shop.svc", true},
		{ExternalNames{}, "web.shop.svc.cluster.local", true},
		{ExternalNames{}, "web.shop.svc.k8s.corp.example", true},
		{ExternalNames{}, "", false},
		{ExternalNames{}, "partner", false},
		{ExternalNames{}, "partner..example", false},
		{ExternalNames{}, "a b.example", false},
		{ExternalNames{}, "a:80.example", false},
		{ExternalNames{}, "*.partner.example", false},
		{ExternalNames{}, "10.0.0.1", false},
		{ExternalNames{}, "169.254.169.254", false},
		{ExternalNames{}, "::1", false},
		{ExternalNames{}, "localhost", false},
		{ExternalNames{}, "x.localhost", false},
		{ExternalNames{}, "localhost.localdomain", false},
		{ExternalNames{}, "metadata.google.internal", false},
		{ExternalNames{}, "db.corp.internal", true},
		{ExternalNames{}, "web.other.svc", false},
		{ExternalNames{}, "web.other.svc.cluster.local", false},
		{ExternalNames{}, "web.other.svc.k8s.corp.example", false},
		{ExternalNames{}, "pod.web.shop.svc.cluster.local", false},
		{ExternalNames{}, "10-0-0-1.shop.pod.cluster.local", false},
		{ExternalNames{}, "x.cluster.local", false},
		{listed, "partner.example", true},
		{listed, "a.b.partner.example", true},
		{listed, "localhost", true},
		{listed, "notpartner.example", false},
		{listed, "other.example", false},
		{ExternalNames{Domains: []string{"*.partner.example"}}, "partner.example", false},
		{ExternalNames{Refuse: true, Domains: []string{"partner.example"}}, "partner.example", false},
	} {
		message, hint := c.rule.check(namespace, c.name)
		if (message == "") != c.ok || (hint == "") != c.ok {
			t.Errorf("%q by %+v: %q (%s), want ok %v", c.name, c.rule, message, hint, c.ok)
		}
	}
}
