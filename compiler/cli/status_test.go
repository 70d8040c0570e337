package cli

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/snapshots"
)

// reportTime is the present in these tests.
var reportTime = time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)

func before(d time.Duration) time.Time { return reportTime.Add(-d) }

// reportCase is a report with its exit code and its printed form.
type reportCase struct {
	report controller.Report
	code   int
	want   string
}

// newestReport is a head for reports.
func newestReport() controller.HeadReport {
	return controller.HeadReport{
		Snapshot: snapshots.ID{Revision: 12, Short: "9f3ac01b2d"}, Time: before(3 * time.Hour), Subject: "+1 route (Ingress shop/web)",
		Backends: 1, Hosts: 20, Certificates: 3,
	}
}

func checkReports(t *testing.T, cases map[string]reportCase) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			printReport(&out, c.report, reportTime)
			if diff := gocmp.Diff(strings.TrimPrefix(c.want, "\n"), out.String()); diff != "" {
				t.Error(diff)
			}
			if got := exitCode(c.report); got != c.code {
				t.Errorf("exit code %d, want %d", got, c.code)
			}
		})
	}
}

func TestPrintReport(t *testing.T) {
	t.Parallel()
	head := newestReport()
	bad := controller.Finding{
		Kind: "Ingress", Namespace: "shop", Name: "bad", File: "a.yaml", Line: 7, Column: 3, Reason: "no number", Hint: "use 100", Since: before(4 * time.Minute),
	}
	checkReports(t, map[string]reportCase{
		"all is well": {controller.Report{Head: head, Compiler: &controller.CompilerReport{Leads: true, Ready: true, LastSuccess: before(2 * time.Second), Warnings: 2}}, 0, `
newest    r000012-9f3ac01b2d, 3h old: +1 route (Ingress shop/web)
holds     1 backend with servers, 20 hosts, 3 certificates
ready     yes
success   2s ago
warnings  2
left out  nothing
`},
		"an object and templates": {controller.Report{Head: head, Found: []controller.Finding{{File: "t.cfg", Line: 2, Reason: "odd"}, bad}, Compiler: &controller.CompilerReport{
			Leads:  true,
			Reason: "compile: the templates are at fault", CompileError: "the templates are at fault",
		}}, 3, `
newest    r000012-9f3ac01b2d, 3h old: +1 route (Ingress shop/web)
holds     1 backend with servers, 20 hosts, 3 certificates
ready     no: compile: the templates are at fault
success   not yet
wrong     t.cfg:2: odd
left out  a.yaml:7:3: Ingress shop/bad: no number
          hint: use 100
          for 4m
`},
	})
}

func TestPrintReportOfWhatWaits(t *testing.T) {
	t.Parallel()
	head := newestReport()
	checkReports(t, map[string]reportCase{
		"a draft is held": {controller.Report{Head: head, Compiler: &controller.CompilerReport{
			Leads:  true,
			Reason: "held: …", LastSuccess: before(time.Minute),
			Held: &controller.HeldReport{Lost: "6 of 7 hosts gone", Since: head.Snapshot, Digest: "sha256:0123456789abcdef", Approval: "say so"},
		}}, 3, `
newest    r000012-9f3ac01b2d, 3h old: +1 route (Ingress shop/web)
holds     1 backend with servers, 20 hosts, 3 certificates
ready     no: a loss waits for approval
success   1m ago
held      0123456789: 6 of 7 hosts gone since r000012-9f3ac01b2d
          say so
left out  nothing
`},
		"it does not lead": {controller.Report{Head: head, Compiler: &controller.CompilerReport{Ready: true, Leader: "another compiler leads: edge-2"}}, 0, `
newest    r000012-9f3ac01b2d, 3h old: +1 route (Ingress shop/web)
holds     1 backend with servers, 20 hosts, 3 certificates
ready     yes
leads     no: another compiler leads: edge-2
success   not yet
left out  nothing
`},
		"a configuration is refused": {controller.Report{Compiler: &controller.CompilerReport{Leads: true, Ready: true, Refused: &controller.ConfigReport{Found: []controller.Finding{
			{File: "c.yaml", Line: 4, Reason: "spec.x: unknown field", Hint: "use y", Since: before(time.Minute)},
		}}}}, 3, `
newest    nothing published yet, as far as the compiler knows
ready     yes
success   not yet
refused   c.yaml:4: spec.x: unknown field
          hint: use y
          for 1m; the previous configuration is used
left out  nothing
`},
		"the webhook has no certificate": {controller.Report{Compiler: &controller.CompilerReport{
			Leads: true, Ready: true, Webhook: &controller.CredentialsReport{Error: "credentials in Secret hapsnap/webhook: secrets is forbidden", Since: before(time.Hour)},
		}}, 0, `
newest    nothing published yet, as far as the compiler knows
ready     yes
webhook   its certificate cannot be made or used, for 1h: credentials in Secret hapsnap/webhook: secrets is forbidden
success   not yet
left out  nothing
`},
		"the store is gone": {controller.Report{Compiler: &controller.CompilerReport{Leads: true, Reason: "publish, trying again: no route", PublishError: "no route"}}, 1, `
newest    nothing published yet, as far as the compiler knows
ready     no: publish, trying again: no route
success   not yet
left out  nothing
`},
		"the store hangs": {controller.Report{Compiler: &controller.CompilerReport{Leads: true, Ready: true, LastSuccess: before(time.Hour), Unanswered: &controller.AskReport{To: "publish a snapshot", Since: before(time.Minute)}}}, 0, `
newest    nothing published yet, as far as the compiler knows
ready     yes
store     it was asked to publish a snapshot, and has not answered for 1m; nothing is compiled until it does, or is given up
success   1h ago
left out  nothing
`},
		"no compiler was asked": {controller.Report{Head: head}, 0, `
newest    r000012-9f3ac01b2d, 3h old: +1 route (Ingress shop/web)
holds     1 backend with servers, 20 hosts, 3 certificates
left out  nothing
`},
	})
}

// Clients on other hosts learn the state of the compiler, and nothing about objects: findings may depend on
// values of Secrets.
func TestStatusForAnybody(t *testing.T) {
	t.Parallel()
	whole := controller.Report{
		Head:     controller.HeadReport{Subject: "+1 route (Ingress shop/web)", Hosts: 3},
		Found:    []controller.Finding{{Kind: "Ingress", Namespace: "shop", Name: "web", Reason: "would hold the value of Secret shop/db"}},
		Compiler: &controller.CompilerReport{Reason: "held: shop/web", Held: &controller.HeldReport{Lost: "Ingress shop/web"}, CompileError: "shop", PublishError: "shop", Interrupted: []controller.WatchReport{{Error: "shop"}}, Refused: &controller.ConfigReport{Error: "shop"}},
	}
	var text strings.Builder
	printReport(&text, whole.ForAnybody(), reportTime)
	if strings.Contains(text.String(), "shop") || !strings.Contains(text.String(), "1 object or part of one; the compiler names them only to clients on") {
		t.Errorf("\n%s", text.String())
	}
	if code := exitCode(whole.ForAnybody()); code != exitCode(whole) {
		t.Errorf("it exits with %d, and with %d for who may know all", code, exitCode(whole))
	}
	for remote, want := range map[string]bool{"127.0.0.1:1": false, "[::1]:1": false, "[::ffff:127.0.0.1]:1": false, "10.0.0.7:1": true, "": true} {
		answer := httptest.NewRecorder()
		request := httptest.NewRequest(http.MethodGet, statusPath, nil)
		request.RemoteAddr = remote
		serveStatus(&controller.Status{}, nil, func() error { return nil }).ServeHTTP(answer, request)
		if got := !strings.Contains(answer.Body.String(), "nothing published yet"); got != want {
			t.Errorf("%q: %s", remote, answer.Body)
		}
	}
}

// The status says why the webhook cannot answer, as /readyz does.
func TestStatusOfAWebhookWithoutFiles(t *testing.T) {
	t.Parallel()
	answer := httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodGet, statusPath, nil)
	request.RemoteAddr = "127.0.0.1:1"
	serveStatus(&controller.Status{}, nil, func() error { return errors.New("webhook: no tls.crt\nno tls.key") }).ServeHTTP(answer, request)
	var r controller.Report
	if err := json.Unmarshal(answer.Body.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	printReport(&text, r, reportTime)
	if !strings.Contains(text.String(), "webhook   no review can be answered: webhook: no tls.crt; no tls.key\n") {
		t.Errorf("\n%s", text.String())
	}
}
