package layers

import "strings"

// A rule says which packages may not reach which others. .golangci.yml holds the
// same rules for direct imports.
type rule struct {
	name        string
	from        func(path string) bool // the packages it binds
	never       func(path string) bool // what they may not reach
	exceptTests bool                   // their tests may
	why         string
}

const double = "internal/testing/dataplanetest"

var rules = []rule{
	{
		name:  "the compiler reaches no pusher",
		from:  under("compiler", "cmd/compiler"),
		never: under("pusher", "cmd/pusher"),
		why:   "it writes snapshots and knows no instance",
	},
	{
		name:  "the pusher reaches no compiler",
		from:  under("pusher", "cmd/pusher"),
		never: under("compiler", "cmd/compiler", "templates"),
		why:   "it reads snapshots and never renders",
	},
	{
		name:  "snapshots reaches neither half",
		from:  under("snapshots"),
		never: under("compiler", "pusher", "cmd", "templates"),
		why:   "it is the contract between them",
	},
	{
		name:  "the contract reaches no channel and no binding",
		from:  func(path string) bool { return path == "snapshots" },
		never: func(path string) bool { return under("snapshots/channel")(path) || isBinding(path) },
		why:   "it says what a snapshot is, not which one runs or how",
	},
	{
		name:  "the channel reaches no binding",
		from:  under("snapshots/channel"),
		never: isBinding,
		why:   "which snapshot should run does not depend on live data",
	},
	{
		name:  "the binding reaches no channel",
		from:  under("snapshots/bind"),
		never: under("snapshots/channel"),
		why:   "what an instance gets does not depend on what people say should run",
	},
	{
		name:        "key material reaches nothing of ours",
		from:        under("snapshots/bind/pem", "snapshots/bind/htpasswd"),
		never:       func(string) bool { return true },
		exceptTests: true,
		why:         "the contract and the binding both read it",
	},
	{
		name:  "templates reaches nothing of ours",
		from:  under("templates"),
		never: func(path string) bool { return !under("templates")(path) },
		why:   "templates are data; what reads them is in compiler",
	},
	{
		name:        "no program reaches the double",
		from:        forUse,
		never:       under(double),
		exceptTests: true,
		why:         "the double is for tests and the demo",
	},
	{
		name:        "no program reaches the API server",
		from:        forUse,
		never:       under("internal/testing/kubetest"),
		exceptTests: true,
		why:         "it is for tests",
	},
	{
		name:        "no program is killed on purpose",
		from:        forUse,
		never:       under("internal/testing/killtest"),
		exceptTests: true,
		why:         "it is for tests",
	},
}

// isBinding reports whether a package is the one that binds snapshots, or the users that it
// reads; not what it reads of certificates, which the contract does as well.
func isBinding(path string) bool {
	return path == "snapshots/bind" || under("snapshots/bind/htpasswd")(path)
}

// under reports whether a path is one of the roots or below one.
func under(roots ...string) func(string) bool {
	return func(path string) bool {
		for _, root := range roots {
			if path == root || strings.HasPrefix(path, root+"/") {
				return true
			}
		}
		return false
	}
}

// forUse reports whether a package is neither the demo nor a support of tests,
// which has a path element that ends in "test" or is testscripts.
func forUse(path string) bool {
	if under("examples/demo", "testscripts")(path) {
		return false
	}
	for element := range strings.SplitSeq(path, "/") {
		if strings.HasSuffix(element, "test") {
			return false
		}
	}
	return true
}
