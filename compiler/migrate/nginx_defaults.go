package migrate

import "github.com/hapsnap/hapsnap/compiler/diag"

// nginxDefaults is what ingress-nginx does for every Ingress without being asked, and hapsnap
// does not. It is said once, and not for each object.
var nginxDefaults = []diag.Diagnostic{
	{
		Severity: diag.Warning,
		Message:  "ingress-nginx refuses bodies over 1 MB, and sends Strict-Transport-Security over HTTPS, unless its ConfigMap says otherwise; hapsnap does neither without being asked",
		Hint:     `for all Ingresses of a class, set max-body-size: 1m and hsts: "31536000 includeSubDomains" in its parameters; see docs/reference/annotations.md`,
	},
	{
		Severity: diag.Warning,
		Message:  "ingress-nginx waits 60 s for the next part of an answer, and for that of a WebSocket; hapsnap waits as timeouts of the CompilerConfig says",
		Hint:     "compare timeouts.server and timeouts.tunnel in docs/reference/configuration.md",
	},
	{
		Severity: diag.Warning,
		Message:  "the ConfigMap of ingress-nginx is not read; whitelist-source-range, denylist-source-range, block-cidrs, block-user-agents, block-referers, global-auth-url, enable-modsecurity and server-snippet in it protect all Ingresses",
		Hint:     "look there; allow-list, deny-list and auth-url can be parameters of the class",
	},
}
