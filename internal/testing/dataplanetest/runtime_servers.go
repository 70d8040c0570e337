package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// runtimeServer is a server of the worker in JSON, in 3.2; 3.4 adds fields.
type runtimeServer struct {
	ID               string `json:"id,omitempty"`
	Name             string `json:"name,omitempty"`
	Address          string `json:"address,omitempty"`
	Port             *int64 `json:"port,omitempty"`
	AdminState       string `json:"admin_state,omitempty"`
	OperationalState string `json:"operational_state,omitempty"`

	// since 3.4
	BackendName string `json:"backend_name,omitempty"`
	BackendID   *int64 `json:"backend_id,omitempty"`
	Weight      *int64 `json:"weight,omitempty"`
	Uweight     *int64 `json:"uweight,omitempty"`
	Iweight     *int64 `json:"iweight,omitempty"`
	CheckStatus *int64 `json:"check_status,omitempty"`
	CheckResult *int64 `json:"check_result,omitempty"`
	CheckHealth *int64 `json:"check_health,omitempty"`
	CheckState  *int64 `json:"check_state,omitempty"`
}

// runtimeServers asks the worker. For any error the API says that there is no such backend.
func (a runtimeAPI) runtimeServers(ctx context.Context, backend string) ([]runtimeServer, error) {
	out, err := a.haproxy.worker(ctx, "show servers state "+backend)
	lines := strings.Split(out, "\n")
	if err != nil || lines[0] != "1" {
		return nil, failf(http.StatusNotFound, "no data for %s: not found", backend)
	}
	servers := []runtimeServer{}
	for _, line := range lines[1:] {
		fields := strings.Split(line, " ")
		if len(fields) >= 25 && !strings.HasPrefix(line, "#") {
			servers = append(servers, a.parseServer(fields))
		}
	}
	return servers, nil
}

// parseServer reads a line of show servers state, version 1 of its format.
func (a runtimeAPI) parseServer(fields []string) runtimeServer {
	s := runtimeServer{
		ID: fields[2], Name: fields[3], Address: fields[4], Port: number(fields[18]),
		AdminState: adminState(fields[6]), OperationalState: operationalState(fields[5]),
	}
	if a.version == V34 {
		s.BackendID, s.BackendName = number(fields[0]), fields[1]
		s.Weight, s.Uweight, s.Iweight = number(fields[7]), number(fields[7]), number(fields[8])
		s.CheckStatus, s.CheckResult = number(fields[10]), number(fields[11])
		s.CheckHealth, s.CheckState = number(fields[12]), number(fields[13])
	}
	return s
}

func number(text string) *int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// adminState reads the bits of SRV_ADMF_*: forced, inherited and resolution
// maintenance, forced and inherited drain.
func adminState(text string) string {
	bits, _ := strconv.ParseUint(text, 16, 64)
	switch {
	case bits&0x23 != 0:
		return "maint"
	case bits&0x18 != 0:
		return "drain"
	default:
		return "ready"
	}
}

func operationalState(text string) string {
	return map[string]string{"0": "down", "1": "up", "2": "up", "3": "stopping"}[text]
}

func (a runtimeAPI) runtimeServer(ctx context.Context, backend, name string) (runtimeServer, error) {
	servers, err := a.runtimeServers(ctx, backend)
	if err == nil {
		for _, s := range servers {
			if s.Name == name {
				return s, nil
			}
		}
	}
	return runtimeServer{}, failf(http.StatusNotFound, "no data for %s/%s: not found", backend, name)
}

func (a runtimeAPI) getRuntimeServers(w http.ResponseWriter, r *http.Request) error {
	servers, err := a.runtimeServers(r.Context(), r.PathValue("backend"))
	if err != nil {
		return err
	}
	writeBody(w, http.StatusOK, servers)
	return nil
}

func (a runtimeAPI) getRuntimeServer(w http.ResponseWriter, r *http.Request) error {
	s, err := a.runtimeServer(r.Context(), r.PathValue("backend"), r.PathValue("server"))
	if err != nil {
		return err
	}
	writeBody(w, http.StatusOK, s)
	return nil
}

func (a runtimeAPI) putRuntimeServer(w http.ResponseWriter, r *http.Request) error {
	backend, name := r.PathValue("backend"), r.PathValue("server")
	var want runtimeServer
	if err := a.readJSON(r, &want); err != nil {
		return err
	}
	if err := a.checkStates(want); err != nil {
		return err
	}
	now, err := a.runtimeServer(r.Context(), backend, name)
	if err != nil {
		return err
	}
	for _, command := range a.serverCommands(backend+"/"+name, now, want) {
		if _, err := a.haproxy.worker(r.Context(), command); err != nil {
			return fmt.Errorf("%s %w", a.haproxy.socket, err)
		}
	}
	now, err = a.runtimeServer(r.Context(), backend, name)
	if err != nil {
		return err
	}
	writeBody(w, http.StatusOK, now)
	return nil
}

func (a runtimeAPI) checkStates(want runtimeServer) error {
	switch want.AdminState {
	case "", "ready", "maint", "drain":
	default:
		return a.unprocessable(606, "admin_state in body should be one of [ready maint drain]")
	}
	switch want.OperationalState {
	case "", "up", "down", "stopping":
	default:
		return a.unprocessable(606, "operational_state in body should be one of [up down stopping]")
	}
	if want.Port != nil && *want.Port > 65535 {
		return a.unprocessable(608, "port in body should be less than or equal to 65535")
	}
	return nil
}

// serverCommands lists the commands for the worker: for the differences, and before 3.4 for the states only.
func (a runtimeAPI) serverCommands(server string, now, want runtimeServer) []string {
	var commands []string
	set := func(format string, args ...any) {
		commands = append(commands, "set server "+server+" "+fmt.Sprintf(format, args...))
	}
	if want.OperationalState != "" && want.OperationalState != now.OperationalState {
		set("health %s", want.OperationalState)
	}
	if want.AdminState != "" && want.AdminState != now.AdminState {
		set("state %s", want.AdminState)
	}
	if a.version != V34 {
		return commands
	}
	if want.Weight != nil && (now.Weight == nil || *want.Weight != *now.Weight) {
		set("weight %d", *want.Weight)
	}
	address, port := now.Address, now.Port
	if want.Address != "" {
		address = want.Address
	}
	if want.Port != nil {
		port = want.Port
	}
	if port != nil && (address != now.Address || now.Port == nil || *port != *now.Port) {
		set("addr %s port %d", address, *port)
	}
	return commands
}

// addRuntimeServer adds a server to the worker. It is in maintenance, and its
// health check, if any, stays off: nothing in the API enables it.
func (a runtimeAPI) addRuntimeServer(w http.ResponseWriter, r *http.Request) error {
	backend := r.PathValue("backend")
	var body addedServer
	if err := a.readJSON(r, &body); err != nil {
		return err
	}
	if body.Name == "" {
		return failf(http.StatusBadRequest, "the new server must have a name")
	}
	command := "add server " + backend + "/" + body.Name + body.line()
	if _, err := a.haproxy.worker(r.Context(), command); err != nil {
		var refusal workerError
		switch {
		case !errors.As(err, &refusal):
			return err
		case strings.Contains(refusal.text, "No such backend"):
			return failf(http.StatusNotFound, "%s", err)
		case strings.Contains(refusal.text, "Already exists"):
			return failf(http.StatusConflict, "%s", err)
		default:
			return err
		}
	}
	writeBody(w, http.StatusCreated, body)
	return nil
}

// deleteRuntimeServer puts a server into maintenance and removes it, without
// waiting for its connections.
func (a runtimeAPI) deleteRuntimeServer(w http.ResponseWriter, r *http.Request) error {
	backend, name := r.PathValue("backend"), r.PathValue("server")
	now, err := a.runtimeServer(r.Context(), backend, name)
	if err != nil {
		return err
	}
	if now.AdminState != "maint" {
		if _, err := a.haproxy.worker(r.Context(), "disable server "+backend+"/"+name); err != nil {
			return err
		}
	}
	if _, err := a.haproxy.worker(r.Context(), "del server "+backend+"/"+name); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// applyServer changes a server line in the worker, if the worker can make all the changes.
func (a runtimeAPI) applyServer(ctx context.Context, backend string, before, after configServer) bool {
	var commands []string
	set := func(format string, args ...any) {
		commands = append(commands, fmt.Sprintf("set server %s/%s ", backend, before.Name)+fmt.Sprintf(format, args...))
	}
	same := func(x, y *int) bool { return x == y || x != nil && y != nil && *x == *y }
	if before.Address != after.Address || !same(before.Port, after.Port) {
		if after.Port == nil {
			return false
		}
		set("addr %s port %d", after.Address, *after.Port)
	}
	if !same(before.Weight, after.Weight) {
		if after.Weight == nil {
			return false
		}
		set("weight %d", *after.Weight)
	}
	if before.Maintenance != after.Maintenance {
		set("state %s", map[bool]string{true: "maint", false: "ready"}[after.Maintenance == "enabled"])
	}
	after.Address, after.Port, after.Weight, after.Maintenance = before.Address, before.Port, before.Weight, before.Maintenance
	if after != sharing(before, after) {
		return false
	}
	for _, command := range commands {
		if _, err := a.haproxy.worker(ctx, command); err != nil {
			return false
		}
	}
	return true
}

// sharing returns before with the pointers of after where both point to the same
// number, so that the two can be compared as values.
func sharing(before, after configServer) configServer {
	if before.Maxconn != nil && after.Maxconn != nil && *before.Maxconn == *after.Maxconn {
		before.Maxconn = after.Maxconn
	}
	return before
}

// addedServer is the body of a call that adds a server to the worker, with some of its many
// fields.
type addedServer struct {
	Name        string `json:"name"`
	Address     string `json:"address"`
	Port        *int   `json:"port,omitempty"`
	Check       string `json:"check,omitempty"`
	Weight      *int   `json:"weight,omitempty"`
	Maxconn     *int   `json:"maxconn,omitempty"`
	Minconn     *int   `json:"minconn,omitempty"`
	Maxqueue    *int   `json:"maxqueue,omitempty"`
	SSL         string `json:"ssl,omitempty"`
	ALPN        string `json:"alpn,omitempty"`
	Verify      string `json:"verify,omitempty"`
	VerifyHost  string `json:"verifyhost,omitempty"`
	CAFile      string `json:"ssl_cafile,omitempty"`
	SNI         string `json:"sni,omitempty"`
	Proto       string `json:"proto,omitempty"`
	SendProxy   string `json:"send-proxy,omitempty"`
	SendProxyV2 string `json:"send-proxy-v2,omitempty"`
}

// line returns what follows the server's name on HAProxy's socket, in the API's order.
func (s addedServer) line() string {
	var b strings.Builder
	b.WriteString(" " + s.Address)
	if s.Port != nil {
		fmt.Fprintf(&b, ":%d", *s.Port)
	}
	word := func(key, value string) {
		if value != "" {
			b.WriteString(" " + key + " " + value)
		}
	}
	number := func(key string, value *int) {
		if value != nil {
			fmt.Fprintf(&b, " %s %d", key, *value)
		}
	}
	flag := func(key, value string) {
		if value == "enabled" {
			b.WriteString(" " + key)
		}
	}
	word("alpn", s.ALPN)
	word("ca-file", s.CAFile)
	flag("check", s.Check)
	number("maxconn", s.Maxconn)
	number("maxqueue", s.Maxqueue)
	number("minconn", s.Minconn)
	word("proto", s.Proto)
	flag("send-proxy", s.SendProxy)
	flag("send-proxy-v2", s.SendProxyV2)
	word("sni", s.SNI)
	flag("ssl", s.SSL)
	word("verify", s.Verify)
	word("verifyhost", s.VerifyHost)
	number("weight", s.Weight)
	return b.String()
}
