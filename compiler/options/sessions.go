package options

import (
	"regexp"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/policy"
)

// sessionOptions keep sessions with endpoints.
func sessionOptions() []Option {
	return []Option{
		define(Option{
			Name: "affinity", Group: Sessions, On: onBoth, Value: "`cookie` or `none`", Example: "cookie", Default: "`none`",
			Summary: "`cookie` keeps a session with its endpoint as long as the endpoint exists, on every HAProxy. An endpoint that is terminating gets the requests of its sessions, and no others while one is ready; the sessions of one that is down go to another, and get its cookie.",
		}, oneOf(map[string]bool{"cookie": true, "none": false}), func(s *Settings, v bool) { s.sticky = v }),
		define(Option{
			Name: "affinity-cookie-name", Group: Sessions, On: onBoth, Needs: "affinity", Value: "the name of a cookie", Example: "session", Default: "`hapsnap-` and a hash of the Service's name and port",
			Summary: "The cookie's name. Services of one host need different names; otherwise each ends the sessions of the others.",
		}, cookieName, func(s *Settings, v string) { s.affinity.Cookie = v }),
		define(Option{
			Name: "affinity-cookie-domain", Group: Sessions, On: onBoth, Needs: "affinity", Value: "a DNS name of two labels or more", Example: "shop.example", Default: "the request's host alone",
			Summary: "The domain whose hosts get the cookie.",
		}, cookieDomain, func(s *Settings, v string) { s.affinity.Domain = v }),
		define(Option{
			Name: "affinity-cookie-same-site", Group: Sessions, On: onBoth, Needs: "affinity", Value: "`None`, `Lax` or `Strict`", Example: "Lax", Default: "the browser's",
			Summary: "Whether browsers send the cookie with requests from other sites. With `None` browsers send it over HTTPS only.",
		}, oneOf(map[string]policy.SameSite{"None": policy.SameSiteNone, "Lax": "Lax", "Strict": "Strict"}),
			func(s *Settings, v policy.SameSite) { s.affinity.SameSite = v }),
		define(Option{
			Name: "affinity-cookie-path", Group: Sessions, On: onBoth, Needs: "affinity", Value: "a path", Example: "/shop", Default: "`/`",
			Summary: "The path below which browsers send the cookie. Ingresses of one host that give their cookies one name need different ones.",
		}, cookiePath, func(s *Settings, v string) { s.affinity.Path = v }),
		define(Option{
			Name: "affinity-cookie-max-age", Group: Sessions, On: onBoth, Needs: "affinity", Value: "seconds", Example: "172800", Default: "until the browser ends",
			Summary: "How long browsers keep the cookie.",
		}, number(1, 1<<31-1), func(s *Settings, v int) { s.affinity.MaxAge = v }),
		define(Option{
			Name: "affinity-cookie-secure", Group: Sessions, On: onBoth, Needs: "affinity", Value: "`true`, `false` or `auto`", Example: "auto", Default: "`true` with `SameSite=None`, else `false`",
			Summary: "Whether browsers send the cookie over HTTPS only. `auto` asks them to where it was set over HTTPS.",
		}, oneOf(map[string]policy.HTTPSOnly{"true": policy.HTTPSAlways, "false": policy.HTTPSNever, "auto": policy.HTTPSAuto}),
			func(s *Settings, v policy.HTTPSOnly) { s.affinity.HTTPSOnly = v }),
		define(Option{
			Name: "affinity-cookie-preserve", Group: Sessions, On: onBoth, Needs: "affinity", Value: valueBool, Example: "true", Default: "`false`",
			Summary: "Leaves the cookie alone when the endpoint itself sets one of this name, so that it can end a session.",
		}, boolean, func(s *Settings, v bool) { s.affinity.Preserve = v }),
	}
}

// cookieName reads the name of a cookie.
func cookieName(text string) (string, error) {
	if !keyForm.MatchString(text) {
		return "", fault("is not the name of a cookie", "use letters, digits, - and _")
	}
	return text, nil
}

// cookiePathForm leaves out what ends an attribute of a cookie, and what HAProxy
// would expand.
var cookiePathForm = regexp.MustCompile(`^/[A-Za-z0-9/._~-]*$`)

// cookiePath reads the path of a cookie.
func cookiePath(text string) (string, error) {
	if _, err := localPath(text); err != nil {
		return "", err
	}
	if !cookiePathForm.MatchString(text) {
		return "", fault("is not the path of a cookie", "use letters, digits and /-._~")
	}
	return text, nil
}

// cookieDomain reads a domain. Browsers refuse one of a single label.
func cookieDomain(text string) (string, error) {
	if _, err := hostName(text); err != nil || !strings.Contains(text, ".") {
		return "", fault("is not the domain of a cookie", "use a DNS name in lower case with a dot in it, such as shop.example")
	}
	return text, nil
}

// cookiePaths reads a path of cookies, and what takes its place.
func cookiePaths(text string) (policy.Replacement, error) { return replacement(text, cookiePath) }

// cookieDomains reads a domain of cookies, and what it becomes.
func cookieDomains(text string) (policy.Replacement, error) {
	return replacement(text, func(word string) (string, error) { return hostName(strings.TrimPrefix(word, ".")) })
}

// replacement reads two words.
func replacement(text string, read func(string) (string, error)) (policy.Replacement, error) {
	words := strings.Fields(text)
	if len(words) != 2 {
		return policy.Replacement{}, fault("is not two words", "write what is replaced, and what takes its place")
	}
	from, err := read(words[0])
	if err != nil {
		return policy.Replacement{}, faultOf(words[0], err.Error(), "")
	}
	to, err := read(words[1])
	if err != nil {
		return policy.Replacement{}, faultOf(words[1], err.Error(), "")
	}
	return policy.Replacement{From: from, To: to}, nil
}
