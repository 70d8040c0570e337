package migrate

import "strings"

// strangers returns the dialects of controllers whose annotations are not translated. An Ingress with one of them is
// reported and keeps its class, and its routes are closed if the annotation protects something: nobody should
// learn from a break-in that a change of the class left the protection behind.
func strangers() []Dialect {
	return []Dialect{
		{
			Name: "F5 NGINX Ingress Controller", Prefixes: []string{"nginx.org/", "nginx.com/", "appprotect.f5.com/", "appprotectdos.f5.com/"},
			protects: []string{"basic-auth-secret", "jwt-key", "policies", "limit-req-rate", "app-protect-enable", "app-protect-policy", "app-protect-dos-resource"},
			snippets: []string{"server-snippets", "location-snippets"},
			stands:   map[string]string{"basic-auth-secret": "auth-basic", "limit-req-rate": "rate-limit"},
		},
		{
			Name: "Traefik", Prefixes: []string{"traefik.ingress.kubernetes.io/"}, Classes: []string{"traefik"},
			protects: []string{"router.middlewares", "router.tls.options"},
		},
		{
			Name: "AWS Load Balancer Controller", Prefixes: []string{"alb.ingress.kubernetes.io/"}, Classes: []string{"alb"}, ofServices: true,
			protects: []string{"inbound-cidrs", "security-groups", "security-group-prefix-lists", "auth-type", "jwt-validation", "mutual-authentication", "waf-acl-id", "wafv2-acl-arn"},
			stands:   map[string]string{"inbound-cidrs": "allow-list", "mutual-authentication": "client-ca-secret"},
			idle: func(name, value string) bool {
				switch name {
				case "inbound-cidrs": // a list of which each lets somebody in
					return strings.Contains(","+strings.ReplaceAll(value, " ", "")+",", ",0.0.0.0/0,")
				case "mutual-authentication": // the other modes let everybody in
					return !strings.Contains(value, "verify")
				}
				return false
			},
		},
		{
			Name: "Application Gateway Ingress Controller", Prefixes: []string{"appgw.ingress.kubernetes.io/"}, Classes: []string{"azure-application-gateway"},
			protects: []string{"waf-policy-for-path", "use-private-ip"},
		},
		{
			Name: "Kong Ingress Controller", Prefixes: []string{"konghq.com/"}, Classes: []string{"kong"}, ofServices: true,
			protects: []string{"plugins"},
		},
		{
			Name: "Apache APISIX Ingress Controller", Prefixes: []string{"k8s.apisix.apache.org/"}, Classes: []string{"apisix"},
			protects: []string{"allowlist-source-range", "blocklist-source-range", "http-allow-methods", "http-block-methods", "auth-type", "auth-uri", "enable-csrf", "plugin-config-name"},
			stands:   map[string]string{"allowlist-source-range": "allow-list", "blocklist-source-range": "deny-list", "auth-uri": "auth-url"},
		},
		{
			Name: "Skipper", Prefixes: []string{"zalando.org/"}, Classes: []string{"skipper"},
			protects: []string{"skipper-filter", "skipper-routes", "ratelimit"},
		},
		{Name: "Contour", Prefixes: []string{"projectcontour.io/"}, Classes: []string{"contour"}},
	}
}
