package charttest

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Each port of a Service leads to a port of its pods. The network policies open exactly the ports of the pods.
// Monitors use existing ports.
func TestPortsAgree(t *testing.T) {
	t.Parallel()
	for _, v := range all(t) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			open := podPorts(t, v)
			for _, o := range v.objects(t) {
				switch o.GetKind() {
				case "Service":
					var service corev1.Service
					convert(t, o, &service)
					checkService(t, service, open)
				case "NetworkPolicy":
					var policy networkingv1.NetworkPolicy
					convert(t, o, &policy)
					checkPolicy(t, policy, open)
				}
			}
		})
	}
}

// ports are the ports of a component's pods: their numbers with protocol, and their names.
type ports struct {
	labels  labels.Set
	numbers map[string]bool
	names   map[string]string
}

func podPorts(t *testing.T, v *variant) map[string]ports {
	t.Helper()
	out := map[string]ports{}
	for _, o := range v.objects(t) {
		pod, ok := podOf(o)
		if !ok {
			continue
		}
		p := ports{labels: pod.GetLabels(), numbers: map[string]bool{}, names: map[string]string{}}
		spec := specOf(t, pod)
		for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
			for _, port := range c.Ports {
				number := fmt.Sprintf("%d/%s", port.ContainerPort, protocol(port.Protocol))
				p.numbers[number] = true
				p.names[port.Name] = number
			}
		}
		if v.name == "ports" && pod.GetLabels()["app.kubernetes.io/component"] == "haproxy" {
			p.numbers["9000/TCP"] = true // from an annotation
		}
		out[o.GetName()] = p
	}
	return out
}

func protocol(p corev1.Protocol) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}
	return p
}

func checkService(t *testing.T, service corev1.Service, open map[string]ports) {
	t.Helper()
	pods := selected(open, service.Spec.Selector)
	if len(pods) != 1 {
		t.Errorf("Service %s selects the pods of %d objects", service.Name, len(pods))
	}
	for _, p := range pods {
		for _, port := range service.Spec.Ports {
			if port.TargetPort.Type == intstr.String && p.names[port.TargetPort.StrVal] == "" {
				t.Errorf("Service %s: no port of a pod is named %s", service.Name, port.TargetPort.StrVal)
			}
			if port.TargetPort.Type == intstr.Int && !p.numbers[fmt.Sprintf("%d/%s", port.TargetPort.IntVal, protocol(port.Protocol))] {
				t.Errorf("Service %s: no pod has port %d", service.Name, port.TargetPort.IntVal)
			}
		}
	}
}

func checkPolicy(t *testing.T, policy networkingv1.NetworkPolicy, open map[string]ports) {
	t.Helper()
	got, anybody := map[string]bool{}, map[string]bool{}
	for _, rule := range policy.Spec.Ingress {
		if len(rule.Ports) == 0 {
			t.Errorf("NetworkPolicy %s opens all ports", policy.Name)
		}
		for _, port := range rule.Ports {
			anybody[fmt.Sprintf("%d/%s", port.Port.IntVal, protocol(*port.Protocol))] = len(rule.From) == 0
			got[fmt.Sprintf("%d/%s", port.Port.IntVal, protocol(*port.Protocol))] = true
			if port.Port.IntVal >= 5555 && port.Port.IntVal <= 5556 && len(rule.From) == 0 {
				t.Errorf("NetworkPolicy %s: anybody reaches the Dataplane API", policy.Name)
			}
		}
	}
	pods := selected(open, policy.Spec.PodSelector.MatchLabels)
	if len(pods) != 1 {
		t.Fatalf("NetworkPolicy %s selects the pods of %d objects", policy.Name, len(pods))
	}
	for _, p := range pods {
		if anybody[p.names["ui"]] {
			t.Errorf("NetworkPolicy %s: anybody reaches the page", policy.Name)
		}
		if !maps.Equal(got, p.numbers) {
			t.Errorf("NetworkPolicy %s opens %v, the pods have %v", policy.Name, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(p.numbers)))
		}
	}
}

// Without a port for traffic, the network policy has no rule for it. A rule without ports would open all ports,
// also that of the Dataplane API.
func TestNoPortForTrafficOpensNone(t *testing.T) {
	t.Parallel()
	v := &variant{name: "edge"}
	v.once.Do(func() {
		v.text, v.err = Template(t, "helm", v.name, "--set", "compiler.config.http.port=0,compiler.config.https.port=0,haproxy.service.enabled=false")
	})
	open := podPorts(t, v)
	policies := 0
	for _, o := range v.objects(t) {
		if o.GetKind() == "NetworkPolicy" {
			var policy networkingv1.NetworkPolicy
			convert(t, o, &policy)
			checkPolicy(t, policy, open)
			policies++
		}
	}
	if policies != 3 {
		t.Errorf("%d network policies", policies)
	}
}

func selected(open map[string]ports, selector map[string]string) []ports {
	var out []ports
	for _, name := range slices.Sorted(maps.Keys(open)) {
		if labels.SelectorFromSet(selector).Matches(open[name].labels) {
			out = append(out, open[name])
		}
	}
	return out
}
