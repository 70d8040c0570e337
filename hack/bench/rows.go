package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
)

// row is a row of the table: something that takes time, bytes or memory, and what it is compared with.
type row struct {
	name, what, limit string
	goal              float64 // the ratio to reach; 0: there is none
	unit              unit
	long              bool // it takes many minutes, whatever the size, and is measured once, if it is asked for
	once              bool // it does not depend on the size, and is measured once
	cluster           bool // it takes an API server
	most              int  // the largest size at which it is measured; 0: all
	measure           func(*world, context.Context) (Cell, error)
}

// unit is what the two sides of a row are measured in.
type unit string

const (
	seconds unit = "s"
	bytes   unit = "bytes"
	// requests are a count of those that failed, and of all.
	requests unit = "requests"
)

const (
	haproxyCheck = "`haproxy -c` on the same bound configuration"
	wholeCheck   = "one full check: bind, our own checks and `haproxy -c`"
	oneSecond    = "one second"
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
	{name: "endpoint", what: "an endpoint replaced by another, from the event until the worker has it", limit: "the three calls that this takes, made bare", goal: 1.3, unit: seconds, most: 10_000, measure: shown("endpoint", (*world).endpoints)},
	{name: "endpoint-slow", what: "the slowest of a hundred such changes", limit: "their median", goal: 3, unit: seconds, most: 10_000, measure: shown("endpoint-slow", (*world).endpoints)},
	{name: "endpoints-rate", what: "a thousand endpoints changed in each of five seconds, on three instances: what is left to do then", limit: oneSecond, goal: 1, unit: seconds, most: 10_000, measure: shown("endpoints-rate", (*world).manyEndpoints)},
	{name: "endpoints-storm", what: "every Service has another endpoint at once, on three instances, until all have them", limit: "a millisecond for each", goal: 1, unit: seconds, most: 10_000, measure: shown("endpoints-storm", (*world).manyEndpoints)},
	{name: "endpoints-others", what: "the endpoint of another Service meanwhile, the slowest of them", limit: oneSecond, goal: 1, unit: seconds, most: 10_000, measure: shown("endpoints-others", (*world).manyEndpoints)},
	{name: "push", what: "a push with a reload", limit: "the same post with its reload, made bare", goal: 1.1, unit: seconds, most: 10_000, measure: (*world).push},
	{name: "fleet-rollout", what: "a snapshot rolled out to 1,000 instances without HAProxy in three waves, each of which held", limit: "three reloads of an instance", unit: seconds, once: true, measure: shown("fleet-rollout", (*world).fleet)},
	{name: "fleet-status", what: "an endpoint changed, until the status says that all 1,000 have it", limit: oneSecond, goal: 1, unit: seconds, once: true, measure: shown("fleet-status", (*world).fleet)},
	{name: "fleet-turn", what: "a turn of the pusher of 1,000 instances, on average", limit: "50 ms", goal: 1, unit: seconds, once: true, measure: shown("fleet-turn", (*world).fleet)},
	{name: "fleet-bytes", what: "the status of 1,000 instances, as a ConfigMap has it", limit: "1 MiB", goal: 1, unit: bytes, once: true, measure: shown("fleet-bytes", (*world).fleet)},
	{name: "fleet-memory", what: "memory of the pusher of 1,000 instances at its peak", limit: "500 MB", goal: 1, unit: bytes, once: true, measure: (*world).fleetMemory},
	{name: "pusher-memory", what: "memory of the pusher of 20 instances at its peak, with an EndpointSlice for each Ingress", limit: "200 MB", goal: 1, unit: bytes, most: 10_000, measure: (*world).pusherOfMany},
	{name: "start", what: "a compiler starts with the objects in an API server, to the published snapshot", limit: "lists of Ingresses, Services and Secrets", goal: 1.5, unit: seconds, most: 10_000, cluster: true, measure: (*world).start},
	{name: "host-served", what: "a host more on a served Service, from its write to the API server to the first answer, the slowest of 20 (directory)", limit: "300 ms", goal: 1, unit: seconds, most: 10_000, cluster: true, measure: newHost(inDirectory)},
	{name: "host-served-configmap", what: "the same with the store in ConfigMaps", limit: "300 ms", goal: 1, unit: seconds, most: 10_000, cluster: true, measure: newHost(inConfigMaps)},
	{name: "service-served", what: "a new Service with its host, from the write to the first answer", limit: "`haproxy -c` and a reload", goal: 1.3, unit: seconds, most: 10_000, cluster: true, measure: (*world).newService},
	{name: "changes-under-load", what: "requests that fail while routes change 100 times, on three instances", limit: "the requests", unit: requests, most: 1000, cluster: true, measure: (*world).underLoad},
	{name: "history-configmap", what: "the 5,000th snapshot published to ConfigMaps", limit: "the 10th", goal: 1.1, unit: seconds, long: true, cluster: true, measure: (*world).historyInConfigMaps},
	{name: "history-git", what: "the 5,000th snapshot published to git", limit: "the 10th", goal: 1.1, unit: seconds, long: true, measure: (*world).historyInGit},
	{name: "history-list", what: "a history of 5,000 in git listed", limit: oneSecond, goal: 1, unit: seconds, long: true, measure: (*world).historyListed},
	{name: "history-directory", what: "the 5,000th snapshot published to a directory", limit: "the 10th", goal: 1.1, unit: seconds, long: true, measure: (*world).historyInDirectory},
}

// showing are cells that were measured together, by the names of their rows.
type showing map[string]Cell

// shown measures a row together with others, unless that was done for another of them.
func shown(name string, measure func(*world, context.Context) (showing, error)) func(*world, context.Context) (Cell, error) {
	return func(w *world, ctx context.Context) (Cell, error) {
		if c, ok := w.showing[name]; ok {
			return c, nil
		}
		cells, err := measure(w, ctx)
		if w.showing == nil {
			w.showing = showing{}
		}
		maps.Copy(w.showing, cells)
		return w.showing[name], err
	}
}

func inDirectory(w *world) string { return "dir:" + filepath.Join(w.dir, fmt.Sprint("hosts-", w.n)) }

func inConfigMaps(*world) string { return "configmap:default/edge" }
