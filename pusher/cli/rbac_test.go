package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

const rolesOfAStore = `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  labels:
    app.kubernetes.io/component: pusher
    app.kubernetes.io/name: hapsnap
  name: hapsnap-pusher
  namespace: edge
rules:
- apiGroups:
  - ""
  resources:
  - configmaps
  verbs:
  - get
  - list
  - watch
- apiGroups:
  - ""
  resourceNames:
  - edge
  resources:
  - namespaces
  verbs:
  - get
- apiGroups:
  - ""
  resourceNames:
  - shop-channel
  resources:
  - configmaps
  verbs:
  - update
- apiGroups:
  - ""
  resourceNames:
  - shop-status
  resources:
  - configmaps
  verbs:
  - patch
- apiGroups:
  - events.k8s.io
  resources:
  - events
  verbs:
  - create
  - patch
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  labels:
    app.kubernetes.io/component: pusher
    app.kubernetes.io/name: hapsnap
  name: hapsnap-pusher
  namespace: edge
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: hapsnap-pusher
subjects:
- kind: ServiceAccount
  name: pusher
  namespace: edge
`

func TestRBAC(t *testing.T) {
	t.Parallel()
	if code, out, errs := pusherCommand(t, "rbac", "--store", "configmap:edge/shop", "--service-account", "edge/pusher"); code != process.ExitOK || out != rolesOfAStore {
		t.Errorf("exit code %d, printed %s%s", code, out, errs)
	}
	for said, args := range map[string][]string{
		"is not configmap:NAMESPACE/NAME": {"--store", "dir:" + t.TempDir()},
		"--service-account: ":             {"--store", "configmap:edge/shop", "--service-account", "pusher"},
		"nothing is named":                {"--state", "state.json"},
		"is not secret:NAMESPACE/NAME":    {"--state", "secret:pusher"},
		"is not namespace/name":           {"--state", "secret:edge/pusher", "--lease", "pusher"},
	} {
		if code, _, errs := pusherCommand(t, append([]string{"rbac"}, args...)...); code != process.ExitUsage || !strings.Contains(errs, said) {
			t.Errorf("%v: exit code %d, said %s", args, code, errs)
		}
	}
}

// What snapshots and a fleet of pods need is granted, each in its namespace, and nothing
// for what is read elsewhere.
func TestRBACOfSnapshotsAndPods(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := dirstore.Open(filepath.Join(dir, "store"), dirstore.Options{})
	for _, text := range []string{"old/app:http", "shop/web:http"} {
		namespace, _, _ := strings.Cut(text, "/")
		_, _, err := store.Publish(t.Context(), snapshots.Draft{
			Files:        []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("global\n\nbackend b\n    #hapsnap servers " + text + "\n")}},
			Certificates: []snapshots.CertificateRef{{File: "certs/" + namespace + ".pem", Secret: snapshots.SecretName{Namespace: namespace, Name: "tls"}}}, Time: time.Now(),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	fleet := filepath.Join(dir, "fleet.yaml")
	if err := os.WriteFile(fleet, []byte(`apiVersion: hapsnap.dev/v1alpha1
kind: Fleet
metadata: {name: edge}
spec:
  pods:
    namespace: edge
    selector: {matchLabels: {app: haproxy}}
    port: 5555
    credentialsSecret: {name: dataplane}
    tls: {caSecret: ca}
    zoneFrom: {nodeLabel: rack}
    directories: {maps: /m, certificates: /c, general: /g}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	url := "dir:" + filepath.Join(dir, "store")
	const secrets, slices = "secrets get,list,watch", "endpointslices get,list,watch"
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"the newest snapshot": {
			[]string{"--snapshots", "1"}, "shop: " + secrets + " tls; " + slices + "; events create,patch\n",
		},
		"all, in all namespaces": {
			[]string{"--all-namespaces"}, ": " + slices + "\nold: " + secrets + " tls; events create,patch\nshop: " + secrets + " tls; events create,patch\n",
		},
		"pods alone": {
			[]string{"--live", "manifests", "--instances", fleet}, ": nodes get,list,watch\nedge: pods get,list,watch; " + secrets + " ca,dataplane; events create,patch\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errs := pusherCommand(t, append([]string{"rbac", "--store", url}, test.args...)...)
			if got := rolesIn(t, out); code != process.ExitOK || got != test.want {
				t.Errorf("exit code %d, granted\n%swant\n%s%s", code, got, test.want, errs)
			}
		})
	}
}

// rolesIn returns what roles grant, a line for each.
func rolesIn(t *testing.T, manifests string) string {
	t.Helper()
	var out strings.Builder
	for _, text := range strings.Split(manifests, "---\n") {
		var role rbacv1.Role
		if err := yaml.Unmarshal([]byte(text), &role); err != nil {
			t.Fatal(err)
		}
		var rules []string
		for _, r := range role.Rules {
			rules = append(rules, strings.TrimSpace(strings.Join(r.Resources, ",")+" "+strings.Join(r.Verbs, ",")+" "+strings.Join(r.ResourceNames, ",")))
		}
		if len(rules) > 0 {
			out.WriteString(role.Namespace + ": " + strings.Join(rules, "; ") + "\n")
		}
	}
	return out.String()
}

// A state in a Secret takes that, and the Lease of its name, or another.
func TestRBACOfAState(t *testing.T) {
	t.Parallel()
	const state = "secrets create; secrets get,update pusher"
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"alone":           {nil, "edge: " + state + "; leases create; leases get,update pusher\n"},
		"another Lease":   {[]string{"--lease", "leases/shop"}, "edge: " + state + "\nleases: leases create; leases get,update shop\n"},
		"a store as well": {[]string{"--store", "configmap:edge/shop"}, "edge: configmaps get,list,watch; namespaces get edge; configmaps update shop-channel; configmaps patch shop-status; events create,patch; " + state + "; leases create; leases get,update pusher\n"},
	} {
		code, out, errs := pusherCommand(t, append([]string{"rbac", "--state", "secret:edge/pusher"}, test.args...)...)
		if got := rolesIn(t, out); code != process.ExitOK || got != test.want {
			t.Errorf("%s: exit code %d, granted\n%swant\n%s%s", name, code, got, test.want, errs)
		}
	}
}
