package pusher

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/snapshots"
)

const (
	sliceOfWeb = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 80, protocol: TCP}]
endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}}]
---`
	sliceOfBlog = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: blog, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 80, protocol: TCP}]
endpoints: [{addresses: [10.0.0.2], conditions: {ready: true}}]
---`
	emptySliceOfWeb = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: []
endpoints: []
---`
	serviceWeb = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  clusterIP: 10.96.0.7
  selector: {app: web, tier: front}
  ports: [{name: http, port: 80, targetPort: http, protocol: TCP}]
---`
	serviceOther = `
apiVersion: v1
kind: Service
metadata: {name: other, namespace: shop}
spec: {selector: {app: other}, ports: [{name: http, port: 80}]}
---`
	serviceElsewhere = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: blog}
spec: {selector: {app: web, tier: front}, ports: [{name: http, port: 80}]}
---`
	serviceWithoutSelector = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{name: http, port: 80}]}
---`
	podOfWeb = `
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop, labels: {app: web, tier: front}}
spec: {containers: [{name: web, image: "example.com/web:1"}]}
status: {phase: Running}
---`
)

// workloadOf has pods as the Service web selects them, written as in a file of somebody's.
func workloadOf(kind, namespace, replicas string) string {
	return `
apiVersion: apps/v1
kind: ` + kind + `
metadata: {name: web, namespace: ` + namespace + `, annotations: {example.com/owner: ann}}
spec:
  ` + replicas + `
  revisionHistoryLimit: 3
  selector: {matchLabels: {app: web}}
  strategy: {type: RollingUpdate}
  template:
    metadata: {labels: {app: web, tier: front, version: "2"}}
    spec:
      containers:
      - name: web
        image: example.com/web:2
        ports: [{name: http, containerPort: 8080}]
        resources: {limits: {memory: 64Mi}}
---`
}

// readObjects reads a directory with one file of manifests, as watchLive does.
func readObjects(t *testing.T, text string) liveData {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := manifests.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return translate(set)
}

// What a directory says of a Service without endpoints, by all that is in it.
func TestEvidence(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		objects string
		want    saying
	}{
		"nothing":                                {"", unsaid},
		"its slice has endpoints":                {sliceOfWeb, said},
		"its slice is there and empty":           {emptySliceOfWeb, said},
		"its slice, and no Service":              {emptySliceOfWeb + serviceOther, said},
		"a Service alone":                        {serviceWeb, unsaid},
		"a Service without a selector":           {serviceWithoutSelector + workloadOf("Deployment", "shop", "replicas: 0"), unsaid},
		"no Service, others of the namespace":    {serviceOther, unlisted},
		"no Service, others of another one":      {serviceElsewhere, unsaid},
		"a Deployment of none":                   {serviceWeb + workloadOf("Deployment", "shop", "replicas: 0"), said},
		"a StatefulSet of none":                  {serviceWeb + workloadOf("StatefulSet", "shop", "replicas: 0"), said},
		"a ReplicaSet of none":                   {serviceWeb + workloadOf("ReplicaSet", "shop", "replicas: 0"), said},
		"a Deployment of two":                    {serviceWeb + workloadOf("Deployment", "shop", "replicas: 2"), unsaid},
		"a Deployment that does not say":         {serviceWeb + workloadOf("Deployment", "shop", ""), unsaid},
		"a DaemonSet":                            {serviceWeb + workloadOf("DaemonSet", "shop", ""), unsaid},
		"a Deployment of none elsewhere":         {serviceWeb + workloadOf("Deployment", "blog", "replicas: 0"), unsaid},
		"a Deployment of none, of another app":   {serviceWeb + strings.ReplaceAll(workloadOf("Deployment", "shop", "replicas: 0"), "tier: front", "tier: back"), unsaid},
		"a Deployment of none and one of two":    {serviceWeb + workloadOf("Deployment", "shop", "replicas: 0") + workloadOf("StatefulSet", "shop", "replicas: 2"), unsaid},
		"a Deployment of none, and a Pod":        {serviceWeb + workloadOf("Deployment", "shop", "replicas: 0") + podOfWeb, unsaid},
		"a Deployment of none, and no Service":   {workloadOf("Deployment", "shop", "replicas: 0"), unsaid},
		"replicas that are no number":            {serviceWeb + workloadOf("Deployment", "shop", "replicas: none"), unsaid},
		"a Service that cannot be decoded":       {serviceOther + "\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: nonsense\n", unsaid},
		"a workload of a kind that nobody knows": {serviceWeb + "\napiVersion: example.com/v1\nkind: Rollout\nmetadata: {name: web, namespace: shop}\nspec: {replicas: 0}\n", unsaid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read := readObjects(t, test.objects)
			if got := read.evidence.of(sp("shop/web:http")); got != test.want || read.unsure {
				t.Errorf("the directory speaks of it as %v, want %v; problems %q", got, test.want, read.problems)
			}
		})
	}
}

// What becomes of the endpoints that are known, when a directory has other manifests.
func TestLossesOfADirectory(t *testing.T) {
	t.Parallel()
	const both = sliceOfWeb + sliceOfBlog
	for name, test := range map[string]struct {
		then string
		want string // of shop/web and blog/web, and what is kept
	}{
		"the same":                     {both, "1 1 []"},
		"nothing":                      {"", "1 1 [blog/web:http shop/web:http]"},
		"half of it":                   {sliceOfBlog, "1 1 [shop/web:http]"},
		"half of it is empty":          {emptySliceOfWeb + sliceOfBlog, "0 1 []"},
		"half of it is scaled to zero": {serviceWeb + workloadOf("Deployment", "shop", "replicas: 0") + sliceOfBlog, "0 1 []"},
		"half of it runs elsewhere":    {serviceWeb + workloadOf("Deployment", "shop", "replicas: 2") + sliceOfBlog, "1 1 [shop/web:http]"},
		// Services vanish from a directory together with their slices: half of everything.
		"half of it, Services too":       {serviceOther + sliceOfBlog, "1 1 [shop/web:http]"},
		"all of it is scaled to zero":    {serviceWeb + workloadOf("Deployment", "shop", "replicas: 0") + serviceElsewhere + workloadOf("Deployment", "blog", "replicas: 0"), "0 0 []"},
		"a file that cannot be parsed":   {"\nkind: [\n---" + sliceOfBlog, "1 1 []"},
		"a slice that breaks its schema": {strings.ReplaceAll(sliceOfWeb, "[{name: http, port: 80, protocol: TCP}]", "nonsense") + sliceOfBlog, "1 1 []"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := snapshots.Snapshot{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(
				"backend a\n    #hapsnap servers shop/web:http\nbackend b\n    #hapsnap servers blog/web:http\n")}}}
			o := Options{Live: "directory", State: filepath.Join(t.TempDir(), "state.json")}
			e := newEngine(o.withDefaults(), state{}, nil, noon)
			e.bindings.use(map[snapshots.ID]snapshots.Snapshot{{Revision: 1, Short: "aaaaaaaaaa"}: s})
			e.takeLive(readObjects(t, both), nil, noon)
			e.takeLive(readObjects(t, test.then), nil, noon.Add(time.Second))
			known := e.live.Endpoints
			got := fmt.Sprint(len(known[sp("shop/web:http")]), len(known[sp("blog/web:http")]), e.losses.guard.ports())
			if got != test.want {
				t.Errorf("known and kept are %s, want %s", got, test.want)
			}
		})
	}
}
