package dataplanetest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// runtimeAPI has the calls that ask the worker through its sockets, and change nothing else.
type runtimeAPI struct{ *api }

// getRuntimeInfo answers 200, whether the worker answered or not.
func (a runtimeAPI) getRuntimeInfo(w http.ResponseWriter, r *http.Request) error {
	body := map[string]any{"runtimeAPI": a.haproxy.socket}
	out, err := a.haproxy.worker(r.Context(), "show info")
	if err != nil {
		body["error"] = err.Error()
	} else {
		info := map[string]any{}
		for line := range strings.Lines(out) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			name := infoNames[key]
			if name == "" {
				continue
			}
			info[name] = value
			if n, err := strconv.ParseInt(value, 10, 64); err == nil && name != "node" && name != "version" {
				info[name] = n
			}
		}
		if told := a.told.HAProxyVersion; told != "" {
			info["version"] = told
		}
		body["info"] = info
	}
	writeBody(w, http.StatusOK, body)
	return nil
}

// infoNames maps the lines of show info that are passed on to their names in JSON.
var infoNames = map[string]string{
	"Version": "version", "Nbthread": "nbthread", "Nbproc": "processes", "Process_num": "process_num",
	"Pid": "pid", "Uptime_sec": "uptime", "Ulimit-n": "ulimit_n", "Maxsock": "max_sock",
	"Maxconn": "max_conn", "CurrConns": "curr_conns", "CumConns": "cum_conns", "CumReq": "cum_req",
	"node": "node", "Stopping": "stopping", "Jobs": "jobs", "Listeners": "listeners",
}

// statTexts are the columns of show stat that are text; all others are numbers.
var statTexts = map[string]bool{
	"status": true, "tracked": true, "check_status": true, "last_chk": true, "last_agt": true, "agent_status": true,
	"check_desc": true, "agent_desc": true, "addr": true, "cookie": true, "mode": true, "algo": true, "hanafail": true,
}

type nativeStat struct {
	Backend string         `json:"backend_name,omitempty"`
	Name    string         `json:"name,omitempty"`
	Type    string         `json:"type,omitempty"`
	Stats   map[string]any `json:"stats,omitempty"`
}

func (a runtimeAPI) getStats(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	kind, name, parent := q.Get("type"), q.Get("name"), q.Get("parent")
	if name != "" && kind == "" {
		return failf(http.StatusBadRequest, "Type required when filtering by name")
	}
	if name != "" && kind == "server" && parent == "" {
		return failf(http.StatusBadRequest, "Parent backend required when filtering by server")
	}
	body := map[string]any{"runtimeAPI": a.haproxy.socket + "@1"}
	status := http.StatusOK
	out, err := a.haproxy.worker(r.Context(), "show stat")
	if err != nil { // the one error whose body has no code
		status, body["error"] = http.StatusInternalServerError, err.Error()
	}
	stats := slices.DeleteFunc(parseStats(out), func(s nativeStat) bool {
		return kind != "" && s.Type != kind || name != "" && s.Name != name || kind == "server" && parent != "" && s.Backend != parent
	})
	if len(stats) > 0 {
		body["stats"] = stats
	}
	writeBody(w, status, body)
	return nil
}

// parseStats reads the CSV of show stat. Its lines have no quotes that hide a
// comma in the columns that are used, so it is split as the API does.
func parseStats(out string) []nativeStat {
	lines := strings.Split(strings.TrimPrefix(out, "# "), "\n")
	keys := strings.Split(lines[0], ",")
	var stats []nativeStat
	for _, line := range lines[1:] {
		if values := strings.Split(line, ","); len(values) >= len(keys) {
			stats = append(stats, parseStat(keys, values))
		}
	}
	return stats
}

func parseStat(keys, values []string) nativeStat {
	s := nativeStat{Stats: map[string]any{}}
	for i, key := range keys {
		switch {
		case key == "type":
			s.Name, s.Type, s.Backend = statIdentity(values)
		case values[i] == "" || key == "pxname" || key == "svname" || key == "":
		case statTexts[key]:
			s.Stats[key] = values[i]
		default:
			if n, err := strconv.ParseInt(values[i], 10, 64); err == nil {
				s.Stats[key] = n
			}
		}
	}
	return s
}

// statIdentity returns the names in a line of statistics. The type, in column 33, is 2 for servers and 3 for
// listeners, which have no name.
func statIdentity(values []string) (name, kind, backend string) {
	switch values[32] {
	case "0", "1":
		return values[0], strings.ToLower(values[1]), ""
	case "2":
		return values[1], "server", values[0]
	default:
		return "", "", ""
	}
}

// runtimeActions runs the entries of the header X-Runtime-Actions. It skips unknown ones, and stops at the
// first that fails.
func (a runtimeAPI) runtimeActions(ctx context.Context, header string) error {
	if header == "" {
		return nil
	}
	for entry := range strings.SplitSeq(header, ";") {
		words := strings.Split(entry, " ")
		command, known := runtimeCommand(words)
		if !known {
			continue
		}
		if command == "" {
			return failf(http.StatusInternalServerError, "cannot execute %s: not enough parameters", words[0])
		}
		if _, err := a.haproxy.worker(ctx, command); err != nil {
			return failf(http.StatusInternalServerError, "cannot execute %s: %s %s", words[0], a.haproxy.socket, err)
		}
	}
	return nil
}

// runtimeFormats has the command for each action. Its arguments follow one another as in the action.
var runtimeFormats = map[string]string{
	"SetFrontendMaxConn": "set maxconn frontend %s %s",
	"SetServerWeight":    "set server %s/%s weight %s",
	"SetServerCheckPort": "set server %s/%s check-port %s",
	"SetServerAddr":      "set server %s/%s addr %s port %s",
	"SetServerState":     "set server %s/%s state %s",
	"EnableAgentCheck":   "enable agent %s/%s",
	"DisableAgentCheck":  "disable agent %s/%s",
	"SetServerAgentAddr": "set server %s/%s agent-addr %s",
	"SetServerAgentSend": "set server %s/%s agent-send %s",
}

// runtimeCommand translates an action. The command is empty if arguments are missing. Additional arguments do
// no harm.
func runtimeCommand(words []string) (command string, known bool) {
	format, known := runtimeFormats[words[0]]
	n := strings.Count(format, "%s")
	if !known || len(words) <= n {
		return "", known
	}
	args := make([]any, n)
	for i := range args {
		args[i] = words[i+1]
	}
	return fmt.Sprintf(format, args...), true
}

func (a runtimeAPI) routes(service func(string, handler)) {
	service("GET /runtime/info", a.getRuntimeInfo)
	service("GET /stats/native", a.getStats)
	service("GET /runtime/backends/{backend}/servers", a.getRuntimeServers)
	service("POST /runtime/backends/{backend}/servers", a.addRuntimeServer)
	service("GET /runtime/backends/{backend}/servers/{server}", a.getRuntimeServer)
	service("PUT /runtime/backends/{backend}/servers/{server}", a.putRuntimeServer)
	service("DELETE /runtime/backends/{backend}/servers/{server}", a.deleteRuntimeServer)
	service("GET /runtime/maps", a.getRuntimeMaps)
	service("PUT /runtime/maps/{map}", a.putMap)
	service("DELETE /runtime/maps/{map}", a.clearMap)
	service("GET /runtime/maps/{map}/entries", a.getMapEntries)
	service("POST /runtime/maps/{map}/entries", a.postMapEntry)
	service("GET /runtime/maps/{map}/entries/{key}", a.getMapEntry)
	service("PUT /runtime/maps/{map}/entries/{key}", a.putMapEntry)
	service("DELETE /runtime/maps/{map}/entries/{key}", a.deleteMapEntry)
	service("GET /runtime/ssl_crt_lists", a.getRuntimeCrtLists)
	service("GET /runtime/ssl_crt_lists/entries", a.getCrtListEntries)
	service("POST /runtime/ssl_crt_lists/entries", a.postCrtListEntry)
	service("GET /runtime/ssl_certs", a.getRuntimeCerts)
	service("POST /runtime/ssl_certs", a.postRuntimeCert)
	service("GET /runtime/ssl_certs/{cert}", a.getRuntimeCert)
	service("PUT /runtime/ssl_certs/{cert}", a.putRuntimeCert)
	service("DELETE /runtime/ssl_certs/{cert}", a.deleteRuntimeCert)
}

// certNames maps the lines of show ssl cert to their names in JSON.
var certNames = map[string]string{
	"Filename": "storage_name", "Status": "status", "Serial": "serial", "Algorithm": "algorithm",
	"SHA1 FingerPrint": "sha1_finger_print", "Subject": "subject", "Issuer": "issuers",
	"Subject Alternative Name": "subject_alternative_names", "Chain Subject": "chain_subject", "Chain Issuer": "chain_issuer",
}

func (a runtimeAPI) getRuntimeCerts(w http.ResponseWriter, r *http.Request) error {
	out, err := a.haproxy.worker(r.Context(), "show ssl cert")
	if err != nil {
		return err
	}
	certs := []map[string]string{}
	open := false // a list of transactions comes first, and is no list of certificates
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "# transaction"):
			open = true
		case strings.HasPrefix(line, "# filename"):
			open = false
		case line != "" && !open:
			certs = append(certs, map[string]string{
				"storage_name": line, "description": line[strings.LastIndexByte(line, '/')+1:],
			})
		}
	}
	writeBody(w, http.StatusOK, certs)
	return nil
}

func (a runtimeAPI) getRuntimeCert(w http.ResponseWriter, r *http.Request) error {
	out, err := a.haproxy.worker(r.Context(), "show ssl cert "+r.PathValue("cert"))
	if err != nil {
		return failOnCert(err, http.StatusNotFound)
	}
	cert := map[string]string{}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if name := certNames[key]; name != "" {
			cert[name] = value
		}
	}
	writeBody(w, http.StatusOK, cert)
	return nil
}

func failOnCert(err error, status int) error {
	if isRefusal(err) {
		return failf(status, "%s %s", err, map[int]string{404: "not found", 500: "general error"}[status])
	}
	return err
}

// runtimeCertCall gives the worker a certificate.
type runtimeCertCall func(ctx context.Context, name, pem string) error

// setCert replaces a certificate by the worker's name for it.
func (a runtimeAPI) setCert(ctx context.Context, name, pem string) error {
	// The payload ends at its first empty line.
	pem = strings.Join(strings.FieldsFunc(pem, func(r rune) bool { return r == '\n' || r == '\r' }), "\n")
	if _, err := a.haproxy.worker(ctx, fmt.Sprintf("set ssl cert %s <<\n%s", name, pem)); err != nil {
		return failOnCert(err, http.StatusInternalServerError)
	}
	out, err := a.haproxy.worker(ctx, "commit ssl cert "+name)
	if err == nil && !strings.Contains(out, "Success!") {
		_, _ = a.haproxy.worker(ctx, "abort ssl cert "+name)
		err = workerError{out, "commit ssl cert " + name}
	}
	return failOnCert(err, http.StatusInternalServerError)
}

// newCert gives the worker a certificate that it does not have yet.
func (a runtimeAPI) newCert(ctx context.Context, name, pem string) error {
	if _, err := a.haproxy.worker(ctx, "new ssl cert "+name); err != nil {
		return failOnCert(err, http.StatusInternalServerError)
	}
	return a.setCert(ctx, name, pem)
}

func (a runtimeAPI) putRuntimeCert(w http.ResponseWriter, r *http.Request) error {
	_, pem, err := a.readUpload(r)
	if err != nil {
		return err
	}
	if err := a.setCert(r.Context(), r.PathValue("cert"), string(pem)); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// postRuntimeCert adds a certificate under the name of the upload, which has no folder. So a list that names
// files by their path does not find it.
func (a runtimeAPI) postRuntimeCert(w http.ResponseWriter, r *http.Request) error {
	name, pem, err := a.readUpload(r)
	if err != nil {
		return err
	}
	if err := a.newCert(r.Context(), name, string(pem)); err != nil {
		return err
	}
	w.WriteHeader(http.StatusCreated)
	return nil
}

func (a runtimeAPI) deleteRuntimeCert(w http.ResponseWriter, r *http.Request) error {
	if _, err := a.haproxy.worker(r.Context(), "del ssl cert "+r.PathValue("cert")); err != nil {
		return failOnCert(err, http.StatusInternalServerError)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

type crtListEntry struct {
	File       string   `json:"file"`
	LineNumber int      `json:"line_number,omitempty"`
	BindConfig string   `json:"ssl_bind_config,omitempty"`
	SNIFilter  []string `json:"sni_filter,omitempty"`
}

func (a runtimeAPI) getRuntimeCrtLists(w http.ResponseWriter, r *http.Request) error {
	out, err := a.haproxy.worker(r.Context(), "show ssl crt-list")
	if err != nil {
		return failOnCert(err, http.StatusNotFound)
	}
	lists := []map[string]string{}
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); line != "" {
			lists = append(lists, map[string]string{"file": line})
		}
	}
	writeBody(w, http.StatusOK, lists)
	return nil
}

func (a runtimeAPI) getCrtListEntries(w http.ResponseWriter, r *http.Request) error {
	out, err := a.haproxy.worker(r.Context(), "show ssl crt-list -n "+r.URL.Query().Get("name"))
	if err != nil {
		return failOnCert(err, http.StatusNotFound)
	}
	if strings.HasPrefix(out, "didn't find the specified filename") {
		return failf(http.StatusNotFound, "not found")
	}
	entries := []crtListEntry{}
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			entries = append(entries, parseCrtListEntry(line))
		}
	}
	writeBody(w, http.StatusOK, entries)
	return nil
}

// parseCrtListEntry reads "file:line [options] names".
func parseCrtListEntry(line string) crtListEntry {
	file, rest, _ := strings.Cut(line, " ")
	var e crtListEntry
	if i := strings.LastIndexByte(file, ':'); i >= 0 {
		e.LineNumber, _ = strconv.Atoi(file[i+1:])
		file = file[:i]
	}
	e.File = file
	if inner, bracketed := strings.CutPrefix(rest, "["); bracketed {
		e.BindConfig, rest, _ = strings.Cut(inner, "]")
	}
	e.SNIFilter = strings.Fields(rest)
	return e
}

// postCrtListEntry adds an entry. 3.2 forgets to end the text of an entry with
// names or options: the worker waits for more until the API gives up.
func (a runtimeAPI) postCrtListEntry(w http.ResponseWriter, r *http.Request) error {
	var e crtListEntry
	if err := a.readJSON(r, &e); err != nil {
		return err
	}
	entry := e.File
	if e.BindConfig != "" {
		entry += " [" + e.BindConfig + "]"
	}
	entry = strings.Join(append([]string{entry}, e.SNIFilter...), " ")
	if a.version == V32 && entry != e.File {
		select {
		case <-time.After(giveUp):
		case <-r.Context().Done():
		}
		return failf(http.StatusInternalServerError, "%s general error", a.haproxy.socket)
	}
	command := fmt.Sprintf("add ssl crt-list %s <<\n%s", r.URL.Query().Get("name"), entry)
	out, err := a.haproxy.worker(r.Context(), command)
	if err == nil && !strings.Contains(out, "Success!") {
		err = workerError{out, command}
	}
	if err != nil {
		return failOnCert(err, http.StatusInternalServerError)
	}
	w.WriteHeader(http.StatusCreated)
	return nil
}
