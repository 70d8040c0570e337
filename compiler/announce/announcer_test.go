package announce_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/announce"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

var cluster kubetest.Shared

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, &cluster)) }

// lead is a leadership that tests control.
type lead struct {
	mu  sync.Mutex
	has bool
}

func (l *lead) Term(ctx context.Context) (context.Context, context.CancelFunc, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ctx, func() {}, l.has
}

func (l *lead) set(leading bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.has = leading
}

// counter counts writing requests.
type counter struct {
	next http.RoundTripper
	mu   sync.Mutex
	all  int
	at   []time.Time
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.all++
	c.mu.Unlock()
	if r.Method != http.MethodGet {
		c.mu.Lock()
		c.at = append(c.at, time.Now())
		c.mu.Unlock()
	}
	return c.next.RoundTrip(r)
}

func (c *counter) writes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.at)
}

// requests returns how many there were, those that read included.
func (c *counter) requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}

func (c *counter) times() []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.at)
}

// announcer is a running announcer, with a service account that has the permissions of the rules.
type announcer struct {
	*announce.Announcer
	*lead
	*counter
}

func start(t *testing.T, config *rest.Config, leading bool) announcer {
	t.Helper()
	return startWith(t, config, leading, nil)
}

// lease is the default Lease of announcers.
const lease = "edge/compiler"

func startWith(t *testing.T, config *rest.Config, leading bool, fleet announce.Fleet) announcer {
	t.Helper()
	return startBy(t, lease, config, leading, fleet)
}

func startBy(t *testing.T, lease string, config *rest.Config, leading bool, fleet announce.Fleet) announcer {
	t.Helper()
	out := announcer{lead: &lead{has: leading}, counter: &counter{}}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { out.next = next; return out.counter })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	out.Announcer = announce.New(announce.Options{
		Events: client.EventsV1(), Ingresses: client.NetworkingV1(), Dynamic: objects, Services: client.CoreV1(), Slices: client.DiscoveryV1(), Fleet: fleet, Leader: out.lead, Instance: "compiler-0_abc", Lease: lease,
		Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- out.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return out
}

// world is a namespace, with a client that may do everything, and the configuration of a service account that
// has the permissions of the rules.
type world struct {
	*testing.T
	namespace string
	client    kubernetes.Interface
	config    *rest.Config
	server    *kubetest.Server
}

func newWorld(t *testing.T) world {
	t.Helper()
	server := cluster.Server(t)
	w := world{T: t, namespace: server.Namespace(t), server: server}
	var err error
	if w.client, err = kubernetes.NewForConfig(server.Config()); err != nil {
		t.Fatal(err)
	}
	rules := append(events.Rules(), announce.StatusRules()...)
	_, statuses := announce.GatewayRules()
	rules = append(rules, statuses...)
	rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{gatewayv1.GroupName}, Resources: []string{"gateways", "httproutes"}, Verbs: []string{"get"}})
	if w.config, err = clientcmd.BuildConfigFromFlags("", server.Grant(t, w.namespace, "compiler", rules)); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w world) ingress(name string) {
	w.Helper()
	w.server.Apply(w, fmt.Sprintf(`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: %s, name: %s},
  spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}}`, w.namespace, name))
}

func (w world) ref(name string) diag.Object {
	return diag.Object{Kind: "Ingress", Namespace: w.namespace, Name: name}
}

// inputs returns the present Ingresses.
func (w world) inputs() inputs.Inputs {
	w.Helper()
	list, err := w.client.NetworkingV1().Ingresses(w.namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	var in inputs.Inputs
	for i := range list.Items {
		in.Ingresses = append(in.Ingresses, inputs.Object[networkingv1.Ingress]{Ref: w.ref(list.Items[i].Name), Value: &list.Items[i]})
	}
	return in
}

func (w world) events() []eventsv1.Event {
	w.Helper()
	list, err := w.client.EventsV1().Events(w.namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return list.Items
}

func (w world) await(what string, is func() bool) {
	w.Helper()
	end := time.Now().Add(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		if time.Now().After(end) {
			w.Fatalf("%s: not in time", what)
		}
		<-tick.C
	}
}

func (w world) fault(name, message string) diag.Diagnostic {
	return diag.Diagnostic{Severity: diag.Error, Object: w.ref(name), Position: diag.Position{Field: "spec.rules[0]"}, Message: message, Hint: "mend it"}
}

// The same fault in 20 compiles, under another leader and after a restart, is one Event on the object. kubectl
// shows it.
func TestAFaultIsOneEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ingress("web")
	in, found := w.inputs(), []diag.Diagnostic{w.fault("web", "nobody is served by it")}
	one, two := start(t, w.config, true), start(t, w.config, false)
	for range 20 {
		one.Compiled(in, found)
		two.Compiled(in, found)
	}
	w.await("an Event", func() bool { return len(w.events()) > 0 })
	two.set(true)
	two.Compiled(in, found)
	w.await("the other leader's attempt", func() bool { return two.writes() == 1 })
	// A later Event proves that nothing else was left to write.
	mark := append(found, w.fault("web", "and another thing"))
	one.Compiled(in, mark)
	w.await("another Event", func() bool { return len(w.events()) > 1 })
	events := w.events()
	if len(events) != 2 || one.writes() != 2 {
		t.Errorf("%d events, %d writes", len(events), one.writes())
	}
	for _, e := range events {
		if e.Series != nil || e.Reason != announce.LeftOut || e.Type != "Warning" || e.Regarding.UID != in.Ingresses[0].Value.UID {
			t.Errorf("event %+v", e)
		}
	}
	one.Compiled(in, nil)
	w.await("good again", func() bool { return len(w.events()) == 3 })
	text := w.describe("web")
	for _, want := range []string{"Warning", "LeftOut", "spec.rules[0]: nobody is served by it; hint: mend it", "Normal", "Accepted"} {
		if !strings.Contains(text, want) {
			t.Errorf("kubectl does not show %q:\n%s", want, text)
		}
	}
}

func (w world) describe(name string) string {
	w.Helper()
	kubectl, err := kubetest.Binary("kubectl")
	if err != nil {
		w.Fatal(err)
	}
	out, err := exec.CommandContext(w.Context(), kubectl, "--kubeconfig", w.server.Kubeconfig(), "-n", w.namespace, "describe", "ingress", name).CombinedOutput()
	if err != nil {
		w.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func (w world) status(name string) string {
	w.Helper()
	ing, err := w.client.NetworkingV1().Ingresses(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	var out []string
	for _, a := range ing.Status.LoadBalancer.Ingress {
		out = append(out, a.IP+a.Hostname)
	}
	return strings.Join(out, " ")
}

// overwrite writes a status as another controller would.
func (w world) overwrite(name, ip string) {
	w.Helper()
	ing, err := w.client.NetworkingV1().Ingresses(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	ing.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: ip}}
	if _, err := w.client.NetworkingV1().Ingresses(w.namespace).UpdateStatus(w.Context(), ing, metav1.UpdateOptions{FieldManager: "another"}); err != nil {
		w.Fatal(err)
	}
}

// The leader writes each status once, if it differs. It removes its addresses from Ingresses that are not
// served, unless another controller has written the same.
func TestStatusesFollowWhatIsServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"api", "right", "shared", "web"} {
		w.ingress(name)
	}
	where := config.IngressStatus{Addresses: []string{"edge.example", "192.0.2.1"}}
	served := map[diag.Object]bool{w.ref("web"): true, w.ref("api"): true}
	leader, follower := start(t, w.config, true), start(t, w.config, false)
	w.overwrite("web", "192.0.2.77") // by the Ingress's former controller
	w.overwrite("shared", "192.0.2.77")
	in := w.inputs()
	for range 5 {
		leader.Published(in, served, where)
		follower.Published(in, served, where)
	}
	w.await("web", func() bool {
		return w.status("web") == "edge.example 192.0.2.1" || w.status("web") == "192.0.2.1 edge.example"
	})
	w.await("api", func() bool { return w.status("api") != "" })
	for range 5 {
		leader.Published(w.inputs(), served, where)
	}
	// The Ingress that is no longer served loses its addresses, and the other keeps them.
	leader.Published(w.inputs(), map[diag.Object]bool{w.ref("api"): true}, where)
	w.await("taken back", func() bool { return w.status("web") == "" })
	if leader.writes() != 3 || follower.writes() != 0 {
		t.Errorf("the leader wrote %d times, the follower %d times", leader.writes(), follower.writes())
	}
	if api, shared, right := w.status("api"), w.status("shared"), w.status("right"); api == "" || shared != "192.0.2.77" || right != "" {
		t.Errorf("api %q, shared %q, right %q", api, shared, right)
	}
}

// What another controller has written since stays, even if it is the same.
func TestWhatOthersWroteIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ingress("web")
	w.overwrite("web", "192.0.2.1")
	leader := start(t, w.config, true)
	leader.Published(w.inputs(), map[diag.Object]bool{}, config.IngressStatus{Addresses: []string{"192.0.2.1"}})
	w.await("an attempt", func() bool { return leader.writes() == 1 })
	leader.Published(w.inputs(), map[diag.Object]bool{}, config.IngressStatus{Addresses: []string{"192.0.2.1"}})
	leader.Compiled(w.inputs(), []diag.Diagnostic{w.fault("web", "x")})
	w.await("what was said after it", func() bool { return len(w.events()) == 1 })
	if got := w.status("web"); got != "192.0.2.1" {
		t.Errorf("status %q", got)
	}
}
