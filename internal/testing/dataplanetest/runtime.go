package dataplanetest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// getRuntimeInfo answers 200 whether the worker did or not.
func (a *api) getRuntimeInfo(w http.ResponseWriter, r *http.Request) error {
	body := map[string]any{"runtimeAPI": a.haproxy.socket}
	out, err := a.haproxy.worker(r.Context(), "show info")
	if err != nil {
		body["error"] = err.Error()
	} else {
		info := processInfo(out)
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

func processInfo(out string) map[string]any {
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
	return info
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

func (a *api) getStats(w http.ResponseWriter, r *http.Request) error {
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

// statIdentity names what a line of statistics is about. The type, in column 33,
// is 2 for servers and 3 for listeners, which stay nameless.
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

// runtimeActions runs the entries of the header X-Runtime-Actions. Unknown ones
// are passed over; the first that fails ends the list.
func (a *api) runtimeActions(ctx context.Context, header string) error {
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

// runtimeFormats has, for each action, the command that it stands for. Its
// arguments follow one another as in the action.
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

// runtimeCommand translates an action. The command is empty where arguments are
// missing; more than are needed do no harm.
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
