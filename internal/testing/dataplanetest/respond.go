package dataplanetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// failure is an error together with the status that the API gives it.
type failure struct {
	status  int
	code    int // 0: as status
	message string
}

func (f *failure) Error() string { return f.message }

func failf(status int, format string, args ...any) *failure {
	return &failure{status: status, message: fmt.Sprintf(format, args...)}
}

// schemaFailure is a request that breaks the API's schema: 422 with a code of its
// own in 3.2, a plain 400 since 3.4.
func (a *api) schemaFailure(code int, text32, text34 string) *failure {
	if a.version == V34 {
		return failf(http.StatusBadRequest, "%s", text34)
	}
	return &failure{status: http.StatusUnprocessableEntity, code: code, message: text32}
}

// unprocessable is a body with a value that is none: 422, with a code of its own in 3.2.
func (a *api) unprocessable(code int, text string) *failure {
	if a.version == V34 {
		code = 0
	}
	return &failure{status: http.StatusUnprocessableEntity, code: code, message: text}
}

// fail answers with an error; what is no failure is the API's own, 500.
func fail(w http.ResponseWriter, err error) {
	var f *failure
	if !errors.As(err, &f) {
		f = failf(http.StatusInternalServerError, "%s", err)
	}
	code := f.code
	if code == 0 {
		code = f.status
	}
	writeBody(w, f.status, map[string]any{"code": code, "message": f.message})
}

func writeError(w http.ResponseWriter, status int, message string) {
	writeBody(w, status, map[string]any{"code": status, "message": message})
}

func writeBody(w http.ResponseWriter, status int, body any) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	text := json.NewEncoder(w)
	text.SetEscapeHTML(false)
	_ = text.Encode(body) // the client may have gone
}

// handler is a request handler that leaves errors to its caller.
type handler func(w http.ResponseWriter, r *http.Request) error

func (h handler) serve(w http.ResponseWriter, r *http.Request) {
	if err := h(w, r); err != nil {
		fail(w, err)
	}
}

// flag reads a boolean of the query, as lax as the API: what it does not know
// is false.
func flag(r *http.Request, name string) bool {
	v, _ := strconv.ParseBool(r.URL.Query().Get(name))
	return v
}

// queryVersion reads the version of the query, 0 where there is none.
func (a *api) queryVersion(r *http.Request) (int64, error) {
	text := r.URL.Query().Get("version")
	if text == "" {
		return 0, nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		text32 := fmt.Sprintf("version in query must be of type int64: %q", text)
		return 0, a.schemaFailure(601, text32, fmt.Sprintf("parameter \"version\" in query has an error: value %s: an invalid integer", text))
	}
	return v, nil
}

// readJSON decodes a body of JSON.
func (a *api) readJSON(r *http.Request, into any) error {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		return failf(http.StatusBadRequest, "parsing body body from \"\" failed, because %s", err)
	}
	return nil
}
