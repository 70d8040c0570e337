package announce

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/events"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	balancer := corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.0.0.1", ExternalIPs: []string{"192.0.2.9", "192.0.2.1"}}}
	pending := *balancer.DeepCopy()
	pending.Spec.ExternalIPs = nil
	balancer.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb.example"}, {IP: "192.0.2.1", IPMode: new(corev1.LoadBalancerIPModeVIP)}, {IP: "2001:DB8::1"}}
	of := func(spec corev1.ServiceSpec) *corev1.Service { return &corev1.Service{Spec: spec} }
	for name, test := range map[string]struct {
		service *corev1.Service
		given   []string
		want    string
	}{
		"a load balancer":             {&balancer, nil, "[/lb.example 192.0.2.1/ 192.0.2.9/ 2001:db8::1/] true"},
		"one that is pending":         {&pending, nil, "[] true"},
		"external IPs":                {of(corev1.ServiceSpec{Type: "NodePort", ClusterIP: "10.0.0.1", ExternalIPs: []string{"192.0.2.2"}}), nil, "[192.0.2.2/] true"},
		"node ports":                  {of(corev1.ServiceSpec{Type: "NodePort", ClusterIP: "10.0.0.1"}), nil, "[10.0.0.1/] true"},
		"a cluster IP":                {of(corev1.ServiceSpec{ClusterIP: "10.0.0.1"}), nil, "[10.0.0.1/] true"},
		"headless":                    {of(corev1.ServiceSpec{ClusterIP: "None"}), nil, "[] true"},
		"an external name":            {of(corev1.ServiceSpec{Type: "ExternalName", ExternalName: "edge.example"}), nil, "[/edge.example] true"},
		"a Service that is not there": {nil, nil, "[] false"},
		"given":                       {nil, []string{"edge.example", "192.0.2.3", "192.0.2.3"}, "[/edge.example 192.0.2.3/] true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, in := config.IngressStatus{Service: "edge/haproxy"}, inputs.Inputs{}
			if test.given != nil {
				c = config.IngressStatus{Addresses: test.given}
			}
			if test.service != nil {
				in.Services = []inputs.Object[corev1.Service]{{Ref: diag.Object{Kind: "Service", Namespace: "edge", Name: "haproxy"}, Value: test.service}}
			}
			got, known := Addresses(c, in)
			if text := fmt.Sprint(shown(got), known); text != test.want {
				t.Errorf("got %s, want %s", text, test.want)
			}
		})
	}
	if got, known := Addresses(config.IngressStatus{}, inputs.Inputs{}); known || got != nil {
		t.Errorf("nothing configured: %v, %v", got, known)
	}
}

func shown(list []address) []string {
	var out []string
	for _, a := range list {
		out = append(out, a.IP+"/"+a.Hostname)
	}
	return out
}

func TestChanges(t *testing.T) {
	t.Parallel()
	leaving := ingress("leaving", "u9")
	leaving.Value.DeletionTimestamp = &leaving.Value.CreationTimestamp
	d := desire{
		in: inputs.Inputs{Ingresses: []inputs.Object[networkingv1.Ingress]{
			ingress("new", "u1"), ingress("right", "u2", "192.0.2.1", "edge.example"), ingress("old", "u3", "192.0.2.7"),
			ingress("left-out", "u4", "edge.example", "192.0.2.1"), ingress("others", "u5", "192.0.2.7"), ingress("empty", "u6"),
			ingress("file", ""), leaving,
		}, Broken: []inputs.Object[networkingv1.Ingress]{ingress("broken", "u7", "192.0.2.1", "edge.example")}},
		served:    map[diag.Object]bool{ref("new"): true, ref("right"): true, ref("old"): true, ref("file"): true, ref("leaving"): true},
		addresses: addresses([]string{"edge.example", "192.0.2.1"}), known: true,
	}
	both := "[/edge.example 192.0.2.1/]"
	want := "new " + both + " old " + both + " left-out [] broken [] "
	if got := listed(d.changes()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	d.known = false
	if got := listed(d.changes()); got != "" {
		t.Errorf("without known addresses: %s", got)
	}
	// If a load balancer has lost its addresses, they are removed from statuses. A status without addresses is
	// not written.
	d.known, d.addresses = true, nil
	if got := listed(d.changes()); got != "right [] old [] " {
		t.Errorf("without addresses: %s", got)
	}
}

func listed(changes []change) string {
	text := ""
	for _, c := range changes {
		text += fmt.Sprint(c.ref.Name, " ", shown(c.addresses), " ")
	}
	return text
}

// A status is written once for each version of its Ingress. A conflict stops after three writes, for an hour.
func TestStatusesAreWrittenOnce(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1e9, 0)
	m := marks{}
	ours, others := addresses([]string{"192.0.2.1"}), addresses([]string{"192.0.2.7"})
	for i, step := range []struct {
		at        time.Duration
		version   string
		addresses []address
		write     bool
		conflict  bool
	}{
		{0, "1", ours, true, false},
		{time.Second, "1", ours, false, false}, // the first write has not arrived yet
		{2 * time.Second, "2", others, true, false},
		{3 * time.Second, "2", ours, true, false}, // it was changed back
		{4 * time.Second, "4", ours, true, false}, // it was overwritten
		{5 * time.Second, "5", ours, true, true},  // it was overwritten again
		{6 * time.Second, "6", ours, false, false},
		{30 * time.Minute, "7", ours, false, false},
		{2 * time.Hour, "8", ours, true, false},
		{2*time.Hour + time.Second, "8", ours, false, false},
	} {
		c := change{ref: ref("web"), uid: "u1", version: step.version, addresses: step.addresses}
		now := begin.Add(step.at)
		pending := pendingStatuses{marks: m}
		pending.want([]change{c})
		_, write := pending.next(now)
		conflict := write && m.wrote(c, now)
		if write != step.write || conflict != step.conflict {
			t.Errorf("step %d: written %v, conflict %v", i, write, conflict)
		}
	}
	m.keep(inputs.Inputs{})
	if len(m) > 0 {
		t.Error("an Ingress that is gone is remembered")
	}
}

// A tenant has so many Ingresses whose statuses are refused that some are due all the time. The statuses of others are
// written nevertheless, and none of the refused ones is forgotten.
func TestMultitudeOfRefusedStatusesHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	const many = 4000
	now := time.Unix(1e9, 0)
	m, tries := marks{}, map[types.UID]int{}
	pending := pendingStatuses{marks: m}
	var changes []change
	add := func(name string) {
		changes = append(changes, change{ref: ref(name), uid: types.UID(name), version: "1", addresses: addresses([]string{"192.0.2.1"})})
		pending.want(changes)
	}
	for n := range many {
		add(fmt.Sprint("refused-", n))
	}
	turns := func(n int) {
		for range n {
			now = now.Add(100 * time.Millisecond)
			c, ok := pending.next(now)
			switch {
			case !ok:
			case c.uid == "web":
				m.wrote(c, now)
			default:
				m[c.uid] = mark{refused: events.Refusal{Until: now.Add(events.RetryOne)}}
			}
			if ok {
				tries[c.uid]++
			}
		}
	}
	turns(2 * many)
	add("web")
	turns(10)
	if tries["web"] != 1 {
		t.Errorf("the status of another one was written %d times", tries["web"])
	}
	for n := range many {
		if got := tries[types.UID(fmt.Sprint("refused-", n))]; got < 1 || got > 3 {
			t.Fatalf("refused-%d was tried %d times", n, got)
		}
	}
}

// Of Services that are due again, the one that waits longest comes first, and new ones come before all of them.
func TestServicesThatWaitLongestComeFirst(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	task := func(name string) serviceTask {
		return serviceTask{name: types.NamespacedName{Namespace: "shop", Name: name}}
	}
	refused := func(due time.Duration) serviceMark {
		return serviceMark{at: now.Add(-time.Hour), refused: events.Refusal{Until: now.Add(-due)}, trouble: "refused"}
	}
	s := gatewayServices{tasks: []serviceTask{task("a"), task("b"), task("c")}, marks: map[types.NamespacedName]serviceMark{
		task("a").name: refused(time.Second), task("b").name: refused(5 * time.Second), task("c").name: refused(2 * time.Second),
	}}
	if got, ok := s.due(now); !ok || got.name.Name != "b" {
		t.Errorf("%s comes first", got.name.Name)
	}
	s.tasks = append(s.tasks, task("new"))
	if got, ok := s.due(now); !ok || got.name.Name != "new" {
		t.Errorf("%s comes before a new one", got.name.Name)
	}
}

// Statuses of very many Gateways are collected in a time that grows with their number, not with its square.
func TestStatusesOfManyGateways(t *testing.T) {
	t.Parallel()
	const n = 60_000
	var g gatewayStatuses
	for i := range n {
		ref := diag.Object{Kind: "Gateway", Namespace: "a-namespace-with-a-name", Name: fmt.Sprintf("a-gateway-with-a-name-%06d", i)}
		g.in.Gateways = append(g.in.Gateways, inputs.Object[gatewayv1.Gateway]{Ref: ref, Value: &gatewayv1.Gateway{}})
		g.said.Gateways = append(g.said.Gateways, gateway.GatewayVerdict{Ref: ref})
	}
	began := time.Now()
	all, _ := g.objects()
	got := len(all)
	if took := time.Since(began); got != n || took > 3*time.Second {
		t.Errorf("%d statuses take %s", got, took)
	}
}
