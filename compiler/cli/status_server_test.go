package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/controller"
)

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
		serveStatus(&controller.Status{}, nil).ServeHTTP(answer, request)
		if got := !strings.Contains(answer.Body.String(), "nothing published yet"); got != want {
			t.Errorf("%q: %s", remote, answer.Body)
		}
	}
}
