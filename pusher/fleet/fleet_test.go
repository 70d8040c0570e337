package fleet

import (
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
