package dataplanetest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	parser "github.com/haproxytech/client-native/v6/config-parser"
	"github.com/haproxytech/client-native/v6/config-parser/params"
	"github.com/haproxytech/client-native/v6/config-parser/types"
)

// configServer is a server of the configuration as JSON has it: the fields that
// the double knows of the API's many.
type configServer struct {
	Name        string `json:"name"`
	Address     string `json:"address"`
	Port        *int   `json:"port,omitempty"`
	Weight      *int   `json:"weight,omitempty"`
	Check       string `json:"check,omitempty"`
	Maintenance string `json:"maintenance,omitempty"`
	Backup      string `json:"backup,omitempty"`
	SSL         string `json:"ssl,omitempty"`
	Verify      string `json:"verify,omitempty"`
	Cookie      string `json:"cookie,omitempty"`
	Maxconn     *int   `json:"maxconn,omitempty"`
}

// flags and values tie the words of a server line to the fields of its JSON.
func (s *configServer) flags() map[string]*string {
	return map[string]*string{"check": &s.Check, "disabled": &s.Maintenance, "backup": &s.Backup, "ssl": &s.SSL}
}

func (s *configServer) values() map[string]*string {
	return map[string]*string{"verify": &s.Verify, "cookie": &s.Cookie}
}

func (s *configServer) numbers() map[string]**int {
	return map[string]**int{"weight": &s.Weight, "maxconn": &s.Maxconn}
}

// readServer takes a server line apart.
func readServer(line types.Server) configServer {
	s := configServer{Name: line.Name, Address: line.Address}
	if i := strings.LastIndexByte(line.Address, ':'); i >= 0 {
		if port, err := strconv.Atoi(line.Address[i+1:]); err == nil {
			s.Address, s.Port = line.Address[:i], &port
		}
	}
	flags, values, numbers := s.flags(), s.values(), s.numbers()
	words := strings.Fields(params.ServerOptionsString(line.Params))
	for i, word := range words {
		if f := flags[word]; f != nil {
			*f = "enabled"
		}
		if i+1 == len(words) {
			break
		}
		if v := values[word]; v != nil {
			*v = words[i+1]
		}
		if n, err := strconv.Atoi(words[i+1]); err == nil && numbers[word] != nil {
			*numbers[word] = &n
		}
	}
	return s
}

// line puts a server line together. What the JSON has no field for is lost, as in
// the API.
func (s configServer) line() (types.Server, error) {
	words := []string{}
	for word, f := range s.flags() {
		if *f == "enabled" {
			words = append(words, word)
		}
	}
	for word, v := range s.values() {
		if *v != "" {
			words = append(words, word+" "+*v)
		}
	}
	for word, n := range s.numbers() {
		if *n != nil {
			words = append(words, fmt.Sprintf("%s %d", word, **n))
		}
	}
	slices.Sort(words)
	options, err := params.ParseServerOptions(strings.Fields(strings.Join(words, " ")))
	address := s.Address
	if s.Port != nil {
		address = fmt.Sprintf("%s:%d", s.Address, *s.Port)
	}
	return types.Server{Name: s.Name, Address: address, Params: options}, err
}

// view returns the document that a request reads from.
func (a *api) view(r *http.Request) (document, error) {
	if id := r.URL.Query().Get("transaction_id"); id != "" {
		doc, ok := a.openTransaction(id)
		if !ok {
			return document{}, failf(http.StatusBadRequest, "transaction does not exist: %s", id)
		}
		return doc, nil
	}
	return a.copyOfMemory()
}

func (a *api) getBackends(w http.ResponseWriter, r *http.Request) error {
	doc, err := a.view(r)
	if err != nil {
		return err
	}
	backends := []map[string]string{}
	for _, name := range doc.sections(parser.Backends) {
		backends = append(backends, map[string]string{"name": name})
	}
	writeBody(w, http.StatusOK, backends)
	return nil
}

func (a *api) postBackend(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Name string `json:"name"`
	}
	if err := a.readJSON(r, &body); err != nil {
		return err
	}
	inTransaction, err := a.change(r, func(d document) error {
		if d.parser.SectionExists(parser.Backends, body.Name) {
			return failf(http.StatusConflict, "object already exists: backend %s already exists", body.Name)
		}
		return d.parser.SectionsCreate(parser.Backends, body.Name)
	})
	if err != nil {
		return err
	}
	return a.accepted(w, r, inTransaction, body)
}

// accepted answers a structured change that the worker does not have yet.
func (a *api) accepted(w http.ResponseWriter, r *http.Request, inTransaction bool, body any) error {
	if inTransaction {
		writeBody(w, http.StatusAccepted, body)
		return nil
	}
	if flag(r, "force_reload") {
		if err := a.agent.force(r.Context()); err != nil {
			return err
		}
		status := http.StatusOK
		if r.Method == http.MethodPost {
			status = http.StatusCreated
		}
		writeBody(w, status, body)
		return nil
	}
	w.Header().Set("Reload-ID", a.agent.schedule(r.Context()))
	writeBody(w, http.StatusAccepted, body)
	return nil
}

func (a *api) getServers(w http.ResponseWriter, r *http.Request) error {
	doc, err := a.view(r)
	if err != nil {
		return err
	}
	servers := []configServer{}
	for _, line := range doc.servers(r.PathValue("backend")) {
		servers = append(servers, readServer(line))
	}
	writeBody(w, http.StatusOK, servers)
	return nil
}

func (a *api) getServer(w http.ResponseWriter, r *http.Request) error {
	doc, err := a.view(r)
	if err != nil {
		return err
	}
	_, s, err := findServer(doc, r.PathValue("backend"), r.PathValue("server"))
	if err != nil {
		return err
	}
	writeBody(w, http.StatusOK, s)
	return nil
}

func findServer(doc document, backend, name string) (int, configServer, error) {
	for i, line := range doc.servers(backend) {
		if line.Name == name {
			return i, readServer(line), nil
		}
	}
	return 0, configServer{}, failf(http.StatusNotFound,
		"missing object: server %s does not exist in backend %s", name, backend)
}

func (a *api) postServer(w http.ResponseWriter, r *http.Request) error {
	backend := r.PathValue("backend")
	var body configServer
	if err := a.readJSON(r, &body); err != nil {
		return err
	}
	inTransaction, err := a.change(r, func(d document) error {
		if _, _, err := findServer(d, backend, body.Name); err == nil {
			return failf(http.StatusConflict, "object already exists: server %s already exists in backend %s", body.Name, backend)
		}
		line, err := body.line()
		if err != nil {
			return err
		}
		return d.addServer(backend, line)
	})
	if err != nil {
		return err
	}
	return a.accepted(w, r, inTransaction, body)
}

// putServer replaces a server. Where only its address, port, weight or maintenance
// differ, the worker gets the change at once and nothing is reloaded.
func (a *api) putServer(w http.ResponseWriter, r *http.Request) error {
	backend, name := r.PathValue("backend"), r.PathValue("server")
	var body, before configServer
	if err := a.readJSON(r, &body); err != nil {
		return err
	}
	inTransaction, err := a.change(r, func(d document) error {
		index, old, err := findServer(d, backend, name)
		if err != nil {
			return err
		}
		line, err := body.line()
		if err != nil {
			return err
		}
		before = old
		return d.setServer(backend, index, line)
	})
	if err != nil {
		return err
	}
	if !inTransaction && a.applyServer(r.Context(), backend, before, body) {
		writeBody(w, http.StatusOK, body)
		return nil
	}
	return a.accepted(w, r, inTransaction, body)
}

func (a *api) getBinds(w http.ResponseWriter, r *http.Request) error {
	doc, err := a.view(r)
	if err != nil {
		return err
	}
	data, err := doc.parser.Get(parser.Frontends, r.PathValue("frontend"), "bind", false)
	binds := []map[string]string{}
	if lines, ok := data.([]types.Bind); err == nil && ok {
		for _, line := range lines {
			binds = append(binds, map[string]string{"address": line.Path})
		}
	}
	writeBody(w, http.StatusOK, binds)
	return nil
}
