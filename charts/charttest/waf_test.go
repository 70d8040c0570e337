package charttest

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The agent that inspects requests is a sidecar before HAProxy. It listens on the socket in the configuration,
// in a folder that both mount. Without waf.enabled, the chart has nothing of it.
func TestWAF(t *testing.T) {
	t.Parallel()
	const folder = "/run/hapsnap-waf"
	v := named(t, "waf")
	fleet, ok := fleetOf(t, v)
	if !ok {
		t.Fatal("no fleet")
	}
	spec := specOf(t, fleet)
	i := slices.IndexFunc(spec.InitContainers, func(c corev1.Container) bool { return c.Name == "waf" })
	if i < 0 {
		t.Fatal("no agent")
	}
	agent := spec.InitContainers[i]
	if agent.RestartPolicy == nil || *agent.RestartPolicy != corev1.ContainerRestartPolicyAlways || agent.StartupProbe == nil {
		t.Errorf("%+v is no sidecar that HAProxy waits for", agent)
	}
	if !slices.Contains(agent.Args, "--listen=unix@"+folder+"/spop.sock") || agent.Args[len(agent.Args)-1] != "--max-policies=32" {
		t.Errorf("arguments: %v", agent.Args)
	}
	for _, c := range []corev1.Container{agent, spec.Containers[0]} {
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == folder && m.Name == "waf" && !m.ReadOnly }) {
			t.Errorf("%s does not see the socket: %v", c.Name, c.VolumeMounts)
		}
	}
	if n := strings.Count(v.rendered(t), "socket: "+folder+"/spop.sock"); n != 1 || !strings.Contains(v.rendered(t), "processing: 700ms") {
		t.Errorf("the configuration names the socket %d times", n)
	}
	if !slices.ContainsFunc(v.objects(t), func(o unstructured.Unstructured) bool {
		text, err := o.MarshalJSON()
		return err == nil && o.GetKind() == "NetworkPolicy" && strings.Contains(string(text), "9097")
	}) {
		t.Error("no NetworkPolicy lets anybody read metrics")
	}
	if strings.Contains(named(t, "minimal").rendered(t), "hapsnap-waf") {
		t.Error("there is an agent by default")
	}
}

// Impossible values are refused, with a hint.
func TestWAFIsChecked(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"waf.port=8404": "is the status port and waf.port",
		"compiler.config.waf.service=edge/waf:spop": "names another agent than that of waf.enabled",
		"haproxy.enabled=false":                     "the agent runs in pods of HAProxy",
		"waf.port=80":                               "waf/port",
	} {
		args := []string{"--values", named(t, "waf").values, "--set", set}
		if set == "haproxy.enabled=false" {
			args = append(args, "--set", "pusher.enabled=false")
		}
		if _, err := Template(t, "helm", "edge", args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", set, err)
		}
	}
}
