package admission

import (
	"errors"
	"fmt"
	"maps"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/json"
)

// ConfigKey is the key of the ConfigMap that holds the configuration.
const ConfigKey = "config.yaml"

// maxUID bounds what comes back in the answer. An API server's has 36 bytes.
const maxUID = 256

// decode returns the request of a review.
func decode(body []byte) (*admissionv1.AdmissionRequest, error) {
	var review admissionv1.AdmissionReview
	if err := json.UnmarshalCaseSensitivePreserveInts(body, &review); err != nil {
		return nil, fmt.Errorf("decode AdmissionReview: %w", err)
	}
	if review.Kind != "AdmissionReview" || review.APIVersion != admissionv1.SchemeGroupVersion.String() {
		return nil, fmt.Errorf("read %q of %q, want AdmissionReview of %s", review.Kind, review.APIVersion, admissionv1.SchemeGroupVersion)
	}
	if review.Request == nil || review.Request.UID == "" || len(review.Request.UID) > maxUID {
		return nil, errors.New("read AdmissionReview without a request, or with one without a usable uid")
	}
	return review.Request, nil
}

// matter is what is to be judged of a request. Without any it is allowed.
type matter struct {
	ingress       *networkingv1.Ingress
	configuration *corev1.ConfigMap
}

// matterOf finds out what is to be judged of a request; configMap is the name of
// the one that holds the configuration. The error is for an object that is none.
func matterOf(r *admissionv1.AdmissionRequest, configMap types.NamespacedName) (matter, error) {
	if (r.Operation != admissionv1.Create && r.Operation != admissionv1.Update) || r.SubResource != "" {
		return matter{}, nil
	}
	switch r.Kind {
	case metav1.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}:
		return ingressOf(r)
	case metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}:
		return configurationOf(r, configMap)
	}
	return matter{}, nil
}

// ingressOf returns the Ingress of a request. An Ingress that is being deleted must not
// be kept from losing its finalizers, and a change that the compiler does not
// see needs no judgement.
func ingressOf(r *admissionv1.AdmissionRequest) (matter, error) {
	ing, before, err := objectsOf[networkingv1.Ingress](r)
	if err != nil || ing.DeletionTimestamp != nil || (before != nil && sameIngress(*before, *ing)) {
		return matter{}, err
	}
	ing.Namespace = r.Namespace
	return matter{ingress: ing}, nil
}

// sameIngress reports whether two Ingresses are the same to the compiler.
func sameIngress(a, b networkingv1.Ingress) bool {
	return reflect.DeepEqual(a.Spec, b.Spec) && maps.Equal(a.Annotations, b.Annotations) && maps.Equal(a.Labels, b.Labels)
}

// configurationOf returns the ConfigMap of a request, if it is the one that holds
// the configuration and does not hold the same as before.
func configurationOf(r *admissionv1.AdmissionRequest, name types.NamespacedName) (matter, error) {
	if (types.NamespacedName{Namespace: r.Namespace, Name: r.Name}) != name {
		return matter{}, nil
	}
	c, before, err := objectsOf[corev1.ConfigMap](r)
	if err != nil || c.DeletionTimestamp != nil || (before != nil && maps.Equal(c.Data, before.Data)) {
		return matter{}, err
	}
	return matter{configuration: c}, nil
}

// objectsOf decodes the object of a request, and the one before, which is nil if
// there is none.
func objectsOf[T any](r *admissionv1.AdmissionRequest) (now, before *T, err error) {
	now = new(T)
	if err := json.UnmarshalCaseSensitivePreserveInts(r.Object.Raw, now); err != nil {
		return nil, nil, fmt.Errorf("decode %s: %w", r.Kind.Kind, err)
	}
	if r.Operation == admissionv1.Create {
		return now, nil, nil
	}
	before = new(T)
	if err := json.UnmarshalCaseSensitivePreserveInts(r.OldObject.Raw, before); err != nil {
		return nil, nil, fmt.Errorf("decode the %s before: %w", r.Kind.Kind, err)
	}
	return now, before, nil
}
