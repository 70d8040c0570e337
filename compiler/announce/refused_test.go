package announce_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
)

// What the API server does not take for one object holds up no other: here no role is bound in
// one namespace, and an Ingress is as large as etcd takes, so that no status fits into it.
func TestOneObjectHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	foreign := w
	foreign.namespace = w.server.Namespace(t)
	foreign.ingress("web")
	w.large("large")
	w.ingress("web")
	in, all := foreign.inputs(), w.inputs()
	in.Ingresses = append(in.Ingresses, all.Ingresses...)
	a := start(t, w.config, true)
	a.Compiled(in, []diag.Diagnostic{foreign.fault("web", "nobody is served by it"), w.fault("web", "nobody is served by it")})
	a.Published(in, map[diag.Object]bool{foreign.ref("web"): true, w.ref("large"): true, w.ref("web"): true}, config.IngressStatus{Addresses: []string{"192.0.2.1"}})
	w.await("the Event", func() bool { return len(w.events()) == 1 })
	w.await("the status", func() bool { return w.status("web") == "192.0.2.1" })
	if status, large, events := foreign.status("web"), w.status("large"), foreign.events(); status != "" || large != "" || len(events) > 0 {
		t.Errorf("not refused: status %q, that of the large one %q, %d Events", status, large, len(events))
	}
}

// large makes an Ingress that has no room for a status: etcd takes no more than 1.5 MiB.
func (w world) large(name string) {
	w.Helper()
	var err error
	for size := 3 << 19; size > 3<<19-4096; size -= 40 {
		if err = w.server.ApplyYAML(w.Context(), fmt.Sprintf(`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: %s, name: %s},
  spec: {rules: [{http: {paths: [{path: "/%s", pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}}`, w.namespace, name, strings.Repeat("x", size))); err == nil {
			return
		}
	}
	w.Fatal(err)
}
