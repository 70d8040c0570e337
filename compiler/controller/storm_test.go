package controller_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/cluster"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/compiler/controller/controllertest"
	"github.com/hapsnap/hapsnap/snapshots"
)

// events is how many events there are within the second.
const events = 10_000

// storm is an API server with one Ingress. On command, it sends changes of the Ingress as fast as it can. No
// real one is as fast.
type storm struct{ loose chan struct{} }

func (s *storm) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch {
	case q.Get("sendInitialEvents") != "": // the client then lists and watches, as with older servers
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case q.Get("watch") != "":
		s.watch(w, r)
	default:
		s.list(w, r)
	}
}

func (s *storm) list(w http.ResponseWriter, r *http.Request) {
	items := "[]"
	if strings.HasSuffix(r.URL.Path, "/ingresses") {
		items = "[" + stormy(0) + "]"
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":%s}`, items)
}

func (s *storm) watch(w http.ResponseWriter, r *http.Request) {
	flush := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	if err := flush.Flush(); err != nil {
		return
	}
	if strings.HasSuffix(r.URL.Path, "/ingresses") {
		select {
		case <-s.loose:
		case <-r.Context().Done():
			return
		}
		for n := 1; n <= events; n++ {
			fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`+"\n", stormy(n))
		}
		if err := flush.Flush(); err != nil {
			return
		}
	}
	<-r.Context().Done()
}

// stormy is the Ingress after n changes of its host.
func stormy(n int) string {
	ing := networkingv1.Ingress{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", ResourceVersion: fmt.Sprint(n + 1)},
		Spec: networkingv1.IngressSpec{
			IngressClassName: new("hapsnap"),
			Rules:            []networkingv1.IngressRule{{Host: fmt.Sprintf("h%d.example.com", n)}},
		},
	}
	text, err := json.Marshal(ing)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// Of 10,000 events within a second, the last one is published, after a few compiles and not thousands.
func TestTenThousandEvents(t *testing.T) {
	t.Parallel()
	s := &storm{loose: make(chan struct{})}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	cfg := &rest.Config{Host: server.URL, QPS: -1}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	objects := cluster.New(cluster.Connection{Name: "storm", Config: cfg, Dynamic: client, Discovery: discovery.NewDiscoveryClientForConfigOrDie(cfg)})
	registry, store := prometheus.NewRegistry(), &controllertest.Store{}
	done := make(chan error, 2)
	go func() { objects.Run(t.Context(), log); done <- nil }()
	go func() {
		done <- controller.Run(t.Context(), controller.Options{
			Source: compiler.Source{Objects: objects, Config: config.Default()}, Store: store, Checker: controllertest.HAProxy(t),
			Log: log, Metrics: registry, Status: &controller.Status{}, Interval: 200 * time.Millisecond, MaxWait: time.Second,
		})
	}()
	t.Cleanup(func() {
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	holds := func(n int) func() error {
		return func() error {
			newest, _, _ := store.Newest()
			if hosts, _ := newest.File("maps/host.map"); !strings.Contains(string(hosts), fmt.Sprintf("h%d.example.com ", n)) {
				return fmt.Errorf("the newest snapshot has the hosts %q", hosts)
			}
			return nil
		}
	}
	controllertest.Await(t, "first", holds(0))
	began := time.Now()
	close(s.loose)
	controllertest.Await(t, "last", holds(events))
	// There is one compile for the first event, and then one at most for each interval.
	most := 2 + int(time.Since(began)/(200*time.Millisecond))
	if _, published, _ := store.Newest(); published > 1+most {
		t.Errorf("%d snapshots in %v", published, time.Since(began))
	}
}

const thousand = 1000

// thousandIngresses returns a file with the manifests of 1,000 Ingresses with a path, so that all change at
// once. One of them may have an annotation.
func thousandIngresses(path, annotation string) string {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: web}\nspec: {ports: [{port: 80}]}\n")
	for i := range thousand {
		extra := ""
		if i == 500 {
			extra = annotation
		}
		fmt.Fprintf(&b, `---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {namespace: shop, name: app-%[1]d, annotations: {hapsnap.dev/timeout-server: 5s, %[3]s}}
spec:
  ingressClassName: hapsnap
  rules:
  - host: app-%[1]d.example
    http: {paths: [{path: %[2]s, pathType: Exact, backend: {service: {name: web, port: {number: 80}}}}]}
`, i, path, extra)
	}
	return b.String()
}

// One of 1,000 Ingresses becomes bad while all of them change. The very next snapshot has the other 999 as they
// are now, and the bad one not at all, or closed.
func TestRunPublishesTheOthersAtOnce(t *testing.T) {
	t.Parallel()
	r := controllertest.Prepare(t, map[string]string{"all.yaml": thousandIngresses("/v0", "")})
	controllertest.Put(t, filepath.Join(r.Templates, "extend"), "backend.cfg", `{{with .Annotation "example.com/timeout"}}    timeout check {{.}}
{{end}}{{with .Annotation "example.com/peers"}}    stick-table type ip size 1k peers {{.}}
{{end}}{{with .Annotation "example.com/first"}}    # {{index (splitList "," .) 1}}
{{end}}`)
	r.Start(t, config.Default())
	awaitRoutes(t, r, "/v0")
	for n, c := range []struct{ name, annotation, reason string }{
		{"a value that is no rate", `hapsnap.dev/rate-limit: lots`, `"lots" is not a number`},
		{"a value that only HAProxy refuses", `example.com/timeout: banana`, "haproxy: unexpected character 'b' in 'timeout check'"},
		{"a value that HAProxy refuses without a line", `example.com/peers: ghost`, "haproxy: Proxy '"},
		{"a value that a template cannot take", `example.com/first: one`, "index"},
	} {
		path := fmt.Sprintf("/v%d", n+1)
		_, before, _ := r.Store.Newest()
		r.Write(t, "all.yaml", thousandIngresses(path, c.annotation))
		s := awaitRoutes(t, r, path)
		if _, after, _ := r.Store.Newest(); after != before+1 {
			t.Errorf("%s: %d snapshots, want one more than %d", c.name, after, before)
		}
		q := s.Manifest.Spec.Quarantined
		if len(q) != 1 || q[0].Name != "app-500" || !strings.Contains(q[0].Reason, c.reason) {
			t.Errorf("%s: the manifest lists %v", c.name, q)
		}
		r.AwaitQuarantined(t, 1)
		if found := r.Status.Report().Found; len(found) != 1 || found[0].Name != "app-500" || found[0].File == "" {
			t.Errorf("%s: the status lists %+v", c.name, found)
		}
	}
}

// awaitRoutes waits until the newest snapshot has a path for all hosts except that of one Ingress, whose routes
// are closed or left out.
func awaitRoutes(t *testing.T, r *controllertest.Compiler, path string) snapshots.Snapshot {
	t.Helper()
	var newest snapshots.Snapshot
	controllertest.Await(t, "routes of "+path, func() error {
		s, n, _ := r.Store.Newest()
		exact, _ := s.File("maps/exact.map")
		got := strings.Count(string(exact), "|"+path+" ") - strings.Count(string(exact), "app-500.example|"+path+" ")
		if got != thousand-1 {
			return fmt.Errorf("%d snapshots, %d routes; %v", n, got, r.Status.Ready())
		}
		newest = s
		return nil
	})
	return newest
}
