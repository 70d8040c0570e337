package fleet

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/hapsnap/hapsnap/snapshots/bind"
)

func TestReadOfPodsSaysWhereAFaultIs(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"pods of no namespace": {head + "  pods: {selector: {matchLabels: {a: b}}, port: 1, credentialsSecret: {name: x}}\n", "Fleet: spec.pods.namespace is missing"},
		"pods of all kinds":    {head + "  pods: {namespace: x, selector: {}, port: 1, credentialsSecret: {name: x}}\n", ":6:24: Fleet: pods have no selector"},
		"pods without a port":  {head + "  pods: {namespace: x, selector: {matchLabels: {a: b}}, credentialsSecret: {name: x}}\n", "Fleet: pods have no usable port"},
		"pods of no scheme":    {head + "  pods: {namespace: x, scheme: ftp, selector: {matchLabels: {a: b}}, port: 1, credentialsSecret: {name: x}}\n", `Fleet: there is no scheme "ftp"`},
		"pods and plain HTTP":  {head + "  pods: {namespace: x, scheme: http, tls: {caSecret: x}, selector: {matchLabels: {a: b}}, port: 1, credentialsSecret: {name: x}}\n", "Fleet: pods have tls, and a scheme without it"},
		"pods of two zones":    {head + "  pods: {namespace: x, zoneFrom: {podLabel: x, nodeLabel: x}, selector: {matchLabels: {a: b}}, port: 1, credentialsSecret: {name: x}}\n", "Fleet: zoneFrom has both podLabel and nodeLabel"},
	}
	for name, test := range tests {
		if _, err := Read(write(t, test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error is %v, want one with %q", name, err, test.want)
		}
	}
}

func TestReadOfPods(t *testing.T) {
	got, err := Read(write(t, head+`  pods:
    namespace: edge
    selector: {matchLabels: {app: haproxy}, matchExpressions: [{key: tier, operator: In, values: [a, b]}]}
    port: dataplane
    credentialsSecret: {name: dataplane, passwordKey: pin}
    tls: {caSecret: ca, clientCertificateSecret: client, serverName: edge.example.com}
    zoneFrom: {nodeLabel: rack}
    directories: {maps: /m}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := Pods{
		Namespace: "edge", Selector: "app=haproxy,tier in (a,b)", Port: intstr.FromString("dataplane"), Scheme: "https",
		Secret: "dataplane", UsernameKey: "username", PasswordKey: "pin",
		CASecret: "ca", ClientSecret: "client", ServerName: "edge.example.com", ZoneLabel: DefaultZoneLabel, NodeZoneLabel: "rack",
		Layout: bind.Layout{Maps: "/m", Certificates: DefaultCertificates, General: DefaultGeneral},
	}
	if diff := cmp.Diff(&want, got.Pods); diff != "" {
		t.Errorf("read otherwise (-want +got):\n%s", diff)
	}
}

// The example in the documentation has every field, and can be read.
func TestDocumentedFleetIsRead(t *testing.T) {
	page, err := os.ReadFile("../../docs/explanation/rollout.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	example, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("the page has no example")
	}
	f, err := Read(write(t, example))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Instances) != 1 || len(f.Rollout.Waves) != 3 || f.Rollout.Soak == nil || f.Rollout.Budget == nil || f.Rollout.Gate == nil || len(f.Rollout.Blackouts) != 2 {
		t.Errorf("the example is read as %+v", f)
	}
}

// The reference has every field of the file.
func TestFieldsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	names := fieldsOf(reflect.TypeFor[spec]())
	if len(names) < 15 {
		t.Fatalf("only the fields %q were found", names)
	}
	for _, name := range names {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/reference/fleet.md does not name the field `%s`", name)
		}
	}
}

// fieldsOf returns the names of all of our fields in a type. Kubernetes documents those of its own types.
func fieldsOf(t reflect.Type) []string {
	switch {
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer:
		return fieldsOf(t.Elem())
	case t.Kind() != reflect.Struct || strings.HasPrefix(t.PkgPath(), "k8s.io/"):
		return nil
	}
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
		names = append(names, fieldsOf(t.Field(i).Type)...)
	}
	return names
}
