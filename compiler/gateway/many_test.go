package gateway_test

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// many makes worlds of many objects.
type many struct{ inputs.Inputs }

func newMany() *many {
	m := &many{}
	m.Gateway.Add(&gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "hapsnap"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "hapsnap.dev/gateway-controller"}})
	m.Services = append(m.Services, inputs.Object[corev1.Service]{
		Ref:   diag.Object{Kind: "Service", Namespace: "shop", Name: "web"},
		Value: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}},
	})
	return m
}

func (m *many) add(o metav1.Object) { m.Gateway.Add(o) }

func calledAs(format string, args ...any) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf(format, args...)}
}

func (m *many) gateway(name string, listeners ...gatewayv1.Listener) {
	same := gatewayv1.NamespacesFromSame
	m.add(&gatewayv1.Gateway{ObjectMeta: calledAs("%s", name), Spec: gatewayv1.GatewaySpec{
		GatewayClassName: "hapsnap", Listeners: listeners, AllowedListeners: &gatewayv1.AllowedListeners{Namespaces: &gatewayv1.ListenerNamespaces{From: &same}},
	}})
}

func httpListener(name string, port int, host string) gatewayv1.Listener {
	h := gatewayv1.Hostname(host)
	return gatewayv1.Listener{Name: gatewayv1.SectionName(name), Port: gatewayv1.PortNumber(port), Protocol: gatewayv1.HTTPProtocolType, Hostname: &h}
}

func secure(l gatewayv1.Listener, secret string) gatewayv1.Listener {
	l.Protocol = gatewayv1.HTTPSProtocolType
	l.TLS = &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: gatewayv1.ObjectName(secret)}}}
	return l
}

func (m *many) set(name, gateway string, listeners ...gatewayv1.Listener) {
	s := &gatewayv1.ListenerSet{ObjectMeta: calledAs("%s", name)}
	s.Spec.ParentRef.Name = gatewayv1.ObjectName(gateway)
	for _, l := range listeners {
		s.Spec.Listeners = append(s.Spec.Listeners, gatewayv1.ListenerEntry(l))
	}
	m.add(s)
}

func (m *many) route(name string, hosts []string, parents ...string) {
	r := &gatewayv1.HTTPRoute{ObjectMeta: calledAs("%s", name)}
	for _, p := range parents {
		kind, name := gatewayv1.Kind("Gateway"), p
		if p[0] == 's' {
			kind = "ListenerSet"
		}
		r.Spec.ParentRefs = append(r.Spec.ParentRefs, gatewayv1.ParentReference{Kind: &kind, Name: gatewayv1.ObjectName(name)})
	}
	for _, h := range hosts {
		r.Spec.Hostnames = append(r.Spec.Hostnames, gatewayv1.Hostname(h))
	}
	port := gatewayv1.PortNumber(80)
	r.Spec.Rules = []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{Name: "web", Port: &port}}}}}}
	m.add(r)
}

func (m *many) calls(name string, hosts []string, parent string) {
	r := &gatewayv1.GRPCRoute{ObjectMeta: calledAs("%s", name)}
	r.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: gatewayv1.ObjectName(parent)}}
	for _, h := range hosts {
		r.Spec.Hostnames = append(r.Spec.Hostnames, gatewayv1.Hostname(h))
	}
	m.add(r)
}

func hostsOf(n int, format string, args ...any) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("h%d.%s", i, fmt.Sprintf(format, args...)))
	}
	return out
}

// crowded are worlds of about so many objects, listeners or hosts.
var crowded = map[string]func(m *many, n int){
	"sets of one Gateway": func(m *many, n int) {
		m.gateway("g", httpListener("x", 80, "x.example"))
		for i := range n / 64 {
			var all []gatewayv1.Listener
			for j := range 64 {
				all = append(all, httpListener(fmt.Sprint("l", j), 80, fmt.Sprintf("*.h%d-%d.example", i, j)))
			}
			m.set(fmt.Sprint("s", i), "g", all...)
			m.route(fmt.Sprint("r", i), nil, fmt.Sprint("s", i))
		}
		m.route("r", nil, "g")
	},
	"ports of one Gateway": func(m *many, n int) {
		m.gateway("g", httpListener("x", 80, "x.example"))
		for i := range n / 64 {
			var all []gatewayv1.Listener
			for j := range 64 {
				all = append(all, httpListener(fmt.Sprint("l", j), 1000+i*64+j, ""))
			}
			m.set(fmt.Sprint("s", i), "g", all...)
			m.route(fmt.Sprint("r", i), nil, fmt.Sprint("s", i))
		}
	},
	"certificates of one Gateway": func(m *many, n int) {
		m.gateway("g", secure(httpListener("x", 444, "x.example"), "c"))
		for i := range n / 64 {
			var all []gatewayv1.Listener
			for j := range 64 {
				all = append(all, secure(httpListener(fmt.Sprint("l", j), 444, fmt.Sprintf("*.h%d-%d.example", i, j)), fmt.Sprint("c", i, "-", j)))
			}
			m.set(fmt.Sprint("s", i), "g", all...)
		}
	},
	"Gateways and sets": func(m *many, n int) {
		for i := range n / 2 {
			m.gateway(fmt.Sprint("g", i), httpListener("x", 1000+i, "x.example"))
			m.set(fmt.Sprint("s", i), fmt.Sprint("g", i), httpListener("x", 1000+i, "y.example"))
		}
	},
	"parents": func(m *many, n int) {
		for i := range n / 4 {
			m.gateway(fmt.Sprint("g", i), httpListener("x", 1000+i, "x.example"))
		}
		for i := range n / 8 {
			var parents []string
			for j := range 32 {
				parents = append(parents, fmt.Sprint("g", (i*7+j)%(n/4)))
			}
			m.route(fmt.Sprint("r", i), []string{fmt.Sprintf("r%d.example", i)}, parents...)
		}
	},
	"routes of two kinds": func(m *many, n int) {
		m.gateway("g", httpListener("x", 80, ""))
		for i := range n / 16 {
			m.route(fmt.Sprint("r", i), hostsOf(16, "r%d.example", i), "g")
			m.calls(fmt.Sprint("c", i), hostsOf(16, "c%d.example", i), "g")
		}
	},
	"grants": func(m *many, n int) {
		m.gateway("g", httpListener("x", 80, ""))
		for i := range n / 4 {
			g := &gatewayv1.ReferenceGrant{ObjectMeta: calledAs("g%d", i)}
			g.Spec.From = []gatewayv1.ReferenceGrantFrom{{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute", Namespace: "other"}}
			g.Spec.To = []gatewayv1.ReferenceGrantTo{{Kind: "Service"}}
			m.add(g)
			r := &gatewayv1.HTTPRoute{ObjectMeta: calledAs("r%d", i)}
			r.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: "g"}}
			other, port := gatewayv1.Namespace("elsewhere"), gatewayv1.PortNumber(80)
			for range 16 {
				ref := gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{Name: "web", Namespace: &other, Port: &port}}
				r.Spec.Rules = append(r.Spec.Rules, gatewayv1.HTTPRouteRule{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: ref}}})
			}
			m.add(r)
		}
	},
	"routes of one Service": func(m *many, n int) {
		m.gateway("g", httpListener("x", 80, ""))
		for i := range n {
			m.route(fmt.Sprint("r", i), []string{fmt.Sprintf("r%d.example", i)}, "g")
		}
	},
	"routes below a wildcard": func(m *many, n int) {
		m.gateway("g", httpListener("x", 80, ""))
		for i := range n / 2 {
			host := "*.w.example"
			if i%4 == 0 {
				host = fmt.Sprintf("h%d.w.example", i)
			}
			m.route(fmt.Sprint("r", i), []string{host}, "g")
			r := m.Gateway.HTTPRoutes[len(m.Gateway.HTTPRoutes)-1].Value
			r.Spec.Rules[0].Matches = []gatewayv1.HTTPRouteMatch{{Headers: []gatewayv1.HTTPHeaderMatch{{Name: "x", Value: fmt.Sprint(i)}}}}
		}
	},
	"routes that bar others": func(m *many, n int) {
		m.gateway("g", httpListener("x", 80, ""))
		for i := range n / 4 {
			m.route(fmt.Sprint("r", i), []string{fmt.Sprintf("r%d.example", i)}, "g")
			m.route(fmt.Sprint("x", i), hostsOf(3, "r%d.example", i), "g")
			r := m.Gateway.HTTPRoutes[len(m.Gateway.HTTPRoutes)-1].Value
			r.Annotations = map[string]string{"hapsnap.dev/allow-list": "10.0.0.0/8"}
			r.Spec.Rules[0].Matches = make([]gatewayv1.HTTPRouteMatch, 1)
			for j := range 70 { // more than a namespace may have
				r.Spec.Rules[0].Matches[0].Headers = append(r.Spec.Rules[0].Matches[0].Headers, gatewayv1.HTTPHeaderMatch{Name: gatewayv1.HTTPHeaderName(fmt.Sprint("x-", j)), Value: "1"})
			}
		}
	},
}

// Objects of one tenant, however many, take a time in proportion: every compile of everybody waits for them. Six times as
// many would take 36 times as long if each was compared with each.
func TestManyObjectsTakeTheirShare(t *testing.T) { // not in parallel, since it measures the time of the process
	for name, world := range crowded {
		t.Run(name, func(t *testing.T) {
			took := func(n int) time.Duration {
				m := newMany()
				world(m, n)
				runtime.GC()
				before := processorTime(t)
				gateway.Translate(m.Inputs, usual)
				return processorTime(t) - before
			}
			few := min(took(2000), took(2000))
			if many := took(12000); many > 16*few {
				t.Errorf("12000 take %v, and 2000 take %v", many, few)
			}
		})
	}
}

// processorTime is what this process has used so far.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
