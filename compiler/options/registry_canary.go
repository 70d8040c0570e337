package options

import "strings"

// Canary is how an Ingress shares the routes of another one.
type Canary struct {
	// Weight is how many requests of a hundred it gets; nil: weight decides of
	// none.
	Weight *int
	// Header and Cookie are by what a request says whether it gets it.
	Header HeaderRule
	Cookie string
}

// HeaderRule names a header and the value that leads to the canary. Without a
// value, "always" does so, and "never" leads away from it. With a Pattern, values that match it
// lead to the canary, and nothing else in the header decides.
type HeaderRule struct{ Name, Value, Pattern string }

// canaryOption is the option that makes an Ingress a canary.
const canaryOption = "canary"

// IsCanary reports whether annotations mean to share the routes of another
// Ingress, and not to claim them. What cannot be read as a denial is one, for the
// error must not take the routes of others.
func IsCanary(annotations map[string]string) bool {
	text, there := annotations[Prefix+canaryOption]
	return there && text != "false"
}

// canaryOptions share out the requests of a route.
func canaryOptions() []Option {
	return []Option{
		define(Option{
			Name: canaryOption, Group: Splitting, On: OnIngress, Own: true, Matches: true, Value: valueBool, Example: "true", Default: "`false`",
			Summary: "Makes the Ingress a canary: with another Ingress of its namespace, it shares the routes that have the same host, path and pathType, and has none of its own. The other's options hold for its requests, protection above all; options of its own do not count, and one that protects something keeps it from being used, as do options of its Service that the other does not have. Its `tls` and `defaultBackend` are not read. Of several canaries of a route, the oldest is used. While its Service has no usable endpoint, the other Ingress gets all.",
		}, boolean, func(*Settings, bool) {}),
		define(Option{
			Name: "canary-weight", Group: Splitting, On: OnIngress, Own: true, Matches: true, Needs: canaryOption, Value: "a number from 0 to 100", Example: "10",
			Summary: "How many of a hundred requests the canary gets of those for which neither header nor cookie decides. The rest goes to the other Ingress's Service; while that has no usable endpoint, the canary gets all, unless its weight is 0. With 100 the other gets none, whatever becomes of the canary. With `balance` `random`, or one that goes by a hash, the weight holds about, of a hash for its values. `balance` `leastconn` and `first` know no weights: `random` prefers endpoints with few connections too.",
		}, number(0, 100), func(s *Settings, v int) { s.Canary.Weight = &v }),
		define(Option{
			Name: "canary-by-header", Group: Splitting, On: OnIngress, Own: true, Matches: true, Needs: canaryOption, Value: "a name, or a name and a value, as `NAME VALUE` or `NAME=VALUE`", Example: "X-Canary",
			Summary: "The header that decides first: requests in which it is `always` go to the canary, and with `never` they do not. With a value, exactly that goes to the canary, and nothing else decides.",
		}, headerRule, func(s *Settings, v HeaderRule) { s.Canary.Header.Name, s.Canary.Header.Value = v.Name, v.Value }),
		define(Option{
			Name: "canary-by-header-pattern", Group: Splitting, On: OnIngress, Own: true, Matches: true, Needs: canaryOption, Value: "a regular expression", Example: "^beta-[0-9]+$",
			Summary: "Requests whose header `canary-by-header`, in its first 1024 bytes, matches this expression (a part of [PCRE](expressions.md)) go to the canary; whether they do is up to nothing else in the header. A value beside the header's name comes first, and the expression does not count then.",
		}, func(text string) (string, error) { _, err := groupsOf(text); return text, err }, func(s *Settings, v string) { s.Canary.Header.Pattern = v }),
		define(Option{
			Name: "canary-by-cookie", Group: Splitting, On: OnIngress, Own: true, Matches: true, Needs: canaryOption, Value: "the name of a cookie", Example: "canary",
			Summary: "The cookie that decides where the header does not: `always` goes to the canary, `never` does not.",
		}, cookieName, func(s *Settings, v string) { s.Canary.Cookie = v }),
	}
}

// headerRule reads a name and perhaps a value.
func headerRule(text string) (HeaderRule, error) {
	name, value, _ := strings.Cut(text, " ")
	if before, after, both := strings.Cut(name, "="); both && value == "" {
		name, value = before, after
	}
	r := HeaderRule{Name: name, Value: strings.TrimSpace(value)}
	switch {
	case !keyForm.MatchString(r.Name):
		return r, faultOf(name, "is not the name of a header", "use letters, digits and -")
	case r.Name == text:
		return r, nil
	case !headerValueForm.MatchString(r.Value):
		return r, faultOf(r.Value, "is not a value that can be compared", "use letters, digits and -._~:/@+=,;*")
	}
	return r, nil
}
