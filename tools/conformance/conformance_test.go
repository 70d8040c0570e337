package conformance_test

import (
	"cmp"
	"flag"
	"io/fs"
	"os"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/apis/v1alpha2"
	"sigs.k8s.io/gateway-api/apis/v1alpha3"
	"sigs.k8s.io/gateway-api/apis/v1beta1"
	"sigs.k8s.io/gateway-api/conformance"
	reportv1 "sigs.k8s.io/gateway-api/conformance/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/config"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/yaml"
)

// published is the report that users read.
const published = "docs/conformance/v1.6.3-report.yaml"

var (
	update  = flag.Bool("update", false, "write the report instead of comparing with it")
	version = flag.String("of", "main", "of hapsnap, for the report")
	only    = flag.String("only", "", "a test of the suite by its name, instead of all; then there is no report")
)

// profiles are those of the report.
var profiles = []suite.ConformanceProfileName{
	suite.GatewayHTTPConformanceProfileName, suite.GatewayGRPCConformanceProfileName,
	suite.GatewayTLSConformanceProfileName, suite.GatewayTCPConformanceProfileName,
}

// What is claimed passes, and nothing that the published report has is claimed or passed no longer.
func TestConformance(t *testing.T) {
	e := newEdge(t)
	api := e.server.Config()
	api.QPS, api.Burst = 1000, 1000
	options := client.Options{Scheme: newScheme(t)}
	c, err := client.New(api, options)
	if err != nil {
		t.Fatal(err)
	}
	clientset, err := kubernetes.NewForConfig(api)
	if err != nil {
		t.Fatal(err)
	}
	e.awaitFeatures(t, c)
	official, err := suite.NewConformanceTestSuite(suite.ConformanceOptions{
		Client: c, ClientOptions: options, Clientset: clientset, RestConfig: api, ManifestFS: []fs.FS{&conformance.Manifests},
		ConfigurableOptions: suite.ConfigurableOptions{
			// Features are those that the status of the class claims.
			GatewayClassName: class, ConformanceProfiles: profiles, RunTest: *only,
			TimeoutConfig: config.DefaultTimeoutConfig(), CleanupTestResources: true, DisableParallelTests: true,
			UsableNetworkAddresses: specAddress(usable), UnusableNetworkAddresses: specAddress(unusable),
			Implementation: reportv1.Implementation{
				Organization: "hapsnap", Project: "hapsnap", URL: "https://github.com/hapsnap/hapsnap", Version: *version,
				Contact: []string{"https://github.com/hapsnap/hapsnap/issues"},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	// The report exists once the tests have ended.
	t.Cleanup(func() {
		if *only == "" {
			report(t, official)
		}
	})
	official.Setup(t, tests.ConformanceTests)
	if err := official.Run(t, tests.ConformanceTests); err != nil {
		t.Fatal(err)
	}
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensionsv1.AddToScheme, gatewayv1.Install, v1beta1.Install, v1alpha2.Install, v1alpha3.Install,
	} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func specAddress(value string) []gatewayv1.GatewaySpecAddress {
	return []gatewayv1.GatewaySpecAddress{{Type: new(gatewayv1.IPAddressType), Value: value}}
}

// report writes what the suite found, or compares it with what is published.
func report(t *testing.T, official *suite.ConformanceTestSuite) {
	t.Helper()
	got, err := official.Report()
	if err != nil {
		t.Fatal(err)
	}
	// The suite has them in a map.
	slices.SortFunc(got.ProfileReports, func(a, b reportv1.ProfileReport) int { return cmp.Compare(a.Name, b.Name) })
	text, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if t.Failed() {
			t.Fatalf("no report is written of a run that failed:\n%s", text)
		}
		if err := os.WriteFile(published, text, 0o644); err != nil { //nolint:gosec // everybody reads it
			t.Fatal(err)
		}
		return
	}
	var want reportv1.ConformanceReport
	if err := yaml.UnmarshalStrict([]byte(read(t, published)), &want); err != nil {
		t.Fatal(err)
	}
	// What runs later, and of another version, is no difference.
	got.Date, got.Implementation.Version = want.Date, want.Implementation.Version
	again, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if string(again) != read(t, published) {
		t.Errorf("%s says otherwise, see make conformance-report; now it is:\n%s", published, text)
	}
}
