package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Registrations are the ValidatingWebhookConfigurations of a cluster.
type Registrations interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*admissionregistrationv1.ValidatingWebhookConfiguration, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error)
}

// Registration is the ValidatingWebhookConfiguration by which an API server knows the webhook.
type Registration struct {
	Client Registrations
	Name   string
}

func (r Registration) get(ctx context.Context) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	found, err := r.Client.Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read ValidatingWebhookConfiguration %s: %w", r.Name, err)
	}
	return found, nil
}

// DNSNames returns the names of the Services by which the API server verifies the webhook.
func (r Registration) DNSNames(ctx context.Context) ([]string, error) {
	found, err := r.get(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, w := range found.Webhooks {
		if s := w.ClientConfig.Service; s != nil {
			out = append(out, fmt.Sprintf("%s.%s.svc", s.Name, s.Namespace))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("ValidatingWebhookConfiguration %s has no webhook with a Service", r.Name)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Trust has the API server trust these authorities, in PEM, wherever the webhook is a Service.
// Nothing is written where it does.
func (r Registration) Trust(ctx context.Context, authorities []byte) error {
	found, err := r.get(ctx)
	if err != nil {
		return err
	}
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	patch := []operation{{"test", "/metadata/resourceVersion", found.ResourceVersion}}
	for i, w := range found.Webhooks {
		if w.ClientConfig.Service != nil && !bytes.Equal(w.ClientConfig.CABundle, authorities) {
			patch = append(patch, operation{"add", fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), authorities})
		}
	}
	if len(patch) == 1 {
		return nil
	}
	data, err := json.Marshal(patch)
	if err == nil {
		_, err = r.Client.Patch(ctx, r.Name, types.JSONPatchType, data, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("write caBundle of ValidatingWebhookConfiguration %s: %w", r.Name, err)
	}
	return nil
}

// RegistrationRules returns what a Registration needs. It is in no namespace.
func RegistrationRules(name string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{admissionregistrationv1.GroupName}, Resources: []string{"validatingwebhookconfigurations"}, ResourceNames: []string{name}, Verbs: []string{"get", "patch"}}}
}
