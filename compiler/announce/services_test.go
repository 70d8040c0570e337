package announce_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/announce"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/gateways"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/snapshots"
)

// provided is a cluster with Gateways that get Services.
type provided struct {
	world
	announcer
	config  config.Config
	account *rest.Config
	wants   map[string]*gateway.Service // the wanted Services by Gateway
}

func newProvided(t *testing.T, rules []rbacv1.PolicyRule, gateways ...string) *provided {
	t.Helper()
	p := &provided{world: newWorld(t), config: config.Default(), wants: map[string]*gateway.Service{}}
	p.gatewayAPI("gateways")
	_, statuses := announce.GatewayRules()
	rules = append(rules, statuses...)
	rules = append(rules,
		rbacv1.PolicyRule{APIGroups: []string{gatewayv1.GroupName}, Resources: []string{"gateways"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get"}})
	account, err := clientcmd.BuildConfigFromFlags("", p.server.Grant(t, p.namespace, "provider", rules))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range gateways {
		p.server.Apply(t, fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {namespace: %s, name: %s}, spec: {gatewayClassName: hapsnap, listeners: [{name: http, port: 80, protocol: HTTP}]}}`, p.namespace, name))
		p.wants[name] = &gateway.Service{
			Name: name + "-hapsnap", Labels: map[string]string{"gateway.networking.k8s.io/gateway-name": name}, Annotations: map[string]string{},
			Ports: []int{80}, Addresses: []string{"192.0.2.16"},
		}
	}
	p.config.GatewayAPI.Enabled, p.config.GatewayAPI.Services.Enabled = true, true
	p.account, p.announcer = account, start(t, account, true)
	return p
}

// publish publishes what is wanted, with the cluster as the compiler sees it.
func (p *provided) publish() {
	p.Helper()
	var in inputs.Inputs
	list, err := p.client.CoreV1().Services(p.namespace).List(p.Context(), metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	for i := range list.Items {
		in.Services = append(in.Services, inputs.Object[corev1.Service]{Ref: diag.Object{Kind: "Service", Namespace: p.namespace, Name: list.Items[i].Name}, Value: &list.Items[i]})
	}
	var said gateway.Verdicts
	for _, name := range slices.Sorted(maps.Keys(p.wants)) {
		want := p.wants[name]
		g := &gatewayv1.Gateway{}
		p.read("Gateway", name, g)
		ref := diag.Object{Kind: "Gateway", Namespace: p.namespace, Name: name}
		in.Gateway.Gateways = append(in.Gateway.Gateways, inputs.Object[gatewayv1.Gateway]{Ref: ref, Value: g})
		said.Gateways = append(said.Gateways, gateway.GatewayVerdict{Ref: ref, Service: want, Status: gatewayv1.GatewayStatus{
			Conditions: []metav1.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted", ObservedGeneration: g.Generation}},
		}})
	}
	p.Gateways(in, p.config, said, snapshots.ID{Revision: 1})
}

func (p *provided) service(name string) *corev1.Service {
	p.Helper()
	s, err := p.client.CoreV1().Services(p.namespace).Get(p.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return s
}

// endpoints returns the EndpointSlices of a Service, each as ADDRESSES:PORTS.
func (p *provided) endpoints(service string) []string {
	p.Helper()
	list, err := p.client.DiscoveryV1().EndpointSlices(p.namespace).List(p.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + service})
	if err != nil {
		p.Fatal(err)
	}
	var out []string
	for _, s := range list.Items {
		var words []string
		for _, e := range s.Endpoints {
			words = append(words, e.Addresses...)
		}
		for _, port := range s.Ports {
			words = append(words, fmt.Sprint(*port.Port))
		}
		out = append(out, strings.Join(words, " "))
	}
	slices.Sort(out)
	return out
}

// says waits until the condition Programmed of a Gateway has this reason and message.
func (p *provided) says(gatewayName, reason, message string) {
	p.Helper()
	p.await(gatewayName+" says "+reason, func() bool {
		g := &gatewayv1.Gateway{}
		p.read("Gateway", gatewayName, g)
		c := gateway.Condition(g.Status.Conditions, "Programmed")
		return c.Reason == reason && strings.Contains(c.Message, message)
	})
}

// change changes a Service as another program would.
func (p *provided) change(name string, how func(*corev1.Service)) {
	p.Helper()
	s := p.service(name)
	how(s)
	if _, err := p.client.CoreV1().Services(p.namespace).Update(p.Context(), s, metav1.UpdateOptions{}); err != nil {
		p.Fatal(err)
	}
}

// A Gateway gets a Service. The Service follows the Gateway, keeps what others have written, and is deleted
// when Services are turned off. Without a change nothing is written.
func TestServicesFollowTheirGateways(t *testing.T) {
	t.Parallel()
	p := newProvided(t, announce.ServiceRules(), "web")
	p.config.GatewayAPI.Services.Type = gateways.LoadBalancer
	want := p.wants["web"]
	want.Annotations["example.com/a"], want.Labels["example.com/team"] = "1", "shop"
	p.publish()
	p.await("the Service and its endpoints", func() bool { return slices.Equal(p.endpoints("web-hapsnap"), []string{"192.0.2.16 80"}) })
	made := p.service("web-hapsnap")
	g := &gatewayv1.Gateway{}
	p.read("Gateway", "web", g)
	if owner := metav1.GetControllerOf(made); owner == nil || owner.UID != g.UID || owner.Kind != "Gateway" {
		t.Errorf("owned by %+v", owner)
	}
	if made.Spec.Type != "LoadBalancer" || made.Spec.Selector != nil || made.Annotations["example.com/a"] != "1" || made.Labels["example.com/team"] != "shop" || made.Labels["gateway.networking.k8s.io/gateway-name"] != "web" {
		t.Errorf("made %+v", made)
	}
	p.says("web", "Pending", "") // the fleet is not known

	wrote := p.writes()
	for range 3 {
		p.publish()
	}
	p.change("web-hapsnap", func(s *corev1.Service) { s.Annotations["cloud.example/id"] = "lb-1" })
	nodePort := made.Spec.Ports[0].NodePort
	next := *want
	next.Ports, next.Annotations, next.Addresses = []int{80, 8443}, map[string]string{"example.com/b": "2"}, []string{"192.0.2.17", "2001:db8::1"}
	p.wants["web"] = &next
	p.publish()
	p.await("the changes", func() bool {
		return slices.Equal(p.endpoints("web-hapsnap"), []string{"192.0.2.17 80 8443", "2001:db8::1 80 8443"})
	})
	if got := p.writes() - wrote; got != 3 { // the Service and two EndpointSlices
		t.Errorf("%d requests write, want 3", got)
	}
	s := p.service("web-hapsnap")
	if _, has := s.Annotations["example.com/a"]; has || s.Annotations["example.com/b"] != "2" || s.Annotations["cloud.example/id"] != "lb-1" {
		t.Errorf("annotations %v", s.Annotations)
	}
	if len(s.Spec.Ports) != 2 || s.Spec.Ports[0].NodePort != nodePort || nodePort == 0 {
		t.Errorf("ports %+v, the node port was %d", s.Spec.Ports, nodePort)
	}

	// Changes by others are undone.
	p.change("web-hapsnap", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "x"} })
	p.publish()
	p.await("no selector", func() bool { return p.service("web-hapsnap").Spec.Selector == nil })

	// A broken Gateway keeps its Service, and so does one that a compile leaves out.
	broken := next
	broken.Ports = nil
	p.wants["web"] = &broken
	p.publish()
	delete(p.wants, "web")
	p.publish()
	p.wants["web"] = &next
	p.publish()
	if again := p.service("web-hapsnap"); again == nil || again.UID != s.UID || len(again.Spec.Ports) != 2 {
		t.Errorf("it is %+v", again)
	}

	p.config.GatewayAPI.Services.Enabled = false
	p.wants["web"] = nil
	p.publish()
	p.await("no Service", func() bool { return p.service("web-hapsnap") == nil && len(p.endpoints("web-hapsnap")) == 0 })
}

// A Gateway that begins to want the name of another one's Service does not get it, even if it comes first.
func TestServicesKeepTheirNames(t *testing.T) {
	t.Parallel()
	p := newProvided(t, announce.ServiceRules(), "a", "a-b")
	p.wants["a-b"].Name = "a-b-c"
	p.publish()
	p.await("both Services", func() bool { return len(p.endpoints("a-hapsnap")) == 1 && len(p.endpoints("a-b-c")) == 1 })
	a, ab := *p.wants["a"], *p.wants["a-b"]
	a.Name, ab.Ports = "a-b-c", []int{80, 8443}
	p.wants["a"], p.wants["a-b"] = &a, &ab
	p.publish()
	p.says("a", "NoResources", "the Service a-b-c is that of another Gateway")
	p.await("the owner's ports", func() bool { return slices.Equal(p.endpoints("a-b-c"), []string{"192.0.2.16 80 8443"}) })
	p.says("a-b", "Pending", "")
}

// The type changes together with the ports, in both directions. Fields of the former type disappear.
func TestServicesChangeTheirType(t *testing.T) {
	t.Parallel()
	p := newProvided(t, announce.ServiceRules(), "web")
	as := func(kind gateways.ServiceType, ports ...int) {
		t.Helper()
		p.config.GatewayAPI.Services.Type = kind
		want := *p.wants["web"]
		want.Ports = ports
		p.wants["web"] = &want
		p.publish()
		p.await(fmt.Sprint(kind, ports), func() bool {
			s := p.service("web-hapsnap")
			return s != nil && s.Spec.Type == corev1.ServiceType(kind) && len(s.Spec.Ports) == len(ports) && s.Spec.Ports[0].Port == int32(ports[0])
		})
	}
	for _, next := range []gateways.ServiceType{gateways.ClusterIP, gateways.NodePort} {
		as(gateways.LoadBalancer, 80)
		p.change("web-hapsnap", func(s *corev1.Service) {
			s.Spec.ExternalTrafficPolicy, s.Spec.LoadBalancerSourceRanges = corev1.ServiceExternalTrafficPolicyLocal, []string{"192.0.2.0/24"}
			s.Spec.LoadBalancerIP = "192.0.2.1"
		})
		as(next, 80, 8443)
		s := p.service("web-hapsnap")
		if s.Spec.LoadBalancerSourceRanges != nil || s.Spec.LoadBalancerIP != "" || s.Spec.HealthCheckNodePort != 0 || s.Spec.AllocateLoadBalancerNodePorts != nil {
			t.Errorf("%s has %+v", next, s.Spec)
		}
		if ports := s.Spec.Ports; (ports[0].NodePort != 0) != (next == gateways.NodePort) {
			t.Errorf("%s has %+v", next, ports)
		}
		as(next, 8443)
	}
}

// The compiler of another fleet with the same controllerName leaves foreign Services alone, whether it makes
// none or wants the same ones. It takes over a Service that names no fleet.
func TestServicesOfOtherCompilersStay(t *testing.T) {
	t.Parallel()
	p := newProvided(t, announce.ServiceRules(), "web", "api")
	p.publish()
	p.await("the Services", func() bool { return len(p.endpoints("web-hapsnap")) == 1 && len(p.endpoints("api-hapsnap")) == 1 })
	p.says("web", "Pending", "")
	p.says("api", "Pending", "")
	web, api := p.service("web-hapsnap"), p.service("api-hapsnap")

	other := *p
	other.announcer, other.config, other.wants = startBy(t, "other/compiler", p.account, true, nil), config.Default(), map[string]*gateway.Service{"web": nil, "api": nil}
	other.publish()
	// Its own Services, which it deletes after those of the first fleet, prove that it has looked.
	other.config = p.config
	other.wants = map[string]*gateway.Service{"web": {Name: "web-hapsnap", Ports: []int{8443}, Addresses: []string{"192.0.2.18"}}, "api": {Name: "own", Ports: []int{80}}}
	other.publish()
	other.says("web", "NoResources", "the Service web-hapsnap was made by the compiler with the Lease edge/compiler")
	other.await("an own one", func() bool { return p.service("own") != nil })
	other.config.GatewayAPI.Enabled = false
	other.wants = map[string]*gateway.Service{"web": nil, "api": nil}
	other.publish()
	other.await("the own one is gone", func() bool { return p.service("own") == nil })
	for _, before := range []*corev1.Service{web, api} {
		if after := p.service(before.Name); !reflect.DeepEqual(before, after) {
			t.Errorf("%s was changed: %+v", before.Name, after)
		}
	}

	p.change("web-hapsnap", func(s *corev1.Service) { delete(s.Annotations, "gateway.hapsnap.dev/compiler") })
	other.config = p.config
	other.wants = map[string]*gateway.Service{"web": {Name: "web-hapsnap", Ports: []int{8443}, Addresses: []string{"192.0.2.18"}}}
	other.publish()
	other.await("it is taken over", func() bool { return slices.Equal(p.endpoints("web-hapsnap"), []string{"192.0.2.18 8443"}) })
}

// A Service or EndpointSlice of somebody else stays unchanged, and the Gateway's status says so. If two
// Gateways want the same Service, one gets it.
func TestServicesOfOthersStay(t *testing.T) {
	t.Parallel()
	p := newProvided(t, announce.ServiceRules(), "web", "api", "twin")
	p.server.Apply(t, fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {namespace: %s, name: web-hapsnap, annotations: {gateway.hapsnap.dev/controller: hapsnap.dev/gateway-controller, gateway.hapsnap.dev/compiler: edge/compiler, gateway.hapsnap.dev/gateway: web}}, spec: {selector: {app: web}, ports: [{port: 443}]}}`, p.namespace))
	p.server.Apply(t, fmt.Sprintf(`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: %s, name: api-hapsnap-v4, labels: {kubernetes.io/service-name: other}}, addressType: IPv4, endpoints: [{addresses: [192.0.2.99]}]}`, p.namespace))
	before := p.service("web-hapsnap")
	p.wants["twin"].Name = "web-hapsnap"
	p.publish()
	p.says("api", "NoResources", "there is an EndpointSlice api-hapsnap-v4 that is not of this Gateway")
	p.await("both say so", func() bool {
		var messages []string
		for _, name := range []string{"web", "twin"} {
			g := &gatewayv1.Gateway{}
			p.read("Gateway", name, g)
			messages = append(messages, gateway.Condition(g.Status.Conditions, "Programmed").Message)
		}
		slices.Sort(messages)
		return slices.Equal(messages, []string{"the Service web-hapsnap is that of another Gateway", "there is a Service web-hapsnap that is not of this Gateway"})
	})
	if got := p.endpoints("other"); !slices.Equal(got, []string{"192.0.2.99"}) {
		t.Errorf("the other's EndpointSlice has %v", got)
	}
	// If somebody forges our mark on a Service of somebody else, it is not deleted.
	p.config.GatewayAPI.Services.Enabled = false
	for name := range p.wants {
		p.wants[name] = nil
	}
	p.publish()
	p.await("what is ours is gone", func() bool { return p.service("api-hapsnap") == nil })
	if after := p.service("web-hapsnap"); !reflect.DeepEqual(before, after) {
		t.Errorf("the Service was changed: %+v", after)
	}

	// When the foreign Service is gone, the Gateway gets its own.
	if err := p.client.CoreV1().Services(p.namespace).Delete(t.Context(), "web-hapsnap", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.config.GatewayAPI.Services.Enabled = true
	p.wants = map[string]*gateway.Service{"web": {Name: "web-hapsnap", Ports: []int{80}, Addresses: []string{"192.0.2.16"}}}
	p.publish()
	p.await("its own", func() bool {
		s := p.service("web-hapsnap")
		return s != nil && s.UID != before.UID && metav1.GetControllerOf(s) != nil
	})
}

// Without permission, the Gateways' status says so. Other statuses are still written.
func TestServicesWithoutPermission(t *testing.T) {
	t.Parallel()
	p := newProvided(t, nil, "web", "api")
	p.wants["api"] = nil
	p.publish()
	p.says("web", "NoResources", "cannot create resource")
	p.says("api", "Pending", "")
	if s := p.service("web-hapsnap"); s != nil {
		t.Errorf("there is %+v", s)
	}
}
