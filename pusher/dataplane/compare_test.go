package dataplane_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// asked are requests that both get in this order, so each one sees the effects of those before it. CONFIG is a
// configuration; MAPS and the like are folders.
var asked = []exchange{
	{do: "GET /v3/info"},
	{do: "GET /v3/health"},
	{do: "GET /v3/nothing"},
	{do: "GET /v2/info"},
	{do: "GET /configuration/version"},
	{do: "GET /configuration/raw"},
	{do: "GET /configuration/raw?version=555"},
	{do: "POST /configuration/raw?version=1&force_reload=true", content: "CONFIG"},
	{do: "POST /configuration/raw?version=1", content: "CONFIG"},
	{do: "POST /configuration/raw", content: "CONFIG"},
	{do: "POST /configuration/raw?version=V&only_validate=true", content: "CONFIG"},
	{do: "POST /configuration/raw?version=V&skip_reload=true", content: "CONFIG"},
	{do: "POST /configuration/raw?version=V&force_reload=true", content: "global\n  bogus\n"},
	{do: "POST /configuration/raw?version=V", content: "no line"},
	{do: "POST /configuration/raw?version=V"},
	{do: "POST /configuration/raw?version=V", kind: "list", content: "global\n"},
	{do: "POST /configuration/raw?version=abc", content: "CONFIG"},
	{do: "GET /configuration/backends"},
	{do: "GET /configuration/backends/zebra/servers"},
	{do: "GET /configuration/backends/nosuch/servers"},
	{do: "GET /configuration/frontends/main/binds"},
	{do: "PUT /configuration/backends/zebra/servers/s1?version=V", kind: "json", content: `{"name":"s1","address":"192.0.2.7","port":8080,"maintenance":"enabled"}`},
	{do: "GET /transactions"},
	{do: "POST /transactions?version=V"},
	{do: "POST /transactions?version=999"},
	{do: "GET /transactions/nosuch"},
	{do: "DELETE /transactions/nosuch"},
	{do: "GET /reloads/2026-01-01-999"},
	{do: "GET /runtime/info"},
	{do: "GET /runtime/backends/zebra/servers"},
	{do: "GET /runtime/backends/nosuch/servers"},
	{do: "GET /runtime/backends/zebra/servers/nosuch"},
	{do: "PUT /runtime/backends/zebra/servers/s1", kind: "json", content: `{"admin_state":"drain"}`},
	{do: "PUT /runtime/backends/zebra/servers/s1", kind: "json", content: `{"admin_state":"bogus"}`},
	{do: "PUT /runtime/backends/zebra/servers/nosuch", kind: "json", content: `{"admin_state":"drain"}`},
	{do: "PUT /runtime/backends/zebra/servers/s1", kind: "json", content: `{"address":"192.0.2.9","port":99999}`},
	{do: "PUT /runtime/backends/zebra/servers/s1", kind: "json", content: `not json`},
	{do: "GET /runtime/maps"},
	{do: "GET /runtime/maps/nosuch"},
	{do: "GET /runtime/ssl_certs"},
	{do: "GET /storage/maps"},
	{do: "POST /storage/maps", kind: "a.b.map", content: "x y\n"},
	{do: "POST /storage/maps", kind: "a.b.map", content: "x y\n"},
	{do: "GET /storage/maps"},
	{do: "GET /storage/maps/a_b.map"},
	{do: "GET /storage/maps/nosuch.map"},
	{do: "PUT /storage/maps/a_b.map?skip_reload=true", content: "x z\n"},
	{do: "PUT /storage/maps/a_b.map?skip_reload=true"},
	{do: "PUT /storage/maps/nosuch.map?skip_reload=true", content: "x z\n"},
	{do: "DELETE /storage/maps/a_b.map"},
	{do: "DELETE /storage/maps/a_b.map"},
	{do: "POST /storage/general", kind: "list.lst", content: "x\n"},
	{do: "GET /storage/general"},
	{do: "PUT /storage/general/list.lst?skip_reload=true", content: "text"},
	{do: "DELETE /storage/general/list.lst"},
	{do: "GET /storage/ssl_certificates"},
	{do: "POST /storage/ssl_certificates?skip_reload=true", kind: "bad.pem", content: "no certificate\n"},
	{do: "DELETE /storage/ssl_certificates/nosuch.pem?skip_reload=true"},
}

// TestDoubleAnswersLikeARealAPI sends the same requests to both, and prints the differences; make compare-api
// shows them. Different statuses are a fault of the double. So is a field that it has and the real API lacks;
// it need not have all fields. The documentation of dataplanetest has the known differences.
func TestDoubleAnswersLikeARealAPI(t *testing.T) {
	program := realAPI(t)
	if program == "" {
		return
	}
	r := startReal(t, program)
	double := startDouble(t, r.apiKind(t))
	for _, e := range asked {
		var answers [2]reply
		for n, s := range []*subject{double, r} {
			e := e
			if e.content == "CONFIG" {
				e.content = s.config("n1")
			}
			answers[n] = s.answer(t, e)
		}
		d, r := answers[0], answers[1]
		if d.status != r.status || d.reload != r.reload {
			t.Errorf("%s %q: the double answers %s\nthe real one %s", e.do, e.kind, d, r)
			continue
		}
		if more := without(d.fields, r.fields); len(more) > 0 {
			t.Errorf("%s: only the double has the fields %q", e.do, more)
		}
		if less := without(r.fields, d.fields); len(less) > 0 {
			t.Logf("%s: only the real one has %d fields, such as %q", e.do, len(less), less[:min(3, len(less))])
		}
		if d.text != r.text {
			t.Logf("%s: the double says %s\nthe real one %s", e.do, d.text, r.text)
		}
	}
}

// reply is an answer without the parts that always differ between two instances.
type reply struct {
	status int
	reload bool // one is due
	fields []string
	text   string // of an error, or of a body that is not JSON
}

func (r reply) String() string {
	return fmt.Sprintf("%d (reload due: %t) %s", r.status, r.reload, r.text)
}

var (
	identifiers = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|_md5hash=[0-9a-f]{32}`)
	ids         = regexp.MustCompile(`\b\d{2,}\b`)
)

// answer sends a request, and returns the parts of the answer.
func (s *subject) answer(t *testing.T, e exchange) reply {
	t.Helper()
	status, header, body := s.send(t, e)
	r := reply{status: status, reload: header.Get("Reload-Id") != ""}
	var value any
	if status < http.StatusBadRequest && json.Unmarshal([]byte(body), &value) == nil {
		fields := map[string]bool{}
		collect("", value, fields)
		for f := range fields {
			r.fields = append(r.fields, f)
		}
		slices.Sort(r.fields)
		return r
	}
	text := strings.NewReplacer(s.dirs.Maps, "MAPS", s.dirs.Certificates, "CERTS", s.dirs.General, "GENERAL",
		s.dirs.Transactions, "TRANSACTIONS", s.run, "RUN", `\n`, "\n").Replace(body)
	r.text = strings.TrimSpace(ids.ReplaceAllString(identifiers.ReplaceAllString(text, "ID"), "N"))
	return r
}

// collect adds the paths of all fields.
func collect(path string, value any, into map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			collect(path+"."+key, inner, into)
		}
	case []any:
		for _, inner := range v {
			collect(path+"[]", inner, into)
		}
	default:
		into[path] = true
	}
}

func without(list, others []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(others, s) })
}
