package compiler_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
)

// events is how many there are in the second.
const events = 10_000

// storm is an API server that has one Ingress, and sends a change of it as often as
// it can once it is let loose. No real one sends so many so fast.
type storm struct{ loose chan struct{} }

func (s *storm) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch {
	case q.Get("sendInitialEvents") != "": // the client lists and watches then, as with older servers
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

// stormy is the Ingress after n changes, of its host each.
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

// Of 10,000 events within a second the last one counts: it is published, after a few
// compiles and not after thousands.
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
	registry, store := prometheus.NewRegistry(), &memory{}
	done := make(chan error, 2)
	go func() { objects.Run(t.Context(), log); done <- nil }()
	go func() {
		done <- compiler.Run(t.Context(), compiler.Options{
			Source: compiler.Source{Objects: objects, Config: config.Default()}, Store: store, Checker: haproxy(t),
			Log: log, Metrics: registry, Status: &compiler.Status{}, Interval: 200 * time.Millisecond, MaxWait: time.Second,
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
			newest, _, _ := store.newest()
			if hosts, _ := newest.File("maps/host.map"); !strings.Contains(string(hosts), fmt.Sprintf("h%d.example.com ", n)) {
				return fmt.Errorf("the newest snapshot has the hosts %q", hosts)
			}
			return nil
		}
	}
	await(t, "first", holds(0))
	began := time.Now()
	close(s.loose)
	await(t, "last", holds(events))
	// One compile for the first of them, and then one at most for each interval.
	most := 2 + int(time.Since(began)/(200*time.Millisecond))
	if _, published, _ := store.newest(); published > 1+most {
		t.Errorf("%d snapshots in %v", published, time.Since(began))
	}
}
