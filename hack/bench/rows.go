package main

import "context"

// row is a row of the table: something that takes time, bytes or memory, and what it is compared with.
type row struct {
	name, what, limit string
	goal              float64 // the ratio to reach; 0: there is none
	unit              unit
	long              bool // it takes many minutes, whatever the size, and is measured once, if it is asked for
	most              int  // the largest size at which it is measured; 0: all
	measure           func(*world, context.Context) (Cell, error)
}

// unit is what the two sides of a row are measured in.
type unit string

const (
	seconds unit = "s"
	bytes   unit = "bytes"
)

const (
	haproxyCheck = "`haproxy -c` on the same bound configuration"
	wholeCheck   = "one full check: bind, our own checks and `haproxy -c`"
	readingYAML  = "a process that reads the same YAML into a tree of nodes"
)

var rows = []row{
	{name: "compile", what: "full compile, from objects in memory to a validated draft", limit: haproxyCheck, goal: 1.8, unit: seconds, measure: (*world).compile},
	{name: "routes", what: "the same of HTTPRoutes", limit: haproxyCheck, goal: 1.8, unit: seconds, measure: (*world).compileRoutes},
	{name: "change", what: "one Ingress changed, to the published snapshot (directory)", limit: haproxyCheck, goal: 1.3, unit: seconds, measure: (*world).changeInDirectory},
	{name: "change-git", what: "one Ingress changed, to the published snapshot (git)", limit: haproxyCheck, goal: 1.3, unit: seconds, measure: (*world).changeInGit},
	{name: "host", what: "a host more on a served Service, to the published snapshot (directory)", limit: haproxyCheck, goal: 1.5, unit: seconds, measure: (*world).hostInDirectory},
	{name: "host-git", what: "a host more on a served Service, to the published snapshot (git)", limit: haproxyCheck, goal: 1.5, unit: seconds, measure: (*world).hostInGit},
	{name: "webhook", what: "verdict of the admission webhook on one Ingress", limit: wholeCheck, goal: 0.4, unit: seconds, measure: (*world).webhook},
	{name: "diff", what: "two worlds that differ by one Ingress compared, in memory", limit: wholeCheck, goal: 0.4, unit: seconds, measure: (*world).diff},
	{name: "faults", what: "objects at fault found: one Ingress of a hundred has a line that HAProxy refuses", limit: wholeCheck, goal: 5, unit: seconds, measure: (*world).faults},
	{name: "git-bytes", what: "a git repository grows by one Ingress changed, before git packs", limit: "the files that changed, compressed", goal: 2, unit: bytes, measure: (*world).gitBytes},
	{name: "git-packed", what: "the same after `git gc`, a tenth of a hundred such changes", limit: "the files that changed, compressed", goal: 2, unit: bytes, most: 10_000, measure: (*world).gitPacked},
	{name: "render", what: "`compiler render` of a folder", limit: readingYAML, goal: 2, unit: seconds, most: 50_000, measure: (*world).render},
	{name: "diff-folders", what: "`compiler diff` of two folders", limit: readingYAML + ", both", goal: 2, unit: seconds, most: 50_000, measure: (*world).diffFolders},
	{name: "explain", what: "`compiler explain` of a line", limit: readingYAML, goal: 2, unit: seconds, most: 50_000, measure: (*world).explain},
	{name: "memory", what: "memory of the compiler at its peak: a full compile and five changes", limit: "a process that holds the same objects", goal: 2, unit: bytes, measure: (*world).memory},
	{name: "history-git", what: "the 5,000th snapshot published to git", limit: "the 10th", goal: 1.1, unit: seconds, long: true, measure: (*world).historyInGit},
	{name: "history-list", what: "a history of 5,000 in git listed", limit: "one second", goal: 1, unit: seconds, long: true, measure: (*world).historyListed},
	{name: "history-directory", what: "the 5,000th snapshot published to a directory", limit: "the 10th", goal: 1.1, unit: seconds, long: true, measure: (*world).historyInDirectory},
}
