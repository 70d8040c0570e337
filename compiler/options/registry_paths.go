package options

// pathOptions say how the paths of requests are compared with those of rules.
func pathOptions() []Option {
	const oldest = " The oldest Ingress with a host says it for the host."
	return []Option{
		define(Option{
			Name: "normalize-paths", Group: Routing, On: OnIngress, Matches: true, Value: valueBool, Example: "false", Default: "`paths.normalize` of the configuration",
			Summary: "Compares paths in a form in which `/admin`, `//admin` and `/%61dmin` are one: see [paths](paths.md). Servers get the path as it came." + oldest,
		}, boolean, func(s *Settings, v bool) { s.Paths.Normalize = &v }),
		define(Option{
			Name: "unsafe-paths", Group: Routing, On: OnIngress, Matches: true, Value: "`reject` or `pass`", Example: "pass", Default: "`paths.unsafe` of the configuration",
			Summary: "What becomes of requests whose path servers read in different ways, such as `/admin%2f`, where this Ingress [protects](paths.md) something: `reject` answers 400 on its hosts, `pass` does not.",
		}, oneOf(words("reject", "pass")), func(s *Settings, v string) { s.Paths.Unsafe = v }),
		define(Option{
			Name: "path-parameters", Group: Routing, On: OnIngress, Matches: true, Value: "`reject`, `ignore` or `match`", Example: "ignore", Default: "`paths.parameters` of the configuration",
			Summary: "What `;` in a path means. `reject` makes such a path an unsafe one, `ignore` compares paths without their parameters, as servers of Java do, and `match` takes it for a character like others. Whether parameters are ignored is said by the oldest Ingress with a host; whether they are rejected, by each that protects something.",
		}, oneOf(words("reject", "ignore", "match")), func(s *Settings, v string) { s.Paths.Parameters = v }),
	}
}

// Paths are what the options say of how paths are compared; what they do not say is zero.
type Paths struct {
	Normalize          *bool
	Unsafe, Parameters string
}

// words are the values of an option that stand for themselves.
func words(values ...string) map[string]string {
	out := map[string]string{}
	for _, v := range values {
		out[v] = v
	}
	return out
}
