package admission

import (
	"bytes"
	"maps"
	"os"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// The example registers the address and the kinds of the server. It fails as the configuration does by default.
func TestExample(t *testing.T) {
	var c admissionregistrationv1.ValidatingWebhookConfiguration
	readExample(t, &c)
	asked := map[string]bool{}
	for _, w := range c.Webhooks {
		if got := *w.ClientConfig.Service.Path; got != Path {
			t.Errorf("%s asks at %s, not %s", w.Name, got, Path)
		}
		if got, want := string(*w.FailurePolicy), string(config.Default().Admission.FailurePolicy); got != want {
			t.Errorf("%s has the failure policy %s, not %s", w.Name, got, want)
		}
		for _, rule := range w.Rules {
			for _, resource := range rule.Resources {
				asked[resource] = true
			}
		}
	}
	want := map[string]bool{"ingresses": true, "configmaps": true}
	for _, kind := range inputs.GatewayKinds() {
		if kind.Judged {
			want[kind.Resource] = true
		}
	}
	if !maps.Equal(asked, want) {
		t.Errorf("asked about %v", asked)
	}
}

func readExample(t *testing.T, c *admissionregistrationv1.ValidatingWebhookConfiguration) {
	t.Helper()
	text, err := os.ReadFile("../../examples/admission/webhook.yaml")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := bytes.Cut(text, []byte("\n---\n"))
	if err := yaml.UnmarshalStrict(first, c); err != nil {
		t.Fatal(err)
	}
}
