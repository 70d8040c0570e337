package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// rolesOfAStore are all printed objects for a store in the cluster, with the granted permissions.
const rolesOfAStore = `Namespace edge
ServiceAccount edge/pusher
ClusterRole hapsnap-pusher-endpoints: endpointslices get,list,watch
ClusterRoleBinding hapsnap-pusher-endpoints
ClusterRole hapsnap-pusher-events: events create,patch
ClusterRoleBinding hapsnap-pusher-events
ClusterRole hapsnap-pusher-secrets: secrets get,list,watch
ClusterRoleBinding hapsnap-pusher-secrets
Role edge/hapsnap-pusher-store: configmaps get,list,watch; namespaces get edge; configmaps update shop-channel; configmaps patch shop-status
RoleBinding edge/hapsnap-pusher-store
Role edge/hapsnap-pusher-store-events: events create,patch
RoleBinding edge/hapsnap-pusher-store-events
Role edge/hapsnap-pusher-viewer: configmaps get,list,watch; namespaces get edge
Role edge/hapsnap-pusher-operator: configmaps get,list,watch; namespaces get edge; configmaps patch,update shop-channel; events create
Role edge/hapsnap-pusher-approver: configmaps get,list,watch; namespaces get edge; configmaps patch,update shop-channel; events create
`

func TestRBAC(t *testing.T) {
	t.Parallel()
	if code, out, errs := pusherCommand(t, "rbac", "--store", "configmap:edge/shop", "--service-account", "edge/pusher"); code != process.ExitOK || objectsIn(t, out) != rolesOfAStore {
		t.Errorf("exit code %d, printed %s%s", code, out, errs)
	}
	for said, args := range map[string][]string{
		"--scope=some is none":          {"--store", "configmap:edge/shop", "--scope", "some"},
		"--scope=namespaces= is none":   {"--store", "configmap:edge/shop", "--scope", "namespaces="},
		"configmap:edge/shop cannot be": {"--store", "configmap:edge/shop", "--scope", "named"},
		"--service-account: ":           {"--store", "configmap:edge/shop", "--service-account", "pusher"},
		"no store, state or instances":  {"--state", "state.json"},
		"is not secret:NAMESPACE/NAME":  {"--state", "secret:pusher"},
		"is not namespace/name":         {"--state", "secret:edge/pusher", "--lease", "pusher"},
	} {
		if code, _, errs := pusherCommand(t, append([]string{"rbac"}, args...)...); code != process.ExitUsage || !strings.Contains(errs, said) {
			t.Errorf("%v: exit code %d, said %s", args, code, errs)
		}
	}
}

// The roles grant what snapshots and a fleet of pods need, in each namespace. They grant nothing for what comes
// from elsewhere.
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
	const secrets, endpoints = "secrets get,list,watch", "endpointslices get,list,watch"
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"the newest snapshot": {
			[]string{"--scope", "named", "--snapshots", "1"}, "shop: " + endpoints + "\nshop: events create,patch\nshop: " + secrets + " tls\n",
		},
		"all, in all namespaces": {
			[]string{"--scope", "named", "--all-namespaces"}, ": " + endpoints + "\nold: events create,patch\nold: " + secrets + " tls\nshop: events create,patch\nshop: " + secrets + " tls\n",
		},
		"the whole cluster": {
			nil, ": " + endpoints + "\n: events create,patch\n: " + secrets + "\n",
		},
		"some namespaces": {
			[]string{"--scope", "namespaces=shop,blog"}, "blog: " + endpoints + "\nblog: events create,patch\nblog: " + secrets + "\nshop: " + endpoints + "\nshop: events create,patch\nshop: " + secrets + "\n",
		},
		"pods alone": {
			[]string{"--live", "manifests", "--instances", fleet}, ": nodes get,list,watch\nedge: events create,patch\nedge: pods get,list,watch; " + secrets + " ca,dataplane\n",
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

// objectsIn returns the printed objects, with what roles grant, as lines.
func objectsIn(t *testing.T, manifests string) string {
	t.Helper()
	var out strings.Builder
	for _, text := range strings.Split(manifests, "---\n") {
		var role rbacv1.Role
		if err := yaml.Unmarshal([]byte(text), &role); err != nil {
			t.Fatal(err)
		}
		name := role.Name
		if role.Namespace != "" {
			name = role.Namespace + "/" + name
		}
		var rules []string
		for _, r := range role.Rules {
			rules = append(rules, strings.TrimSpace(strings.Join(r.Resources, ",")+" "+strings.Join(r.Verbs, ",")+" "+strings.Join(r.ResourceNames, ",")))
		}
		out.WriteString(strings.TrimSuffix(role.Kind+" "+name+": "+strings.Join(rules, "; "), ": ") + "\n")
	}
	return out.String()
}

// rolesIn returns what the roles grant to the pusher, as lines, by namespace.
func rolesIn(t *testing.T, manifests string) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(objectsIn(t, manifests)) {
		kind, rest, _ := strings.Cut(line, " ")
		name, rules, _ := strings.Cut(rest, ": ")
		if people := []string{"edge/hapsnap-pusher-viewer", "edge/hapsnap-pusher-operator", "edge/hapsnap-pusher-approver"}; slices.Contains(people, name) || kind != "Role" && kind != "ClusterRole" {
			continue
		}
		namespace, _, inNamespace := strings.Cut(name, "/")
		if !inNamespace {
			namespace = ""
		}
		out.WriteString(namespace + ": " + rules)
	}
	return out.String()
}

// For a state in a Secret, the roles grant that Secret, the one of the fallback certificate, and the Lease.
func TestRBACOfAState(t *testing.T) {
	t.Parallel()
	const lease, state = "leases create; leases get,update pusher", "secrets create; secrets get,update pusher,pusher-fallback"
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"alone":           {nil, "edge: " + lease + "\nedge: " + state + "\n"},
		"another Lease":   {[]string{"--lease", "leases/shop"}, "edge: " + state + "\nleases: leases create; leases get,update shop\n"},
		"a store as well": {[]string{"--store", "configmap:edge/shop", "--live", "live"}, "edge: " + lease + "\nedge: " + state + "\nedge: configmaps get,list,watch; namespaces get edge; configmaps update shop-channel; configmaps patch shop-status\nedge: events create,patch\n"},
	} {
		code, out, errs := pusherCommand(t, append([]string{"rbac", "--state", "secret:edge/pusher"}, test.args...)...)
		if got := rolesIn(t, out); code != process.ExitOK || got != test.want {
			t.Errorf("%s: exit code %d, granted\n%swant\n%s%s", name, code, got, test.want, errs)
		}
	}
}
