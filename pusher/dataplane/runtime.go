package dataplane

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
)

const runtimePath = "/services/haproxy/runtime/"

// RuntimeInfo is what the running worker says about itself.
type RuntimeInfo struct {
	// Node is the value of node in the worker's global section. Without one, it is the name of the host.
	Node string
	// Loaded is the node of the configuration that the worker loaded, if a runtime change has made Node
	// another one. The API never says it; the caller sets it.
	Loaded string
	// PID is the process ID of the worker. Each reload changes it.
	PID int
	// Version is the version of HAProxy.
	Version string
	// Uptime is how long the worker has run, in whole seconds.
	Uptime time.Duration
}

// LoadedNode returns the node of the configuration that the worker loaded.
func (i RuntimeInfo) LoadedNode() string { return cmp.Or(i.Loaded, i.Node) }

// longestInfo bounds the node and the version, which callers keep and show. A node has a line of a configuration, or is
// the name of a host.
const longestInfo = 4 << 10

// RuntimeInfo asks the running worker. The error is ErrRuntime if the API cannot reach it. While HAProxy
// replaces the worker, the API may answer with an empty info. Then no worker answered, and that does not mean
// that something else runs.
func (c *Client) RuntimeInfo(ctx context.Context) (RuntimeInfo, error) {
	const op = "get runtime info"
	var body struct {
		Error string
		Info  *struct {
			Node    string
			PID     int
			Version string
			Uptime  int64
		}
	}
	a, err := c.getSmall(ctx, op, runtimePath+"info", &body)
	if err != nil {
		return RuntimeInfo{}, err
	}
	if body.Error != "" || body.Info == nil || body.Info.PID == 0 {
		return RuntimeInfo{}, (&Error{Op: op, Status: a.status, Message: fault(body.Error, "no worker answered"), kind: ErrRuntime}).redactedWith(c.access.Load())
	}
	if n := len(body.Info.Node) + len(body.Info.Version); n > longestInfo {
		return RuntimeInfo{}, &Error{Op: op, Status: a.status, Message: fmt.Sprintf("its node and version have %d bytes, which those of no HAProxy have", n), kind: ErrUnavailable}
	}
	return RuntimeInfo{
		Node: body.Info.Node, PID: body.Info.PID, Version: body.Info.Version,
		Uptime: time.Duration(body.Info.Uptime) * time.Second,
	}, nil
}

// The administrative states of a server.
const (
	StateReady = "ready"
	StateDrain = "drain"
	StateMaint = "maint"
)

// Server is a server of the running worker.
type Server struct {
	Name    string
	Address string
	Port    int
	// AdminState is ready, drain or maint.
	AdminState string
	// OperationalState is up, down or stopping.
	OperationalState string
	// Weight is nil if the API does not say it (before 3.4).
	Weight *int
}

// ServerChange says what to change. A zero field changes nothing.
type ServerChange struct {
	Address string
	Port    int
	// AdminState is ready, drain or maint.
	AdminState string
	// Up makes the server count as up until its health checks say otherwise.
	Up bool
}

type serverBody struct {
	Name             string `json:"name"`
	Address          string `json:"address"`
	Port             *int   `json:"port"`
	AdminState       string `json:"admin_state"`
	OperationalState string `json:"operational_state"`
	Weight           *int   `json:"weight"`
}

func (b serverBody) server() Server {
	s := Server{
		Name: b.Name, Address: bounded(b.Address), AdminState: bounded(b.AdminState),
		OperationalState: b.OperationalState, Weight: b.Weight,
	}
	if ip, err := netip.ParseAddr(s.Address); err == nil {
		s.Address = ip.String() // glibc writes ::8.8.8.8 for what Go writes as ::808:808
	}
	if b.Port != nil {
		s.Port = *b.Port
	}
	return s
}

// bounded cuts what no address and no state is as long as: callers keep and show what they find.
func bounded(word string) string {
	const longest = 300 // an address can be the path of a socket
	return word[:min(len(word), longest)]
}

// Servers returns the running servers of a backend, in the worker's order.
func (c *Client) Servers(ctx context.Context, backend string) ([]Server, error) {
	var bodies []serverBody
	if _, err := c.getJSON(ctx, "list runtime servers", serversPath(backend), &bodies); err != nil {
		return nil, err
	}
	servers := make([]Server, 0, len(bodies))
	for _, b := range bodies {
		servers = append(servers, b.server())
	}
	return servers, nil
}

// SetServer changes a server in the running worker only. The next reload undoes the change unless the
// configuration says the same. SetServer returns the server as it is after the change. Before 3.4 the API
// accepts Address and Port and silently ignores them, so callers must compare.
func (c *Client) SetServer(ctx context.Context, backend, server string, ch ServerChange) (Server, error) {
	const op = "set runtime server"
	a, err := c.do(ctx, call{
		op: op, method: http.MethodPut, path: serversPath(backend) + "/" + url.PathEscape(server),
		body: ch.render(), contentType: "application/json", ok: []int{http.StatusOK},
	})
	if err != nil {
		return Server{}, err
	}
	var body serverBody
	err = decode(op, a, &body)
	return body.server(), err
}

func (ch ServerChange) render() []byte {
	body := map[string]any{}
	if ch.Address != "" {
		body["address"] = ch.Address
	}
	if ch.Port != 0 {
		body["port"] = ch.Port
	}
	if ch.AdminState != "" {
		body["admin_state"] = ch.AdminState
	}
	if ch.Up {
		body["operational_state"] = "up"
	}
	text, _ := json.Marshal(body) // it has only strings and numbers
	return text
}

func serversPath(backend string) string {
	return runtimePath + "backends/" + url.PathEscape(backend) + "/servers"
}

// RuntimeCertificate returns the certificate that the worker holds for an absolute path, as haproxy.cfg names
// it.
func (c *Client) RuntimeCertificate(ctx context.Context, path string) (File, error) {
	var body fileBody
	_, err := c.getJSON(ctx, "get runtime certificate", runtimePath+"ssl_certs/"+url.PathEscape(path), &body)
	return body.file(), err
}

// RuntimeCertificates returns the names of the worker's certificates. These are the paths from which it
// loaded them.
func (c *Client) RuntimeCertificates(ctx context.Context) ([]string, error) {
	var body []fileBody
	if _, err := c.getJSON(ctx, "list runtime certificates", runtimePath+"ssl_certs", &body); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(body))
	for _, b := range body {
		names = append(names, b.file().Name)
	}
	return names, nil
}

// DynamicServer is a server to add to a backend of the running worker. HAProxy's "add server" does not apply
// default-server lines to it, and the API never enables its health check. The next reload removes it. Zero
// fields get the defaults of HAProxy.
type DynamicServer struct {
	Name    string `json:"name"`
	Address string `json:"address"` // an IP; IPv6 in brackets
	Port    int    `json:"port"`

	Weight      *int   `json:"weight,omitempty"`
	Maxconn     int    `json:"maxconn,omitempty"`
	Minconn     int    `json:"minconn,omitempty"`
	Maxqueue    int    `json:"maxqueue,omitempty"`
	SSL         string `json:"ssl,omitempty"` // "enabled"
	ALPN        string `json:"alpn,omitempty"`
	Verify      string `json:"verify,omitempty"` // "none" or "required"
	VerifyHost  string `json:"verifyhost,omitempty"`
	CAFile      string `json:"ssl_cafile,omitempty"`
	SNI         string `json:"sni,omitempty"` // an expression
	Proto       string `json:"proto,omitempty"`
	SendProxy   string `json:"send-proxy,omitempty"`    // "enabled"
	SendProxyV2 string `json:"send-proxy-v2,omitempty"` // "enabled"
}

// AddServer adds a server to a backend of the running worker, in maintenance. [Client.SetServer] makes it
// ready. The error is [ErrConflict] if the backend has a server of that name.
func (c *Client) AddServer(ctx context.Context, backend string, s DynamicServer) error {
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, call{
		op: "add runtime server", method: http.MethodPost, path: serversPath(backend),
		body: body, contentType: "application/json", ok: []int{http.StatusCreated},
	})
	return err
}

// DeleteServer puts a server of the running worker into maintenance, and deletes it. HAProxy does not delete
// a server that has connections. Then the error is [ErrUnavailable], new requests go to other servers, and a
// later call can delete it.
func (c *Client) DeleteServer(ctx context.Context, backend, server string) error {
	_, err := c.do(ctx, call{
		op: "delete runtime server", method: http.MethodDelete, path: serversPath(backend) + "/" + url.PathEscape(server),
		ok: []int{http.StatusNoContent},
	})
	return err
}

// RuntimeAction is a change of a running server that is sent with a post, see [PostOptions.Actions]. Its text
// is an entry of the X-Runtime-Actions header.
type RuntimeAction struct {
	name string
	args []string
}

// SetServerAddr changes the IP address and the port of a server.
func SetServerAddr(backend, server, address string, port int) RuntimeAction {
	return RuntimeAction{"SetServerAddr", []string{backend, server, address, strconv.Itoa(port)}}
}

// SetServerState makes a server ready, drain or maint.
func SetServerState(backend, server, state string) RuntimeAction {
	return RuntimeAction{"SetServerState", []string{backend, server, state}}
}

// SetServerWeight sets the weight of a server, 0 to 256.
func SetServerWeight(backend, server string, weight int) RuntimeAction {
	return RuntimeAction{"SetServerWeight", []string{backend, server, strconv.Itoa(weight)}}
}

// String returns the action in the form of the header.
func (a RuntimeAction) String() string { return a.name + " " + strings.Join(a.args, " ") }

// renderActions joins actions into the value of the header. The API splits it at every semicolon and space,
// without any quoting, so no argument may contain one.
func renderActions(actions []RuntimeAction) (string, error) {
	entries := make([]string, 0, len(actions))
	for _, a := range actions {
		for _, arg := range a.args {
			if arg == "" || strings.ContainsFunc(arg, breaksAction) {
				return "", fmt.Errorf("runtime action %s: argument %q cannot be sent", a.name, arg)
			}
		}
		entries = append(entries, a.String())
	}
	return strings.Join(entries, ";"), nil
}

func breaksAction(r rune) bool { return r <= ' ' || r == ';' || r >= 0x7f }

// MapEntry is an entry of a map of the running worker.
type MapEntry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// RuntimeMap is a map that the running worker has loaded.
type RuntimeMap struct {
	// Name is the base name of its file.
	Name string
	// Entries is how many entries HAProxy counts, -1 if the API does not say so. An entry counts once for
	// each kind of look-up that uses the map when it is added, such as map_str and map_beg, and is taken
	// off once when it is deleted.
	Entries int
}

// RuntimeMaps returns the maps that the worker loaded from the API's folder of maps.
func (c *Client) RuntimeMaps(ctx context.Context) ([]RuntimeMap, error) {
	var bodies []struct{ File, Description string }
	if _, err := c.getJSON(ctx, "list runtime maps", runtimePath+"maps", &bodies); err != nil {
		return nil, err
	}
	maps := make([]RuntimeMap, 0, len(bodies))
	for _, b := range bodies {
		maps = append(maps, RuntimeMap{path.Base(b.File), entryCount(b.Description)})
	}
	return maps, nil
}

// entryCount returns how many entries of a map HAProxy counts, by what it says at the end of the map's
// description: "curr_ver=0 next_ver=0 entry_cnt=3". It returns -1 if that is not there, or if a next version
// of the map is being made, whose entries count as well.
func entryCount(description string) int {
	words := strings.Fields(description)
	if len(words) < 3 {
		return -1
	}
	last := words[len(words)-3:]
	current, ok1 := strings.CutPrefix(last[0], "curr_ver=")
	next, ok2 := strings.CutPrefix(last[1], "next_ver=")
	count, ok3 := strings.CutPrefix(last[2], "entry_cnt=")
	n, err := strconv.Atoi(count)
	if !ok1 || !ok2 || !ok3 || current != next || err != nil || n < 0 {
		return -1
	}
	return n
}

// MapEntries returns the entries of a map of the worker, in its order. If a value has blanks, the API returns
// only its first word.
func (c *Client) MapEntries(ctx context.Context, name string) ([]MapEntry, error) {
	var entries []MapEntry
	_, err := c.getJSON(ctx, "list map entries", mapPath(name)+"/entries", &entries)
	return entries, err
}

// MapEntry returns an entry of a map of the worker. The API looks the key up as a request would be: it returns the
// first of several entries with the key. The error is ErrNotFound if another entry is found, if the key has a
// comma or an equals sign, if the value is empty, and also if the worker did not answer.
func (c *Client) MapEntry(ctx context.Context, name, key string) (MapEntry, error) {
	var entry MapEntry
	_, err := c.getSmall(ctx, "get map entry", entryPath(name, key), &entry)
	return entry, err
}

// AddMapEntries adds entries to a map of the worker, also if it has entries with these keys. HAProxy gets all
// of them in one command. If they have more than 8192 bytes as lines, the API makes a new version of the map,
// which lacks the old entries.
func (c *Client) AddMapEntries(ctx context.Context, name string, entries []MapEntry) error {
	body, err := json.Marshal(entries)
	if err != nil {
		return err
	}
	return c.changeMap(ctx, call{op: "add map entries", method: http.MethodPut, path: mapPath(name), body: body})
}

// SetMapEntry changes the value of an entry in a map of the worker. The error is ErrNotFound if there is no
// entry with this key.
func (c *Client) SetMapEntry(ctx context.Context, name, key, value string) error {
	body, err := json.Marshal(struct {
		Value string `json:"value"`
	}{value})
	if err != nil {
		return err
	}
	return c.changeMap(ctx, call{op: "set map entry", method: http.MethodPut, path: entryPath(name, key), body: body})
}

// DeleteMapEntry removes an entry from a map of the worker. The error is ErrNotFound if there is no entry
// with this key.
func (c *Client) DeleteMapEntry(ctx context.Context, name, key string) error {
	return c.changeMap(ctx, call{op: "delete map entry", method: http.MethodDelete, path: entryPath(name, key)})
}

func (c *Client) changeMap(ctx context.Context, k call) error {
	if k.body != nil {
		k.contentType = "application/json"
	}
	k.ok = []int{http.StatusOK, http.StatusCreated, http.StatusNoContent}
	_, err := c.do(ctx, k)
	return err
}

func mapPath(name string) string { return runtimePath + "maps/" + url.PathEscape(name) }

func entryPath(name, key string) string { return mapPath(name) + "/entries/" + url.PathEscape(key) }

// Process is how the API reaches the worker, and the limits of the worker.
type Process struct {
	// Socket is the socket that the API uses: the master socket if it is configured.
	Socket string
	// Version is the version of HAProxy.
	Version string
	// Sockets is how many file descriptors the worker may need, Descriptors is how many it may have, and
	// Connections is its maxconn. 0 means not known.
	Sockets, Descriptors, Connections int
}

// Process asks the running worker. The error is ErrRuntime if the API cannot reach it.
func (c *Client) Process(ctx context.Context) (Process, error) {
	const op = "get runtime info"
	var body struct {
		Error      string
		RuntimeAPI string
		Info       *struct {
			Version string
			MaxSock int `json:"max_sock"`
			Ulimit  int `json:"ulimit_n"`
			MaxConn int `json:"max_conn"`
		}
	}
	a, err := c.getSmall(ctx, op, runtimePath+"info", &body)
	if err != nil {
		return Process{}, err
	}
	p := Process{Socket: body.RuntimeAPI}
	if body.Error != "" || body.Info == nil {
		return p, (&Error{Op: op, Status: a.status, Message: fault(body.Error, "no info"), kind: ErrRuntime}).redactedWith(c.access.Load())
	}
	p.Version, p.Sockets, p.Descriptors, p.Connections = body.Info.Version, body.Info.MaxSock, body.Info.Ulimit, body.Info.MaxConn
	return p, nil
}

// FrontendStatistics are the counters of a frontend since the worker started.
type FrontendStatistics struct {
	Name string
	// Requests and Errors (responses with 5xx) count HTTP. Connections are connections of clients.
	Requests, Errors, Connections int64
	// Paused and Shut are set if the frontend takes no connections. Only a new worker opens a frontend that was
	// shut down.
	Paused, Shut bool
}

// BackendStatistics are the state and the counters of a backend.
type BackendStatistics struct {
	Name string
	// Down is set if the backend has servers and none is up.
	Down bool
	// Up is how many servers get requests. It includes backup servers.
	Up int
	// Since is how long Down has had this value in this worker, in whole seconds. Downs is how often the
	// backend lost its last server.
	Since time.Duration
	Downs int64
	// Requests are the requests of the backend, or its connections in TCP mode. Errors are responses with
	// 5xx.
	Requests, Errors int64
}

// statisticsBody is the part of an object of the answer that is used.
type statisticsBody struct {
	Name  string
	Stats struct {
		Status      string `json:"status"`
		Requests    int64  `json:"req_tot"`
		Errors      int64  `json:"hrsp_5xx"`
		Connections int64  `json:"stot"`
		Changed     int64  `json:"lastchg"`
		Downs       int64  `json:"chkdown"`
		Active      int    `json:"act"`
		Backup      int    `json:"bck"`
	}
}

// FrontendStatistics returns the counters of each frontend. The counters of each worker begin at 0.
func (c *Client) FrontendStatistics(ctx context.Context) ([]FrontendStatistics, error) {
	bodies, err := c.statistics(ctx, "frontend")
	out := make([]FrontendStatistics, 0, len(bodies))
	for _, b := range bodies {
		out = append(out, FrontendStatistics{
			Name: b.Name, Requests: b.Stats.Requests, Errors: b.Stats.Errors, Connections: b.Stats.Connections,
			Paused: b.Stats.Status == "PAUSED", Shut: b.Stats.Status == "STOP",
		})
	}
	return out, err
}

// BackendStatistics returns the state and the counters of each backend.
func (c *Client) BackendStatistics(ctx context.Context) ([]BackendStatistics, error) {
	bodies, err := c.statistics(ctx, "backend")
	out := make([]BackendStatistics, 0, len(bodies))
	for _, b := range bodies {
		out = append(out, BackendStatistics{
			Name: b.Name, Down: b.Stats.Status == "DOWN", Requests: cmp.Or(b.Stats.Requests, b.Stats.Connections), Errors: b.Stats.Errors,
			Since: time.Duration(b.Stats.Changed) * time.Second, Downs: b.Stats.Downs, Up: b.Stats.Active + b.Stats.Backup,
		})
	}
	return out, err
}

func (c *Client) statistics(ctx context.Context, kind string) ([]statisticsBody, error) {
	const op = "get statistics"
	a, err := c.do(ctx, call{
		op: op, method: http.MethodGet, path: "/services/haproxy/stats/native", query: url.Values{"type": {kind}}, ok: []int{http.StatusOK},
	})
	if err != nil {
		return nil, err
	}
	var body struct {
		Error string
		Stats []statisticsBody
	}
	if err := decode(op, a, &body); err != nil {
		return nil, err
	}
	if body.Error != "" {
		return nil, (&Error{Op: op, Status: a.status, Message: fault(body.Error, "no statistics"), kind: ErrRuntime}).redactedWith(c.access.Load())
	}
	return body.Stats, nil
}
