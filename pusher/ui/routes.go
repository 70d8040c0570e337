package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/routetable"
)

// routesTab is the tab that answers who serves a request, and lists all hosts and paths.
func routesTab() tab {
	list := []param{
		{"q", "words that a route has in its host, path, conditions, Services or options"}, {"only", "empty: without a server; errors: with answers of 5xx"},
		{"sort", "host, path, service, expiry, rate or errors; with a - before it the other way round"}, {"page", "from 1"}, {"snapshot", snapshotAbout},
	}
	return tab{
		path: "/routes", title: "Routes",
		pages: []page{{path: "/routes", title: titled("Routes"), live: true, data: routesData, parts: []part{{"routes-ask", "wide"}, {"routes-list", "wide"}}}},
		apis: []api{
			{path: "routes", summary: "All hosts and paths, page by page", example: routeList{}, params: list, data: routesJSON},
			{path: "answer", summary: "Who answers a request, and why", example: answered{}, data: answerJSON, params: []param{
				{"method", "such as GET"}, {"scheme", "http or https"}, {"host", "a name or an address, with a port if it is not the usual one"}, {"path", "with the query"},
				{"headers", "NAME=VALUE, each on a line"}, {"client", "the IP address of the client"}, {"snapshot", snapshotAbout},
			}},
		},
	}
}

// routesPage is what the tab shows.
type routesPage struct {
	Form    askForm
	Asked   bool
	Answer  *answered
	Problem map[string]string // why there is no answer, or no list
	List    *routeList
}

func routesData(ctx context.Context, q query) (any, error) {
	p := routesPage{Form: askFormOf(q.values), Asked: q.values.Get("host") != ""}
	of, err := choose(ctx, q, p.Form.Snapshot)
	if err == nil {
		p.List, err = q.list(ctx, of)
	}
	if err == nil && p.Asked {
		p.Answer, err = q.answer(ctx, p.Form, of)
	}
	if errors.Is(err, errNotRead) {
		return nil, err
	}
	if err != nil {
		says := problemOf(err)
		p.Problem = map[string]string{"Text": says.text, "Hint": says.hint}
	}
	return p, nil
}

func routesJSON(ctx context.Context, q query) (any, error) {
	of, err := choose(ctx, q, q.values.Get("snapshot"))
	if err != nil {
		return nil, err
	}
	return q.list(ctx, of)
}

func answerJSON(ctx context.Context, q query) (any, error) {
	f := askFormOf(q.values)
	of, err := choose(ctx, q, f.Snapshot)
	if err != nil {
		return nil, err
	}
	return q.answer(ctx, f, of)
}

// routeList is a page of the list of routes.
type routeList struct {
	Of     chosen     `json:"of"`
	Hosts  int        `json:"hosts"`
	Paths  int        `json:"paths"`
	Found  int        `json:"found"`
	Page   int        `json:"page"`
	Pages  int        `json:"pages"`
	Routes []routeRow `json:"routes"`
	// Unread is how many lines of maps this version cannot read.
	Unread int `json:"unread,omitempty"`

	Q        string `json:"-"`
	Only     string `json:"-"`
	Sort     string `json:"-"`
	Snapshot string `json:"-"`
	Counted  bool   `json:"-"` // set if requests and errors are counted
	Objects  bool   `json:"-"` // set if a compiler tells which objects wrote the lines
	// NoOrigins says why the objects are not known, "" if they are or if no compiler is configured.
	NoOrigins string `json:"noOrigins,omitempty"`
}

// routeRow is a row of the list.
type routeRow struct {
	Host        string   `json:"host"` // "" is every host
	URL         string   `json:"url,omitempty"`
	Path        string   `json:"path,omitempty"`
	Kind        string   `json:"kind"`
	When        []string `json:"when,omitempty"`
	Listener    string   `json:"listener,omitempty"` // the port of a Gateway's listener, "" for other routes
	Ports       []string `json:"ports"`
	To          []to     `json:"to"`
	Certificate string   `json:"certificate,omitempty"` // its Secret
	NotAfter    string   `json:"notAfter,omitempty"`
	Line        string   `json:"line"`
	// Traffic is the traffic of the route's backends. It includes their other routes. It is nil if nothing is
	// counted.
	Traffic *observe.Traffic `json:"traffic,omitempty"`
	// Origins are the objects and fields that wrote the line, if a compiler tells them.
	Origins []Origin `json:"origins,omitempty"`

	Expiry, ExpiryClass string `json:"-"`
	Fallback            bool   `json:"-"` // clients get the default certificate
	Repeats             bool   `json:"-"` // the row before is about the same host
}

// to is a backend to which a route leads.
type to struct {
	Backend  string   `json:"backend"`
	Services []string `json:"services,omitempty"`
	Share    int      `json:"weight"`
	// Servers is how many servers there are, -1 if it is not known. NoneUp is set if none of them is up.
	Servers int  `json:"servers"`
	NoneUp  bool `json:"noneUp,omitempty"`
	// Up is how many servers get requests, as the workers said last. It is nil if none was asked.
	Up      *upCount `json:"up,omitempty"`
	Options int      `json:"options"`
}

// upCount is how many servers of a backend get requests: on the asked instance with the fewest, and on the one with
// the most.
type upCount struct {
	Fewest    int `json:"fewest"`
	Most      int `json:"most"`
	Instances int `json:"instances"`
}

// State summarizes the servers.
func (t to) State() string {
	switch {
	case t.Servers == 0:
		return "▲ no server"
	case t.NoneUp && t.Servers > 0:
		return fmt.Sprintf("▲ 0 / %d up", t.Servers)
	case t.NoneUp:
		return "▲ none up"
	case t.Up != nil && t.Servers > 0 && t.fewest() < t.most():
		return fmt.Sprintf("%d–%d / %d up", t.fewest(), t.most(), t.Servers)
	case t.Up != nil && t.Servers > 0:
		return fmt.Sprintf("%d / %d up", t.fewest(), t.Servers)
	case t.Servers > 0:
		return strconv.Itoa(t.Servers)
	}
	return "–"
}

// fewest and most limit the counts to the present endpoints: endpoints may have gone since the workers were asked.
func (t to) fewest() int { return min(t.Up.Fewest, t.Servers) }
func (t to) most() int   { return min(t.Up.Most, t.Servers) }

// Bad reports whether the backend can serve no request.
func (t to) Bad() bool { return t.NoneUp || t.Servers == 0 }

// Class is the class of the state in the style sheet.
func (t to) Class() string {
	switch {
	case t.Bad():
		return "down"
	case t.Up != nil && t.Servers > 0 && t.fewest() == t.Servers:
		return "up"
	}
	return ""
}

// pageSize is how many routes a page has.
const pageSize = 100

func (q query) list(ctx context.Context, of chosen) (*routeList, error) {
	read, err := q.archive.routes(ctx, of.ID)
	if err != nil {
		return nil, err
	}
	if n := len(routetable.Words(q.values.Get("q"))); n > maxWords {
		return nil, problem{http.StatusBadRequest, fmt.Sprintf("%d words are too many to search for.", n), fmt.Sprintf("Write %d words or fewer.", maxWords)}
	}
	done, err := q.think(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	table := read.table
	v := q.servedBy(read, of)
	page, _ := strconv.Atoi(q.values.Get("page"))
	out := &routeList{
		Of: of, Hosts: table.Hosts, Paths: len(table.Routes), Unread: table.Unread, Counted: v.counted != nil, Objects: q.lines != nil, Routes: []routeRow{},
		Q: q.values.Get("q"), Only: q.values.Get("only"), Sort: q.values.Get("sort"), Snapshot: q.values.Get("snapshot"),
	}
	query := routetable.Query{Text: out.Q, Page: page, Size: pageSize, Less: v.order(out.Sort)}
	switch out.Only {
	case "empty":
		query.Keep = v.empty
	case "errors":
		query.Keep = func(r *routetable.Route) bool { return v.traffic(r).Errors > 0 }
	default:
		out.Only = ""
	}
	found := table.Select(query)
	var lines written
	out.Found, out.Page, out.Pages = found.Found, found.Page, found.Pages
	for i, r := range found.Routes {
		row := v.row(r, q.now)
		row.Repeats = i > 0 && found.Routes[i-1].Host == r.Host && row.Host != ""
		out.Routes = append(out.Routes, row)
		lines.add(r.File, r.Line, r.Text)
	}
	by, asking, why := lines.origins(ctx, q)
	for i := range out.Routes {
		out.Routes[i].Origins = by[i]
	}
	out.NoOrigins = noOrigins(asking, why)
	return out, nil
}

// Writers are the first objects that wrote the line, each once, and how many more there are.
func (r routeRow) Writers() (out struct {
	First []Origin
	More  int
}) {
	seen := map[string]bool{}
	for _, o := range r.Origins {
		if name := o.Object(); !seen[name] {
			seen[name] = true
			if len(out.First) < mostWriters {
				out.First = append(out.First, o)
			} else {
				out.More++
			}
		}
	}
	return out
}

// mostWriters is how many objects of a line are shown.
const mostWriters = 3

// served is what is known about servers, traffic and certificates.
type served struct {
	noneUp    map[string]bool
	endpoints map[snapshots.ServicePort][]snapshots.Endpoint // nil if they are not known
	counted   map[string]observe.Traffic                     // nil if nothing is counted
	up        []rollout.ServersUp                            // of each instance that was asked
	ends      map[snapshots.SecretName]time.Time             // expiry of the certificates in Secrets
}

func (q query) servedBy(s readSnapshot, of chosen) served {
	v := served{}
	v.endpoints, _ = q.endpointsOf(s, of.Now)
	if !of.Now {
		return v
	}
	v.noneUp = q.noneUp()
	if q.fleet.Live != nil {
		v.counted, v.ends, v.up = q.fleet.Live.Traffic, q.fleet.Live.CertificateEnds, q.fleet.Live.Up
	}
	return v
}

// servers returns how many servers of a backend are not draining, -1 if it is not known.
func (v served) servers(b *routetable.Backend) int {
	if len(b.Services) > 0 && v.endpoints == nil {
		return -1
	}
	n := b.Fixed
	for _, s := range b.Services {
		for _, e := range v.endpoints[s.ServicePort] {
			n += boolTo(!e.Draining)
		}
	}
	return n
}

// upIn returns how many servers of a backend are up, nil if no worker with that backend was asked.
func (v served) upIn(backend string) *upCount {
	var out *upCount
	for _, of := range v.up {
		n, known := of.Of(backend)
		switch {
		case !known:
		case out == nil:
			out = &upCount{n, n, 1}
		default:
			out.Fewest, out.Most, out.Instances = min(out.Fewest, n), max(out.Most, n), out.Instances+1
		}
	}
	return out
}

// empty reports whether a route leads to Services of which none can serve.
func (v served) empty(r *routetable.Route) bool {
	return len(r.Shares) > 0 && !slices.ContainsFunc(r.Shares, func(s routetable.Share) bool {
		return len(s.Backend.Services) == 0 || !v.noneUp[s.Backend.Name] && v.servers(s.Backend) != 0
	})
}

// traffic is the traffic of the route's backends. It includes their other routes.
func (v served) traffic(r *routetable.Route) (sum observe.Traffic) {
	for _, s := range r.Shares {
		t := v.counted[s.Backend.Name]
		sum.Rate, sum.ErrorRate, sum.Errors = sum.Rate+t.Rate, sum.ErrorRate+t.ErrorRate, sum.Errors+t.Errors
	}
	return sum
}

// order returns the comparison for a sort order, nil for the order of the table.
func (v served) order(by string) func(a, b *routetable.Route) int {
	by, down := strings.CutPrefix(by, "-")
	var less func(a, b *routetable.Route) int
	switch by {
	case "host":
		less = func(a, b *routetable.Route) int { return cmp.Compare(a.Host, b.Host) }
	case "path":
		less = func(a, b *routetable.Route) int { return cmp.Compare(a.Path, b.Path) }
	case "service":
		less = func(a, b *routetable.Route) int { return cmp.Compare(firstService(a), firstService(b)) }
	case "rate":
		less = func(a, b *routetable.Route) int { return cmp.Compare(v.traffic(a).Rate, v.traffic(b).Rate) }
	case "errors":
		less = func(a, b *routetable.Route) int {
			x, y := v.traffic(a), v.traffic(b)
			return cmp.Or(cmp.Compare(x.ErrorRate, y.ErrorRate), cmp.Compare(x.Errors, y.Errors))
		}
	case "expiry":
		less = func(a, b *routetable.Route) int { return v.endOf(a).Compare(v.endOf(b)) }
	default:
		return nil
	}
	if down {
		return func(a, b *routetable.Route) int { return less(b, a) }
	}
	return less
}

func firstService(r *routetable.Route) string {
	if len(r.Shares) == 0 || len(r.Shares[0].Backend.Services) == 0 {
		return ""
	}
	return r.Shares[0].Backend.Services[0].String()
}

// never sorts after every expiry.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// endOf returns when the certificate of a route expires: by its Secret, or else as the compiler saw it.
func (v served) endOf(r *routetable.Route) time.Time {
	if r.Certificate == nil {
		return never
	}
	if end := latest(v.ends[r.Certificate.Secret], r.Certificate.NotAfter); !end.IsZero() {
		return end
	}
	return never
}

func (v served) row(r *routetable.Route, now time.Time) routeRow {
	row := routeRow{
		Host: r.Host, URL: urlOf(r), Path: r.Path, Kind: string(r.Kind), When: r.When, Listener: r.Listener.Name, Ports: r.Listener.Ports, Line: placeOf(r.File, r.Line), To: []to{},
	}
	for _, s := range r.Shares {
		t := to{Backend: s.Backend.Name, Share: s.Weight, Servers: v.servers(s.Backend), NoneUp: v.noneUp[s.Backend.Name], Up: v.upIn(s.Backend.Name), Options: len(s.Backend.Options)}
		for _, service := range s.Backend.Services {
			t.Services = append(t.Services, service.String())
		}
		row.To = append(row.To, t)
	}
	if c := r.Certificate; c != nil {
		row.Fallback = c.Default
		if c.Secret.Name != "" {
			row.Certificate = c.Secret.String()
		}
		if end := v.endOf(r); end != never {
			row.NotAfter = end.UTC().Format(time.RFC3339)
			row.Expiry, row.ExpiryClass = expiryOf(end, now), expiryClass(end, now)
		}
	}
	if v.counted != nil {
		sum := v.traffic(r)
		row.Traffic = &sum
	}
	return row
}

// Rate is how many requests come each second.
func (r routeRow) Rate() string {
	switch rate := r.Traffic.Rate; {
	case rate == 0:
		return "0"
	case rate < 0.05:
		return "< 0.1"
	default:
		return thousands(rate, 1)
	}
}

// ErrorShare is the recent share of responses with status 5xx, "" without requests.
func (r routeRow) ErrorShare() string {
	if r.Traffic.Rate == 0 {
		return ""
	}
	return percent(min(1, r.Traffic.ErrorRate/r.Traffic.Rate))
}

// ErrorClass marks a route whose backends respond with 5xx now.
func (r routeRow) ErrorClass() string {
	if r.Traffic.ErrorRate > 0 {
		return "down"
	}
	return ""
}

// hostName matches hosts to which a link may lead. An object may hold any text as its host.
var hostName = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$`)

// urlOf is the URL of a route. It is "" if the route is for many hosts, or if a browser cannot request it.
func urlOf(r *routetable.Route) string {
	if len(r.Host) > 253 || !hostName.MatchString(r.Host) || r.Kind == routetable.Connection {
		return ""
	}
	scheme, port := "", ""
	for _, p := range r.Listener.Ports {
		if s, number, ok := strings.Cut(p, " :"); ok && (s == "https" || s == "http" && scheme == "") {
			scheme, port = s, number
		}
	}
	switch {
	case scheme == "":
		return ""
	case scheme == "http" && port == "80" || scheme == "https" && port == "443":
		return scheme + "://" + r.Host + "/"
	}
	return scheme + "://" + r.Host + ":" + port + "/"
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// SortLink is the address of the list sorted by a column, or in the other direction if it is sorted by that already.
func (l *routeList) SortLink(by string) string {
	if l.Sort == by {
		by = "-" + by
	}
	return l.link(by, 1)
}

// Sorted is the sort direction of a column, as ARIA names it.
func (l *routeList) Sorted(by string) string {
	switch l.Sort {
	case by:
		return "ascending"
	case "-" + by:
		return "descending"
	}
	return "none"
}

// PageLink is the address of another page of the list.
func (l *routeList) PageLink(step int) string { return l.link(l.Sort, l.Page+step) }

func (l *routeList) link(sort string, page int) string {
	number := ""
	if page > 1 {
		number = strconv.Itoa(page)
	}
	return link("/routes", "q", l.Q, "only", l.Only, "sort", sort, "page", number, "snapshot", l.Snapshot)
}
