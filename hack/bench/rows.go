package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
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
	measure           func(context.Context, *world) (Cell, error)
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

// rows are all of them, in the order of the table.
var rows = slices.Concat(compileRows, storeRows, programRows, endpointRows, pushRows, fleetRows, requestRows, clusterRows, historyRows, manyRows)

// showing are cells that were measured together, by the names of their rows.
type showing map[string]Cell

// shown measures a row together with others, unless that was done for another of them.
func shown(name string, measure func(context.Context, *world) (showing, error)) func(context.Context, *world) (Cell, error) {
	return func(ctx context.Context, w *world) (Cell, error) {
		if c, ok := w.showing[name]; ok {
			return c, nil
		}
		cells, err := measure(ctx, w)
		if w.showing == nil {
			w.showing = showing{}
		}
		maps.Copy(w.showing, cells)
		return w.showing[name], err
	}
}

func inDirectory(w *world) string { return "dir:" + filepath.Join(w.dir, fmt.Sprint("hosts-", w.n)) }

func inConfigMaps(*world) string { return "configmap:default/edge" }
