package charttest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/internal/testing/loopback"
)

// rules are the alerts of a release named edge in the namespace edge.
func rules(t *testing.T) map[string]any {
	t.Helper()
	text, err := Template(t, "helm", "edge", "--set", "monitoring.prometheusRule.enabled=true", "--show-only", "templates/monitoring/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return Objects(t, text)[0].Object["spec"].(map[string]any)
}

// alerts returns the rules by their names.
func alerts(t *testing.T) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for _, g := range rules(t)["groups"].([]any) {
		for _, r := range g.(map[string]any)["rules"].([]any) {
			out[r.(map[string]any)["alert"].(string)] = r.(map[string]any)
		}
	}
	if len(out) < 20 {
		t.Errorf("%d alerts", len(out))
	}
	return out
}

// promtool runs the tool of Prometheus in a folder with the files.
func promtool(t *testing.T, files map[string]string, args ...string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.CommandContext(t.Context(), "promtool", args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

// Each alert fires when it should, and not before, as testdata/alerts.yaml says.
func TestAlerts(t *testing.T) {
	t.Parallel()
	text, err := yaml.Marshal(rules(t))
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("testdata/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	promtool(t, map[string]string{"rules.yaml": string(text), "alerts.yaml": string(tests)}, "test", "rules", "alerts.yaml")
	for name := range alerts(t) {
		if !strings.Contains(string(tests), "alertname: "+name+"\n") {
			t.Errorf("testdata/alerts.yaml does not test %s", name)
		}
	}
}

// Each alert has a page with advice, and a link to it.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	all := alerts(t)
	for name, alert := range all {
		if got, want := alert["annotations"].(map[string]any)["runbook_url"], "https://github.com/hapsnap/hapsnap/blob/main/docs/how-to/runbooks/"+name+".md"; got != want {
			t.Errorf("runbook_url %v, want %s", got, want)
		}
		text, err := os.ReadFile(filepath.Join(Root(t), "docs/how-to/runbooks", name+".md"))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, part := range []string{"# " + name + "\n", "\n## What it means\n", "\n## What to do\n"} {
			if !strings.Contains("\n"+string(text), part) {
				t.Errorf("%s.md has no %q", name, part)
			}
		}
	}
	pages, _ := filepath.Glob(filepath.Join(Root(t), "docs/how-to/runbooks", "Hapsnap*.md"))
	for _, page := range pages {
		if all[strings.TrimSuffix(filepath.Base(page), ".md")] == nil {
			t.Errorf("%s is about no alert", page)
		}
	}
}

// Prometheus can parse every query of dashboards and alerts. Their metrics exist, in the documentation of the
// programs or in HAProxy's exporter.
func TestQueriesAskForMetricsThatExist(t *testing.T) {
	t.Parallel()
	known := map[string]bool{"up": true, "process_resident_memory_bytes": true}
	for name := range documentedMetrics(t) {
		known[name] = true
	}
	for name := range haproxyMetrics(t) {
		known[name] = true
	}
	queries := map[string]string{}
	for name, alert := range alerts(t) {
		queries[name] = alert["expr"].(string)
	}
	dashboards, _ := filepath.Glob("../hapsnap/dashboards/*.json")
	if len(dashboards) != 3 {
		t.Errorf("dashboards %v", dashboards)
	}
	for _, path := range dashboards {
		for i, q := range dashboardQueries(t, path) {
			queries[fmt.Sprintf("%s_%d", strings.TrimSuffix(filepath.Base(path), ".json"), i)] = q
		}
	}
	if len(queries) < 60 {
		t.Errorf("%d queries", len(queries))
	}
	var recording []map[string]any
	metric := regexp.MustCompile(`\b(hapsnap|haproxy|process|go|up)(_[a-z0-9_]+)?\b`)
	inQuotes := regexp.MustCompile(`"[^"]*"`)
	for name, q := range queries {
		recording = append(recording, map[string]any{"record": "query:" + name, "expr": q})
		for _, found := range metric.FindAllString(inQuotes.ReplaceAllString(q, ""), -1) {
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(found, "")
			if !known[found] && !known[base] {
				t.Errorf("%s: nobody exports %s", name, found)
			}
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "queries", "rules": recording}}})
	if err != nil {
		t.Fatal(err)
	}
	promtool(t, map[string]string{"queries.yaml": string(text)}, "check", "rules", "--lint=none", "queries.yaml")
}

// dashboardQueries returns the queries of a dashboard, with values for its variables.
func dashboardQueries(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		UID    string
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct{ List []struct{ Query string } }
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(path, err)
	}
	var out []string
	for _, v := range board.Templating.List {
		if inner, ok := strings.CutPrefix(v.Query, "label_values("); ok {
			out = append(out, inner[:strings.LastIndex(inner, ",")])
		}
	}
	for _, p := range board.Panels {
		if p.Title == "" || len(p.Targets) == 0 {
			t.Errorf("%s: a panel without a title or a query", path)
		}
		for _, q := range p.Targets {
			out = append(out, q.Expr)
		}
	}
	for i := range out {
		out[i] = strings.NewReplacer("$namespace", "edge", "$release", "edge-hapsnap").Replace(out[i])
	}
	return out
}

// documentedMetrics are the metrics of both programs.
func documentedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(t), "docs/reference/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, found := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		out[found[1]] = true
	}
	if len(out) < 40 {
		t.Errorf("%d metrics are documented", len(out))
	}
	return out
}

// haproxyMetrics returns the metrics of a HAProxy's exporter.
func haproxyMetrics(t *testing.T) map[string]bool {
	t.Helper()
	address := loopback.Address()
	path := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(path, []byte("global\n    maxconn 100\ndefaults\n    mode http\n    timeout connect 1s\n    timeout client 1s\n    timeout server 1s\nfrontend status\n    bind "+address+"\n    http-request use-service prometheus-exporter\nbackend web\n    server a 127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	haproxy := os.Getenv("HAPROXY")
	if haproxy == "" {
		haproxy = "haproxy"
	}
	c := exec.CommandContext(t.Context(), haproxy, "-db", "-f", path)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}()
	var body []byte
	for deadline := time.Now().Add(20 * time.Second); len(body) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("HAProxy does not answer")
		}
		response, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			<-time.After(20 * time.Millisecond)
			continue
		}
		body, err = io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	out := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^# TYPE (\S+) `).FindAllStringSubmatch(string(body), -1) {
		out[found[1]] = true
	}
	return out
}

// Every dashboard is in a ConfigMap that Grafana finds.
func TestDashboardsAreRendered(t *testing.T) {
	t.Parallel()
	found := 0
	for _, o := range named(t, "monitoring").objects(t) {
		if o.GetKind() == "ConfigMap" && o.GetLabels()["grafana_dashboard"] == "1" {
			found++
			data, _, _ := unstructured.NestedStringMap(o.Object, "data")
			for name, text := range data {
				if !json.Valid([]byte(text)) {
					t.Errorf("%s is no JSON", name)
				}
			}
		}
	}
	if found != 3 {
		t.Errorf("%d dashboards", found)
	}
}
