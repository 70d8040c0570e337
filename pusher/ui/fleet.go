package ui

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// fleetTab is the tab of the fleet, and the page of each instance.
func fleetTab() tab {
	return tab{
		path: "/", title: "Fleet",
		pages: []page{{
			path: "/{$}", title: titled("Fleet"), live: true, data: func(ctx context.Context, q query) (any, error) { return fleetOf(ctx, q), nil },
			parts: []part{{"fleet-trouble", "wide trouble"}, {"fleet-cells", ""}, {"fleet-acts", ""}, {"fleet-rollout", ""}, {"fleet-gate", ""}},
		}, {
			path: "/instances/{name}", title: func(data any) string { return data.(cell).Name }, live: true, data: instanceOf, //nolint:forcetypeassert // see instanceOf
			parts: []part{{"instance", ""}, {"instance-budget", ""}, {"instance-trouble", "wide"}, {"instance-pushes", "wide"}},
		}},
		apis: []api{{
			path: "status", summary: "What should run, what runs, and what is wrong: what pusher status -o json prints", example: report.Status{},
			data: func(_ context.Context, q query) (any, error) { return q.fleet.Status, nil },
		}, {
			path: "instances", summary: "The instances of the fleet, those first that need attention", example: instanceList{},
			params: []param{{"zone", "only those of this zone"}, {"state", "only those in this state: " + strings.Join(cellStates, ", ")}, {"name", "only those whose name contains this"}, {"page", "from 1; a page has 200"}},
			data: func(_ context.Context, q query) (any, error) {
				cells := cellsOf(q)
				return instanceList{Total: len(cells), Pages: pagesOf(len(cells), cellsPerPage), Items: cut(cells, q.page(), cellsPerPage)}, nil
			},
		}, {
			path: "instances/{name}", summary: "One instance", example: cell{}, data: instanceOf,
		}, {
			path: "rollout", summary: "The rollout that is going on, its waves and what its gate compares", example: rolloutView{},
			data: func(_ context.Context, q query) (any, error) { return rolloutOf(q), nil },
		}},
	}
}

// instanceList is a page of instances.
type instanceList struct {
	Total int    `json:"total"`
	Pages int    `json:"pages"`
	Items []cell `json:"items"`
}

// cell is an instance in the map of the fleet.
type cell struct {
	report.Instance
	// State is one of the states below.
	State string        `json:"state"`
	Live  *LiveInstance `json:"live,omitempty"`
	fleet Fleet
}

// The states of a cell, the worst first.
const (
	stateUnreachable = "unreachable"
	stateRefused     = "refused"
	stateDenied      = "wrong credentials"
	stateConflict    = "conflict"
	stateOtherLeader = "led by another"
	stateError       = "error"
	statePushing     = "pushing"
	stateSoaking     = "soaking"
	stateUpdating    = "updating"
	stateWaiting     = "waiting"
	stateDraining    = "draining"
	stateInSync      = "in sync"
)

var cellStates = []string{
	stateUnreachable, stateRefused, stateDenied, stateConflict, stateOtherLeader, stateError, statePushing, stateSoaking, stateUpdating, stateWaiting, stateDraining, stateInSync,
}

// stateOf returns the state of an instance.
func stateOf(i report.Instance, s report.Status, soaking map[string]bool) string {
	target := s.Channel.Wanted
	if s.Rollout != nil {
		target = s.Rollout.Target
	}
	switch {
	case i.Refused:
		return stateRefused
	case i.Denied:
		return stateDenied
	case i.Unasked():
		return stateWaiting
	case !i.Reachable:
		return stateUnreachable
	case i.LedBy != "":
		return stateOtherLeader
	case i.Conflict != nil:
		return stateConflict
	case i.Error != "":
		return stateError
	case soaking[i.Name] && i.Running == target:
		return stateSoaking
	case i.InSync:
		return stateInSync
	case i.Doing == "push":
		return statePushing
	case i.Running == target && !target.IsZero():
		return stateUpdating
	}
	return stateWaiting
}

// Rank is the index among the states. 0 is the worst.
func (c cell) Rank() int { return slices.Index(cellStates, c.State) }

// Class and Mark are how the cell looks. The mark shows without colours what the class shows with them.
func (c cell) Class() string {
	switch r := c.Rank(); {
	case r <= slices.Index(cellStates, stateError):
		return "bad"
	case r <= slices.Index(cellStates, stateUpdating):
		return "run"
	case c.State == stateInSync:
		return "ok"
	}
	return ""
}

func (c cell) Mark() string {
	return map[string]string{"bad": "▲", "run": "▣", "ok": "■", "": "□"}[c.Class()]
}

// Says is the text below the name.
func (c cell) Says() string {
	if c.State == stateInSync || c.State == stateWaiting {
		return cmp.Or(short(c.Running), "other", c.State)
	}
	return c.State
}

// fewInstances is the largest fleet that is shown by zone and name. In larger fleets, instances that need attention
// come first.
const fewInstances, cellsPerPage = 60, 200

// allCells returns the instances of a status. Instances that drain come last.
func allCells(f Fleet) []cell {
	soaking := map[string]bool{}
	if r := f.Status.Rollout; r != nil && r.Phase == rollout.Soaking {
		for _, name := range r.Members {
			soaking[name] = true
		}
	}
	out := make([]cell, 0, len(f.Status.Instances)+len(f.Status.Draining))
	add := func(i report.Instance, state string) {
		c := cell{Instance: i, State: state, fleet: f}
		if f.Live != nil {
			if l, ok := f.Live.Instances[i.Name]; ok {
				c.Live = &l
			}
		}
		out = append(out, c)
	}
	for _, i := range f.Status.Instances {
		add(i, stateOf(i, f.Status, soaking))
	}
	for _, i := range f.Status.Draining {
		add(i, stateDraining)
	}
	return out
}

// cellsOf returns the instances that a query asks for, in their order.
func cellsOf(q query) []cell {
	all := allCells(q.fleet)
	zone, state, name := q.values.Get("zone"), q.values.Get("state"), strings.ToLower(q.values.Get("name"))
	many := len(all) > fewInstances
	out := slices.DeleteFunc(all, func(c cell) bool {
		return q.values.Has("zone") && zone != "" && c.Zone != zone || state != "" && c.State != state || !strings.Contains(strings.ToLower(c.Name), name)
	})
	slices.SortStableFunc(out, func(a, b cell) int {
		worst := 0
		if many {
			worst = cmp.Compare(a.Rank(), b.Rank())
		}
		return cmp.Or(worst, cmp.Compare(a.Zone, b.Zone), natural(a.Name, b.Name))
	})
	return out
}

// natural compares names with their numbers as numbers: edge-2 comes before edge-10.
func natural(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	digits := func(s string) string {
		from := strings.LastIndexFunc(s[:n], func(r rune) bool { return r < '0' || r > '9' }) + 1
		to := strings.IndexFunc(s[n:], func(r rune) bool { return r < '0' || r > '9' })
		if to < 0 {
			return s[from:]
		}
		return s[from : n+to]
	}
	if x, errX := strconv.ParseUint(digits(a), 10, 64); errX == nil {
		if y, errY := strconv.ParseUint(digits(b), 10, 64); errY == nil && x != y {
			return cmp.Compare(x, y)
		}
	}
	return cmp.Compare(a, b)
}

func boolTo(b bool) int {
	if b {
		return 1
	}
	return 0
}

func pagesOf(n, size int) int { return max(1, (n+size-1)/size) }

// cut returns a page of a list.
func cut[T any](list []T, page, size int) []T {
	page = min(page, pagesOf(len(list), size))
	return slices.Clip(list[min((page-1)*size, len(list)):min(page*size, len(list))])
}

// zone is a part of the map of the fleet.
type zone struct {
	Name          string
	InSync, Total int // of all instances, also those that are not shown
	Cells         []cell
}

// fleetView is what the page of the fleet shows.
type fleetView struct {
	Fleet
	Total, Matching, Page, Pages int
	Zones                        []zone
	States                       []string // for the choice of a state
	ZoneNames                    []string
	Zone, State, Name            string // as the query has them
	Counts                       []stateCount
	Rollout                      rolloutView
	Acts                         timeline
	ActsTrouble                  string
	Rejected                     []rollout.Failure
	Last                         *report.Change // the change that led to what runs, if it is known
	Previous                     snapshots.ID   // what the fleet ran before
	Closed                       []routeRow     // the first routes without a server; none while they are being read
	ClosedHosts, ClosedRoutes    int            // of all routes without a server
}

// stateCount is how many instances are in a state.
type stateCount struct {
	State string
	Count int
}

// fleetPatience is how long the page of the fleet waits for the store. The page can do without the store.
const fleetPatience = time.Second

func fleetOf(ctx context.Context, q query) fleetView {
	all, cells := allCells(q.fleet), cellsOf(q)
	v := fleetView{
		Fleet: q.fleet, Total: len(q.fleet.Status.Instances), Matching: len(cells), Page: min(q.page(), pagesOf(len(cells), cellsPerPage)), Pages: pagesOf(len(cells), cellsPerPage),
		Zone: q.values.Get("zone"), State: q.values.Get("state"), Name: q.values.Get("name"), Rollout: rolloutOf(q),
	}
	counts, inSync, total := map[string]int{}, map[string]int{}, map[string]int{}
	for _, c := range all {
		counts[c.State]++
		if c.State != stateDraining {
			total[c.Zone]++
			inSync[c.Zone] += boolTo(c.InSync)
		}
	}
	for _, state := range cellStates {
		if counts[state] > 0 {
			v.Counts = append(v.Counts, stateCount{state, counts[state]})
		}
	}
	for name := range total {
		v.ZoneNames = append(v.ZoneNames, name)
	}
	slices.Sort(v.ZoneNames)
	shown := cut(cells, q.page(), cellsPerPage)
	slices.SortStableFunc(shown, func(a, b cell) int { return cmp.Compare(a.Zone, b.Zone) })
	for _, c := range shown {
		if n := len(v.Zones); n == 0 || v.Zones[n-1].Name != c.Zone {
			v.Zones = append(v.Zones, zone{Name: c.Zone, InSync: inSync[c.Zone], Total: total[c.Zone]})
		}
		last := &v.Zones[len(v.Zones)-1]
		last.Cells = append(last.Cells, c)
	}
	s := q.fleet.Status
	for _, f := range s.Rejected {
		if s.Good.IsZero() || f.Snapshot.Compare(s.Good) > 0 || f.Snapshot == s.Channel.Wanted {
			v.Rejected = append(v.Rejected, f)
		}
	}
	if c, ok := s.ChangeTo(s.Good); ok {
		v.Last = &c
	}
	for _, id := range slices.Backward(s.Proven) {
		if id.Short != s.Good.Short {
			v.Previous = id
			break
		}
	}
	const latest = 6
	soon, cancel := context.WithTimeout(ctx, fleetPatience)
	defer cancel()
	l := q.archive.listing(soon)
	if v.Acts = timelineOf(context.WithValue(ctx, nowait{}, true), q.archive, l, latest); l.err != nil {
		v.ActsTrouble = report.FirstLine(l.err.Error(), report.LongestMessage)
	}
	v.closed(q, l)
	return v
}

// mostClosed is how many routes without a server are named.
const mostClosed = 6

// closed finds the routes that no server serves. It names hosts, as people know those better than backends.
func (v *fleetView) closed(q query, l listing) {
	if b := v.Status.Backends; b == nil || b.Empty == 0 {
		return
	}
	runs := v.Status.Good
	if runs.IsZero() || !slices.Contains(l.view.IDs, runs) {
		return
	}
	read, err := q.archive.routes(withoutWaiting(), runs)
	if err != nil { // it is read for the next time
		return
	}
	by, hosts := q.servedBy(read, chosen{ID: runs, Now: true}), map[string]bool{}
	for i := range read.table.Routes {
		r := &read.table.Routes[i]
		if !by.empty(r) {
			continue
		}
		hosts[r.Host] = true
		if v.ClosedRoutes++; len(v.Closed) < mostClosed {
			v.Closed = append(v.Closed, by.row(r, q.now))
		}
	}
	v.ClosedHosts = len(hosts)
}

// ByHand returns the reason of the channel's decision, such as pin.
func (v fleetView) ByHand() string { return string(v.Status.Channel.Because) }

// rolloutView is a rollout with its waves.
type rolloutView struct {
	*report.Rollout
	Waves []wave           `json:"waves,omitempty"`
	Gate  *rollout.Figures `json:"gate,omitempty"`
	Soak  float64          `json:"soak,omitempty"` // in seconds
	Waits []rollout.Wait   `json:"waits,omitempty"`
	// Reached is how many instances run the target.
	Reached   int `json:"reached"`
	Instances int `json:"instances"`
}

// wave is one wave of a rollout, with its progress.
type wave struct {
	Number int    `json:"number"`
	Size   string `json:"size,omitempty"`
	// State is done, pushing, soaking, undoing or waits.
	State string `json:"state"`
	// Reached of Instances run the target. Instances is 0 if it is not known yet.
	Reached   int      `json:"reached"`
	Instances int      `json:"instances,omitempty"`
	Members   []string `json:"members,omitempty"`
}

func rolloutOf(q query) rolloutView {
	s := q.fleet.Status
	v := rolloutView{Rollout: s.Rollout, Waits: s.Waits, Instances: len(s.Instances)}
	if s.Rollout == nil {
		return v
	}
	for _, i := range s.Instances {
		v.Reached += boolTo(i.Reachable && i.Running == s.Rollout.Target)
	}
	var sizes []rollout.WaveSize
	if live := q.fleet.Live; live != nil {
		sizes, v.Gate, v.Soak = live.Waves, live.Gate, live.Soak.Seconds()
	}
	for n := range max(len(sizes), s.Rollout.Wave) {
		w := wave{Number: n + 1, State: "waits"}
		if n < len(sizes) {
			w.Size, w.Instances = sizes[n].Size, sizes[n].Instances
		}
		switch {
		case w.Number < s.Rollout.Wave:
			w.State, w.Reached = "done", cmp.Or(w.Instances, v.Reached)
		case w.Number == s.Rollout.Wave:
			w.State, w.Members, w.Reached = string(s.Rollout.Phase), s.Rollout.Members, v.Reached
			if w.Instances == 0 {
				w.Instances = v.Instances
			}
		}
		w.Reached = min(w.Reached, cmp.Or(w.Instances, w.Reached))
		v.Waves = append(v.Waves, w)
	}
	return v
}

// Reloads reports whether the rollout takes a reload.
func (v rolloutView) Reloads() bool { return v.Change != nil && v.Change.Class == bind.Reload }

// Because is the line that decides the class of the change, "" if it is not known.
func (v rolloutView) Because() string {
	if v.Change == nil {
		return ""
	}
	return v.Change.Because()
}

// WaitsFor returns the causes of waiting, with the instances that wait.
func (v rolloutView) WaitsFor() []waited {
	var out []waited
	for _, w := range v.Waits {
		i := slices.IndexFunc(out, func(o waited) bool { return o.For == w.For && o.Until.Equal(w.Until) })
		if i < 0 {
			out = append(out, waited{For: w.For, Until: w.Until})
			i = len(out) - 1
		}
		if w.Instance != "" {
			out[i].Who = append(out[i].Who, w.Instance)
		}
	}
	return out
}

// waited is a cause of waiting, with the instances that wait for it.
type waited struct {
	For   string
	Until time.Time
	Who   []string
}

// Names are the first of the waiting instances.
func (w waited) Names() string {
	const most = 6
	if more := len(w.Who) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(w.Who[:most], " "), more)
	}
	return strings.Join(w.Who, " ")
}

// percent formats a share.
func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + " %" }

func instanceOf(_ context.Context, q query) (any, error) {
	name := q.path("name")
	all := allCells(q.fleet)
	if i := slices.IndexFunc(all, func(c cell) bool { return c.Name == name }); i >= 0 {
		return all[i], nil
	}
	hint := "It may have left the fleet."
	if omitted := q.fleet.Status.Omitted; omitted > 0 {
		hint = fmt.Sprintf("The status that the pusher publishes leaves out %d healthy instances, and this may be one of them. The page of the pusher itself has all.", omitted)
	}
	return nil, notFound("The fleet has no instance "+name+".", hint)
}

// Good is the last snapshot that reached the whole fleet.
func (c cell) Good() snapshots.ID { return c.fleet.Status.Good }

// HasLive reports whether the page knows what a running pusher knows.
func (c cell) HasLive() bool { return c.fleet.Live != nil }

// Wants is the snapshot that the instance should run.
func (c cell) Wants() snapshots.ID { return c.fleet.Status.Channel.Wanted }

// Waits returns what the instance waits for.
func (c cell) Waits() []rollout.Wait {
	return slices.DeleteFunc(slices.Clone(c.fleet.Status.Waits), func(w rollout.Wait) bool { return w.Instance != c.Name })
}

// FleetReloads is how many reloads the fleet may begin at once, -1 without a limit.
func (c cell) FleetReloads() int {
	if c.fleet.Live == nil || !c.fleet.Live.Budget.Limited {
		return -1
	}
	return c.fleet.Live.Budget.Fleet
}
