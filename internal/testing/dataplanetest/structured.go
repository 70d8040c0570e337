package dataplanetest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	parser "github.com/haproxytech/client-native/v6/config-parser"
	"github.com/haproxytech/client-native/v6/config-parser/options"
	"github.com/haproxytech/client-native/v6/config-parser/params"
	"github.com/haproxytech/client-native/v6/config-parser/types"
)

// structuredAPI is the parts of haproxy.cfg as objects.
type structuredAPI struct{ *api }

func (a structuredAPI) routes(service func(string, handler)) {
	service("GET /configuration/backends", a.getBackends)
	service("POST /configuration/backends", a.postBackend)
	service("GET /configuration/backends/{backend}/servers", a.getServers)
	service("POST /configuration/backends/{backend}/servers", a.postServer)
	service("GET /configuration/backends/{backend}/servers/{server}", a.getServer)
	service("PUT /configuration/backends/{backend}/servers/{server}", a.putServer)
	service("GET /configuration/frontends/{frontend}/binds", a.getBinds)
}

// document is a configuration as the API holds it: parsed and written by the API's own library. What that
// library loses is lost here too: everything from a line of 65,536 bytes on, all but the last of sections with
// one name, and the meaning of .if blocks.
type document struct{ parser parser.Parser }

// parsing is held while the library reads a text: it keeps the name of the current
// section of defaults in a variable of its package.
var parsing sync.Mutex

func parseDocument(text string) (document, error) {
	parsing.Lock()
	defer parsing.Unlock()
	p, err := parser.New(options.UseMd5Hash, options.NoNamedDefaultsFrom, options.String(text))
	if err != nil {
		return document{}, fmt.Errorf("read configuration: %w", err)
	}
	return document{p}, nil
}

// render returns the text in normal form, headed by its hash and version.
func (d document) render() (string, error) {
	text, err := d.parser.StringWithHash()
	if err != nil {
		return "", fmt.Errorf("write configuration: %w", err)
	}
	return text, nil
}

// body returns the text without the line of the hash.
func (d document) body() string { return d.parser.String() }

// versionLine matches the version; a text without one has version 1.
func (d document) versionLine() *types.ConfigVersion {
	data, err := d.parser.Get(parser.Comments, parser.CommentsSectionName, "# _version", true)
	if err != nil {
		return &types.ConfigVersion{Value: 1}
	}
	return data.(*types.ConfigVersion)
}

func (d document) version() int64    { return d.versionLine().Value }
func (d document) incrementVersion() { d.versionLine().Value++ }

// insertDisclaimer adds the two comments that the API keeps in its memory of a
// file it has not written itself. They reach the disk with a structured change
// and vanish with a raw post.
func (d document) insertDisclaimer() {
	lines := []string{"Dataplaneapi managed File", "changing file directly can cause a conflict if dataplaneapi is running"}
	data, err := d.parser.Get(parser.Comments, parser.CommentsSectionName, "#")
	if comments, ok := data.([]types.Comments); err == nil && ok && len(comments) > 0 && comments[0].Value == lines[0] {
		return
	}
	for i, line := range lines {
		_ = d.parser.Insert(parser.Comments, parser.CommentsSectionName, "#", types.Comments{Value: line}, i)
	}
}

// sections lists the names of a type of section, sorted.
func (d document) sections(kind parser.Section) []string {
	names, err := d.parser.SectionsGet(kind)
	if err != nil {
		return nil
	}
	return names
}

// servers lists the server lines of a backend, in order.
func (d document) servers(backend string) []types.Server {
	data, err := d.parser.Get(parser.Backends, backend, "server", false)
	if err != nil {
		return nil
	}
	return data.([]types.Server)
}

func (d document) setServer(backend string, index int, s types.Server) error {
	return d.parser.Set(parser.Backends, backend, "server", s, index)
}

func (d document) addServer(backend string, s types.Server) error {
	return d.parser.Insert(parser.Backends, backend, "server", s)
}

// dropVersion removes the version lines from a text.
func dropVersion(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "# _version") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// fileChecksum returns the hash that the file claims.
func fileChecksum(text string) string {
	for line := range strings.Lines(text) {
		if hash, ok := strings.CutPrefix(line, "# _md5hash="); ok {
			return strings.TrimSpace(hash)
		}
	}
	return ""
}

// usersSection is the userlist that the API looks for by default.
const usersSection = "controller"

// userlist returns a section with one user, in the form of haproxy.cfg.
func userlist(username, password string) string {
	return fmt.Sprintf("\nuserlist %s\n  user %s insecure-password %s\n", usersSection, username, password)
}

// users returns the passwords of the userlist. The API does not start with a text without users, and dies when
// it reads one again: after the post of a whole text without them.
func (d document) users(file string) (map[string]string, error) {
	data, err := d.parser.Get(parser.UserList, usersSection, "user")
	if err != nil {
		return nil, fmt.Errorf("no users configured in %s, error: %w", file, err)
	}
	list, ok := data.([]types.User)
	if !ok || len(list) == 0 {
		return nil, fmt.Errorf("no users configured in %s", file)
	}
	users := make(map[string]string, len(list))
	for _, u := range list {
		users[u.Name] = u.Password
	}
	return users, nil
}

// configServer is a server of the configuration in JSON, with the fields that the double knows.
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

// readServer parses a server line.
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

// line writes a server line. Parts without a field in the JSON are lost, as in the API.
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
func (a structuredAPI) view(r *http.Request) (document, error) {
	if id := r.URL.Query().Get("transaction_id"); id != "" {
		doc, ok := a.openTransaction(id)
		if !ok {
			return document{}, failf(http.StatusBadRequest, "transaction does not exist: %s", id)
		}
		return doc, nil
	}
	return a.copyOfMemory()
}

func (a structuredAPI) getBackends(w http.ResponseWriter, r *http.Request) error {
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

func (a structuredAPI) postBackend(w http.ResponseWriter, r *http.Request) error {
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
func (a structuredAPI) accepted(w http.ResponseWriter, r *http.Request, inTransaction bool, body any) error {
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

func (a structuredAPI) getServers(w http.ResponseWriter, r *http.Request) error {
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

func (a structuredAPI) getServer(w http.ResponseWriter, r *http.Request) error {
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

func (a structuredAPI) postServer(w http.ResponseWriter, r *http.Request) error {
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
func (a structuredAPI) putServer(w http.ResponseWriter, r *http.Request) error {
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
	if !inTransaction && runtimeAPI(a).applyServer(r.Context(), backend, before, body) {
		writeBody(w, http.StatusOK, body)
		return nil
	}
	return a.accepted(w, r, inTransaction, body)
}

func (a structuredAPI) getBinds(w http.ResponseWriter, r *http.Request) error {
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
