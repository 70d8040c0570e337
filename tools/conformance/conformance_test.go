package conformance_test

import (
	"cmp"
	"flag"
	"io/fs"
	"os"
	"slices"
	"sync/atomic"
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
	"sigs.k8s.io/gateway-api/conformance/utils/roundtripper"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
	"sigs.k8s.io/yaml"
)

// These are the published reports, one for each channel of the CustomResourceDefinitions.
const (
	ofStandard     = "docs/conformance/v1.6.3-report.yaml"
	ofExperimental = "docs/conformance/v1.6.3-experimental-report.yaml"
)

var (
	update  = flag.Bool("update", false, "run all of the suite with both channels and write the reports, instead of comparing with them")
	version = flag.String("of", "main", "of hapsnap, for the reports")
	only    = flag.String("only", "", "a test of the suite by its name, instead of all; then there is no report")
)

// profiles are the profiles of the report.
var profiles = []suite.ConformanceProfileName{
	suite.GatewayHTTPConformanceProfileName, suite.GatewayGRPCConformanceProfileName,
	suite.GatewayTLSConformanceProfileName, suite.GatewayTCPConformanceProfileName,
}

// Everything that is claimed passes, and everything in the published reports is still claimed and passed. The
// cluster first has the standard channel, and gets the experimental one while hapsnap runs. Then the suite runs
// only for what that adds. It runs completely only when the reports are written.
func TestConformance(t *testing.T) {
	e := newEdge(t)
	e.awaitFeature(t, features.SupportHTTPRoute)
	passed := map[string]bool{}
	standard := e.run(t, "standard", ofStandard, nil, passed)
	e.collect(t)
	e.install(t, "experimental")
	e.awaitFeature(t, features.SupportHTTPRouteRetry)
	if *update {
		passed = map[string]bool{}
	}
	e.run(t, "experimental", ofExperimental, standard, passed)
}

// run runs the suite without the tests that have passed before, and returns the report.
func (e *edge) run(t *testing.T, channel, published string, before *reportv1.ConformanceReport, passed map[string]bool) *reportv1.ConformanceReport {
	t.Helper()
	var known []string
	for name, has := range passed {
		if has {
			known = append(known, name)
		}
	}
	api := e.server.Config()
	api.QPS, api.Burst = 1000, 1000
	options := client.Options{Scheme: newScheme(t)}
	clientset, err := kubernetes.NewForConfig(api)
	if err != nil {
		t.Fatal(err)
	}
	timeouts := config.DefaultTimeoutConfig()
	official, err := suite.NewConformanceTestSuite(suite.ConformanceOptions{
		Client: e.client, ClientOptions: options, Clientset: clientset, RestConfig: api, ManifestFS: []fs.FS{&conformance.Manifests},
		RoundTripper: afterRollouts{e, &roundtripper.DefaultRoundTripper{TimeoutConfig: timeouts}, &atomic.Bool{}, &atomic.Int64{}},
		Hook: func(t *testing.T, test suite.ConformanceTest, _ *suite.ConformanceTestSuite) {
			t.Helper()
			passed[test.ShortName] = passed[test.ShortName] || !t.Failed() && !t.Skipped()
		},
		ConfigurableOptions: suite.ConfigurableOptions{
			// Features are the features that the status of the class claims.
			GatewayClassName: class, ConformanceProfiles: profiles, RunTest: *only, SkipTests: known,
			TimeoutConfig: timeouts, CleanupTestResources: true, DisableParallelTests: true,
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
	for _, test := range tests.ConformanceTests {
		if test.ShortName == *only && (passed[*only] || !official.SupportedFeatures.HasAll(test.Features...)) {
			return nil // it has run, or is for the other channel
		}
	}
	if !t.Run(channel, func(t *testing.T) {
		official.Setup(t, tests.ConformanceTests)
		if err := official.Run(t, tests.ConformanceTests); err != nil {
			t.Fatal(err)
		}
	}) || *only != "" {
		return nil
	}
	got, err := official.Report()
	if err != nil {
		t.Fatal(err)
	}
	// The suite has them in random order.
	slices.SortFunc(got.ProfileReports, func(a, b reportv1.ProfileReport) int { return cmp.Compare(a.Name, b.Name) })
	for i := range got.ProfileReports {
		if before != nil && len(known) > 0 {
			count(&got.ProfileReports[i], before.ProfileReports[i], known)
		}
	}
	report(t, published, got)
	return got
}

// count counts tests that passed before as passed, and not as skipped.
func count(p *reportv1.ProfileReport, before reportv1.ProfileReport, known []string) {
	for _, part := range []*reportv1.Status{&p.Core, &p.Extended.Status} {
		part.SkippedTests = slices.DeleteFunc(part.SkippedTests, func(name string) bool {
			if slices.Contains(known, name) {
				part.Statistics.Skipped--
				part.Statistics.Passed++
				return true
			}
			return false
		})
		if part.SkippedTests = slices.Clip(part.SkippedTests); len(part.SkippedTests) == 0 && part.Statistics.Failed == 0 {
			part.SkippedTests, part.Result = nil, reportv1.Success
		}
	}
	p.Summary = before.Summary
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

// report writes the report, or compares it with the published one.
func report(t *testing.T, published string, got *reportv1.ConformanceReport) {
	t.Helper()
	text, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(published, text, 0o644); err != nil { //nolint:gosec // it is published
			t.Fatal(err)
		}
		return
	}
	var want reportv1.ConformanceReport
	if err := yaml.UnmarshalStrict([]byte(read(t, published)), &want); err != nil {
		t.Fatal(err)
	}
	// A different date and version do not count.
	now := *got
	now.Date, now.Implementation.Version = want.Date, want.Implementation.Version
	again, err := yaml.Marshal(now)
	if err != nil {
		t.Fatal(err)
	}
	if string(again) != read(t, published) {
		t.Errorf("%s says otherwise, see make conformance-report; now it is:\n%s", published, text)
	}
}
