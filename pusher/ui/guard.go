package ui

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// The limits of what viewers may take.
const (
	maxHeader     = 16 << 10
	maxAddress    = 4 << 10 // of a path with its query
	headerTimeout = 10 * time.Second
	answerTimeout = time.Minute
	idleTimeout   = 2 * time.Minute
	maxAnswers    = 16       // pages that are made at once
	maxUnsent     = 64 << 20 // bytes of answers that viewers have not taken
	maxWords      = 20       // that a list is searched for
)

// policy is the Content-Security-Policy of every answer: nothing comes from elsewhere, nothing is
// sent elsewhere, and no other page shows this one.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// guard lets through what a browser that was not tricked asks for.
func guard(hosts []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch {
		case !allowedHost(r.Host, hosts):
			http.Error(w, "this name is not one of the page's: start with --ui-host to allow it", http.StatusMisdirectedRequest)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "the page is read-only", http.StatusMethodNotAllowed)
		case len(r.RequestURI) > maxAddress:
			http.Error(w, "the address is too long", http.StatusRequestURITooLong)
		case r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate":
			http.Error(w, "another site asks for this", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// allowedHost reports whether a Host header is one under which the page may be asked for. A page
// elsewhere can have its own name resolve to this address (DNS rebinding), and its name is then in
// the header. So names are those of this machine and those that were given. An address cannot be
// rebound, and is always allowed.
func allowedHost(host string, hosts []string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || slices.ContainsFunc(hosts, func(h string) bool { return strings.EqualFold(h, name) })
}
