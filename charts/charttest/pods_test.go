package charttest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// fleetOf returns the object that makes the HAProxy pods.
func fleetOf(t *testing.T, v *variant) (unstructured.Unstructured, bool) {
	t.Helper()
	for _, kind := range []string{"Deployment", "DaemonSet", "StatefulSet"} {
		if o, ok := v.component(t, kind, "haproxy"); ok {
			return o, true
		}
	}
	return unstructured.Unstructured{}, false
}

// The Dataplane API is a sidecar without a startup probe. With one, HAProxy's container would wait for the API,
// which itself waits for HAProxy.
func TestAPIIsASidecarThatNothingWaitsFor(t *testing.T) {
	t.Parallel()
	for _, v := range all(t) {
		o, ok := fleetOf(t, v)
		if !ok {
			continue
		}
		spec := specOf(t, o)
		api := spec.InitContainers[len(spec.InitContainers)-1]
		switch {
		case api.Name != "dataplaneapi" || api.RestartPolicy == nil || *api.RestartPolicy != corev1.ContainerRestartPolicyAlways:
			t.Errorf("%s: %s is no sidecar", v.name, api.Name)
		case api.StartupProbe != nil || api.ReadinessProbe != nil:
			t.Errorf("%s: the pod waits for the API", v.name)
		case api.LivenessProbe.TCPSocket == nil: // bootstrap answers it while it waits
			t.Errorf("%s: the probe of the API is %+v", v.name, api.LivenessProbe)
		}
		if *spec.AutomountServiceAccountToken {
			t.Errorf("%s: HAProxy has a token of the API server", v.name)
		}
	}
}

// A pod continues to serve while its endpoint is removed. Then connections may finish for as long as the
// configuration says, and the kubelet waits for all of it. A scale-down waits too. There is no kubelet hook,
// and HAProxy closes no idle connections early.
func TestDrainIsInLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ propagation, seconds int64 }{
		{15, 300}, {1, 1}, {20, 600}, {3600, 86400},
	} {
		text, err := Template(t, "helm", "edge", "--values", named(t, "autoscaling").values,
			"--set", fmt.Sprintf("haproxy.drain.propagationSeconds=%d,haproxy.drain.seconds=%d", c.propagation, c.seconds))
		if err != nil {
			t.Fatal(err)
		}
		objects := Objects(t, text)
		spec := specOf(t, Find(t, objects, "Deployment", Release+"-hapsnap-haproxy"))
		haproxy := spec.Containers[0]
		for name, want := range map[string]int64{"DRAIN_PROPAGATION_SECONDS": c.propagation, "DRAIN_SECONDS": c.seconds} {
			if !slices.Contains(haproxy.Env, corev1.EnvVar{Name: name, Value: fmt.Sprint(want)}) {
				t.Errorf("%v: %s is not %d", c, name, want)
			}
		}
		if got := *spec.TerminationGracePeriodSeconds; got <= c.propagation+c.seconds {
			t.Errorf("%v: the kubelet kills HAProxy after %d s", c, got)
		}
		if haproxy.Lifecycle != nil {
			t.Errorf("%v: HAProxy hears late that it is to end: %v", c, haproxy.Lifecycle)
		}
		config, _, _ := unstructured.NestedString(Find(t, objects, "ConfigMap", Release+"-hapsnap-compiler").Object, "data", "config.yaml")
		if !strings.Contains(config, fmt.Sprintf("hardStopAfter: %ds\n", c.seconds)) || strings.Contains(config, "closeSpreadTime") {
			t.Errorf("%v: in\n%s", c, config)
		}
		var scaler autoscalingv2.HorizontalPodAutoscaler
		convert(t, Find(t, objects, "HorizontalPodAutoscaler", Release+"-hapsnap-haproxy"), &scaler)
		if got := int64(*scaler.Spec.Behavior.ScaleDown.StabilizationWindowSeconds); got < min(3600, c.propagation+c.seconds) {
			t.Errorf("%v: scaled down after %d s", c, got)
		}
	}
}

// Two pods on a node cannot have the same ports: a new one starts only after the old one has ended.
func TestPodsOnNodePortsAreNotDoubled(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, v := range all(t) {
		o, ok := fleetOf(t, v)
		if !ok {
			continue
		}
		spec := specOf(t, o)
		onNode := spec.HostNetwork || slices.ContainsFunc(spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 })
		if !onNode {
			continue
		}
		seen++
		var surge string
		switch o.GetKind() {
		case "Deployment":
			var d appsv1.Deployment
			convert(t, o, &d)
			surge = d.Spec.Strategy.RollingUpdate.MaxSurge.String()
		case "DaemonSet":
			var d appsv1.DaemonSet
			convert(t, o, &d)
			surge = d.Spec.UpdateStrategy.RollingUpdate.MaxSurge.String()
		}
		if surge != "0" {
			t.Errorf("%s: maxSurge is %s", v.name, surge)
		}
		if spec.HostNetwork && (spec.DNSPolicy != corev1.DNSClusterFirstWithHostNet || len(spec.SecurityContext.Sysctls) > 0) {
			t.Errorf("%s: dnsPolicy %s, sysctls %v", v.name, spec.DNSPolicy, spec.SecurityContext.Sysctls)
		}
	}
	if seen < 3 {
		t.Errorf("%d variants on nodes", seen)
	}
}

// Ports below 1024 need a sysctl, and no capability.
func TestLowPortsTakeASysctl(t *testing.T) {
	t.Parallel()
	for _, v := range all(t) {
		o, ok := fleetOf(t, v)
		if !ok {
			continue
		}
		spec := specOf(t, o)
		low := slices.ContainsFunc(spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort < 1024 })
		has := slices.Contains(spec.SecurityContext.Sysctls, corev1.Sysctl{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"})
		if low && !has && !spec.HostNetwork {
			t.Errorf("%s: no sysctl", v.name)
		}
	}
}

// An upgrade that changes only the version of the chart restarts no pod.
func TestChartVersionRestartsNothing(t *testing.T) {
	t.Parallel()
	for _, v := range all(t) {
		for _, o := range v.objects(t) {
			if pod, ok := podOf(o); ok {
				for key, value := range pod.GetLabels() {
					if strings.Contains(key, "chart") || strings.Contains(key, "version") {
						t.Errorf("%s: pods of %s have the label %s=%s", v.name, o.GetName(), key, value)
					}
				}
			}
		}
	}
}

// kubectl describe shows the end of the log of every container that failed, such as the invalid line of a
// configuration.
func TestPodsSayWhyTheyEnded(t *testing.T) {
	t.Parallel()
	for _, v := range all(t) {
		for _, o := range v.objects(t) {
			pod, ok := podOf(o)
			if !ok {
				continue
			}
			spec := specOf(t, pod)
			for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
				if c.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
					t.Errorf("%s: %s %s: container %s does not", v.name, o.GetKind(), o.GetName(), c.Name)
				}
			}
		}
	}
}

// Every mount has its volume, and every volume is mounted. No private key is on a disk.
func TestVolumes(t *testing.T) {
	t.Parallel()
	for _, v := range all(t) {
		for _, o := range v.objects(t) {
			pod, ok := podOf(o)
			if !ok {
				continue
			}
			spec := specOf(t, pod)
			mounted := map[string]bool{}
			for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
				for _, m := range c.VolumeMounts {
					mounted[m.Name] = true
				}
			}
			for _, volume := range spec.Volumes {
				if !mounted[volume.Name] {
					t.Errorf("%s: %s mounts no %s", v.name, o.GetName(), volume.Name)
				}
				if (volume.Name == "certificates" || volume.Name == "api") && volume.EmptyDir.Medium != corev1.StorageMediumMemory {
					t.Errorf("%s: %s is on a disk", v.name, volume.Name)
				}
			}
		}
	}
}

// Two releases in a cluster share neither the class nor its controller nor any name.
func TestTwoReleasesShareNothing(t *testing.T) {
	t.Parallel()
	first, second := named(t, "minimal"), named(t, "second-release")
	names := map[string]bool{}
	for _, o := range first.objects(t) {
		if o.GetNamespace() == "" {
			names[o.GetKind()+" "+o.GetName()] = true
		}
	}
	controllers := map[string]bool{}
	for _, v := range []*variant{first, second} {
		class, _ := v.component(t, "IngressClass", "compiler")
		controller, _, _ := unstructured.NestedString(class.Object, "spec", "controller")
		config, _ := v.component(t, "ConfigMap", "compiler")
		text, _, _ := unstructured.NestedString(config.Object, "data", "config.yaml")
		if !strings.Contains(text, "controllerClass: "+controller+"\n") || !strings.Contains(text, "ingressClass: "+class.GetName()+"\n") {
			t.Errorf("%s: the compiler does not follow class %s of %s:\n%s", v.name, class.GetName(), controller, text)
		}
		controllers[controller] = true
	}
	if len(controllers) != 2 {
		t.Errorf("controllers: %v", controllers)
	}
	for _, o := range second.objects(t) {
		if o.GetNamespace() == "" && names[o.GetKind()+" "+o.GetName()] {
			t.Errorf("both have %s %s", o.GetKind(), o.GetName())
		}
	}
}

// Uninstalling leaves the snapshots.
func TestStoreIsKept(t *testing.T) {
	t.Parallel()
	store, ok := named(t, "minimal").component(t, "Namespace", "store")
	if !ok || store.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
		t.Errorf("annotations of the store's namespace: %v", store.GetAnnotations())
	}
}

// Values that cannot work are refused, with a hint.
func TestRefusals(t *testing.T) {
	t.Parallel()
	var ready []string // for the default values
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"nobody makes a password", []string{"--set", "pusher.enabled=false"}, "haproxy.dataplane.existingSecret is missing"},
		{"nobody makes a certificate", []string{"--set", "pusher.enabled=false,haproxy.dataplane.existingSecret=dataplane"}, "haproxy.dataplane.tls.existingSecret is missing"},
		{"an authority without a certificate", []string{"--set", "haproxy.dataplane.tls.caSecret=ca"}, "set haproxy.dataplane.tls.existingSecret too"},
		{"no fleet", []string{"--set", "haproxy.enabled=false"}, "the pusher has no instances: set haproxy.enabled"},
		{"low ports of nodes", append(ready, "--set", "haproxy.hostNetwork=true"), "may not open ports below 1024"},
		{"webhook's authority without a certificate", []string{"--set", "compiler.webhook.enabled=true,compiler.webhook.caBundle=Y2E="}, "set compiler.webhook.existingSecret too"},
		{"webhook without an authority", append(ready, "--set", "compiler.webhook.enabled=true,compiler.webhook.existingSecret=a"), "caBundle is missing"},
		{"scope without namespaces", append(ready, "--set", "rbac.scope=namespaces"), "rbac.namespaces is empty"},
		{"signers without keys", append(ready, "--set", "store.signing.allowedSignersConfigMap=signers"), "both programs need a key"},
		{"daemonset that scales", append(ready, "--set", "haproxy.kind=DaemonSet,haproxy.autoscaling.enabled=true"), "cannot be scaled"},
		{"fewest of more than most", append(ready, "--set", "haproxy.autoscaling.enabled=true,haproxy.autoscaling.minReplicas=5,haproxy.autoscaling.maxReplicas=2"), "minReplicas is more than maxReplicas"},
		{"no time to drain", append(ready, "--set", "pusher.drainTime=0s"), "pusher.drainTime is 0"},
		{"none and some", append(ready, "--set", "pusher.refuseEndpoints={none,default}"), "none stands alone"},
		{"nothing is kept", append(ready, "--set", "store.gc.keep=0"), "gc/keep"},
		{"two drains", append(ready, "--set", "compiler.config.hardStopAfter=10m"), "set haproxy.drain.seconds"},
		{"no status", append(ready, "--set", "compiler.config.status.port=0"), "the probes of HAProxy need it"},
		{"a Gateway at a port of Ingresses", append(ready, "--set", "gatewayAPI.enabled=true,gatewayAPI.ports={80}"), "port 80/TCP of HAProxy's pods is http and gateway-80"},
		{"a Gateway at the port of probes", append(ready, "--set", "gatewayAPI.enabled=true,gatewayAPI.ports={8404}"), "is the status port and gateway-8404"},
		{"a port of the Service twice", append(ready, "--set", "gatewayAPI.enabled=true,gatewayAPI.ports={80},compiler.config.http.port=8080"), "port 80/TCP of the traffic Service is http and gateway-80"},
		{"no port for traffic", append(ready, "--set", "compiler.config.http.port=0,compiler.config.https.port=0"), "haproxy.service has no port"},
		{"no port in the Service", append(ready, "--set", "haproxy.service.http.enabled=false,haproxy.service.https.enabled=false"), "haproxy.service has no port"},
		{"metrics of HAProxy that are off", append(ready, "--set", "monitoring.podMonitor.enabled=true,compiler.config.status.prometheus.enabled=false"), "monitoring.podMonitor: HAProxy has no metrics"},
		{"a password in the store's URL", append(ready, "--set", "store.url=git+https://bot:s3cr3t@git.example/edge.git"), "store.git.tokenKey"},
		{"a port that is none", append(ready, "--set", "compiler.config.http.port=70000"), "port 70000/TCP of HAProxy's pods, which is http: use 1 to 65535"},
		{"a status port that is none", append(ready, "--set", "compiler.config.status.port=70000"), "compiler.config.status.port is 70000: use 1 to 65535"},
		{"a port of the Service that is none", append(ready, "--set", "haproxy.service.extraPorts[0].name=x,haproxy.service.extraPorts[0].port=70000"), "port 70000/TCP of the traffic Service, which is x: use 1 to 65535"},
		{"a typo in the store's URL", append(ready, "--set", "store.url=git+https://git.example/edge.git?brnch=x"), `store.url: "brnch=x" is not known after ?`},
		{"no schedule", append(ready, "--set", "store.gc.schedule=daily"), `store.gc.schedule is "daily": use five fields`},
		{"a minute too late", append(ready, "--set", "store.gc.schedule=61 3 * * *"), `store.gc.schedule is "61 3 * * *"`},
		{"a name that is too long", append(ready, "--set", "store.namespace="+strings.Repeat("a", 64)), "is longer than 63 characters"},
		{"typo", append(ready, "--set", "haproxy.servise.type=NodePort"), "servise"},
		{"typo at the top", append(ready, "--set", "compilers.replicas=1"), "compilers"},
		{"typo deep down", append(ready, "--set", "haproxy.service.http.nodeport=30080"), "nodeport"},
		{"no such kind", append(ready, "--set", "haproxy.kind=Daemonset"), "haproxy/kind"},
		{"number as a version", append(ready, "--set-json", "haproxyLine=3.2"), "haproxyLine"},
		{"no duration", append(ready, "--set-string", "compiler.lease.duration=15"), "lease/duration"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := Template(t, "helm", "edge", c.args...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if _, said, _ := strings.Cut(err.Error(), "\n"); strings.Contains(said, "s3cr3t") { // below the command
				t.Error(said)
			}
		})
	}
}

// Kubernetes takes these schedules.
func TestSchedulesAreTaken(t *testing.T) {
	t.Parallel()
	for _, schedule := range []string{"@daily", "@every 12h", "*/15 3,4 1-7 JAN-MAR mon", "0 0 31 12 0", "5 4-20/2 ? * *"} {
		if _, err := Template(t, "helm", "edge", "--set-json", fmt.Sprintf("store.gc.schedule=%q", schedule)); err != nil {
			t.Errorf("%s: %v", schedule, err)
		}
	}
}

// A user name in the URL of a store is not a password, and neither are a port and an @ in a path.
func TestStoreURLsAreTaken(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"git+ssh://git@git.example/edge.git", "git+https://bot@git.example:8443/edge.git?branch=a", "git+https://git.example/edge.git?branch=a&review=b&deliver=c/d", "git+https://git.example:8443/a@b/edge.git"} {
		if _, err := Template(t, "helm", "edge", "--set", "store.url="+url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// A registry may end with a slash. A kubelet refuses a name of an image with two of them.
func TestRegistryWithASlash(t *testing.T) {
	t.Parallel()
	text, err := Template(t, "helm", "edge", "--set", "global.imageRegistry=registry.example/")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "image: registry.example/hapsnap/pusher:") || strings.Contains(text, "registry.example//") {
		t.Error("the names of images are not those of registry.example")
	}
}

// Classes belong to compilers: a class in a release without a compiler would promise that Ingresses are served.
func TestNoClassWithoutACompiler(t *testing.T) {
	t.Parallel()
	for _, o := range named(t, "pusher-only").objects(t) {
		if kind := o.GetKind(); kind == "IngressClass" || kind == "GatewayClass" {
			t.Errorf("there is %s %s", kind, o.GetName())
		}
	}
}

// The webhook checks Gateways and routes if they are compiled.
func TestWebhookIsAskedAboutGateways(t *testing.T) {
	t.Parallel()
	var judged []string
	for _, kind := range inputs.GatewayKinds() {
		if kind.Judged {
			judged = append(judged, kind.Resource)
		}
	}
	for _, enabled := range []bool{false, true} {
		text, err := Template(t, "helm", "edge", "--values", named(t, "minimal").values, "--set", fmt.Sprintf("compiler.webhook.enabled=true,gatewayAPI.enabled=%v", enabled))
		if err != nil {
			t.Fatal(err)
		}
		if asked := strings.Contains(text, "resources: ["+strings.Join(judged, ", ")+"]\n    operations: [CREATE, UPDATE]\n"); asked != enabled {
			t.Errorf("gatewayAPI.enabled=%v: asked %v", enabled, asked)
		}
		want := map[bool]int{false: 1, true: 2}[enabled]
		if got := strings.Count(text, `expression: "!has(object.metadata.deletionTimestamp)"`); got != want {
			t.Errorf("gatewayAPI.enabled=%v: %d webhooks let go of objects that are being deleted, not %d", enabled, got, want)
		}
	}
}

// global and enabled may have values of other charts.
func TestSharedValuesAreTaken(t *testing.T) {
	t.Parallel()
	if _, err := Template(t, "helm3", "edge", "--values", named(t, "minimal").values, "--set", "global.storageClass=fast,enabled=true"); err != nil {
		t.Error(err)
	}
}

// The first line of every variant describes it.
func TestVariantsSayWhatTheyAre(t *testing.T) {
	t.Parallel()
	comment := regexp.MustCompile(`^# [A-Z].*\.\n`)
	for _, v := range all(t) {
		content, err := os.ReadFile(filepath.Clean(v.values))
		if err != nil {
			t.Fatal(err)
		}
		if !comment.Match(content) {
			t.Errorf("%s: no comment", v.name)
		}
	}
}
