package dataplanetest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

type crtListEntry struct {
	File       string   `json:"file"`
	LineNumber int      `json:"line_number,omitempty"`
	BindConfig string   `json:"ssl_bind_config,omitempty"`
	SNIFilter  []string `json:"sni_filter,omitempty"`
}

func (a *api) runtimeCrtListRoutes(service func(string, handler)) {
	service("GET /runtime/ssl_crt_lists", a.getRuntimeCrtLists)
	service("GET /runtime/ssl_crt_lists/entries", a.getCrtListEntries)
	service("POST /runtime/ssl_crt_lists/entries", a.postCrtListEntry)
}

func (a *api) getRuntimeCrtLists(w http.ResponseWriter, r *http.Request) error {
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

func (a *api) getCrtListEntries(w http.ResponseWriter, r *http.Request) error {
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
func (a *api) postCrtListEntry(w http.ResponseWriter, r *http.Request) error {
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
