package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"unicode"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/json"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// ConfigKey is the key of the ConfigMap that holds the configuration.
const ConfigKey = "config.yaml"

// maxUID bounds the UID, which the answer repeats. An API server's has 36 bytes.
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

// matter is the part of a request that has to be judged. A request without one is allowed.
type matter struct {
	ingress       *networkingv1.Ingress
	configuration *corev1.ConfigMap
	gateway       metav1.Object // of the Gateway API
	kind          string        // of gateway
}

// matterOf returns the part of a request that has to be judged. configMap names the ConfigMap with the
// configuration. It returns an error for a malformed object.
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
	if kind, is := inputs.GatewayKindOf(r.Kind.Kind); is && kind.Judged && r.Kind.Group+"/"+r.Kind.Version == inputs.GatewayVersion {
		return gatewayOf(r, kind)
	}
	return matter{}, nil
}

// gatewayOf returns the object of the Gateway API in a request, as ingressOf does for an Ingress.
func gatewayOf(r *admissionv1.AdmissionRequest, kind inputs.GatewayKind) (matter, error) {
	decode := func(raw []byte) (metav1.Object, error) {
		object := kind.New()
		if err := json.UnmarshalCaseSensitivePreserveInts(raw, object); err != nil {
			return nil, fmt.Errorf("decode %s: %w", kind.Name, err)
		}
		inputs.WithoutStatus(object)
		return object, nil
	}
	now, err := decode(r.Object.Raw)
	if err != nil || now.GetDeletionTimestamp() != nil {
		return matter{}, err
	}
	if r.Operation == admissionv1.Update {
		before, err := decode(r.OldObject.Raw)
		if err != nil || reflect.DeepEqual(plain(before), plain(now)) {
			return matter{}, err
		}
	}
	now.SetNamespace(r.Namespace)
	return matter{gateway: now, kind: kind.Name}, nil
}

// plain returns what the compiler sees of an object of the Gateway API. Of its metadata these are only labels
// and annotations.
func plain(object metav1.Object) metav1.Object {
	out := object.(runtime.Object).DeepCopyObject().(metav1.Object) //nolint:forcetypeassert // as all kinds are
	out.SetManagedFields(nil)
	out.SetResourceVersion("")
	out.SetGeneration(0)
	out.SetFinalizers(nil)
	out.SetOwnerReferences(nil)
	return out
}

// ingressOf returns the Ingress of a request. It returns none for an Ingress that is being deleted,
// since it must be able to lose its finalizers, nor for a change that the compiler does not see.
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

// configurationOf returns the ConfigMap of a request, if it is the one that holds the configuration and
// its content changed.
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

// objectsOf decodes the object of a request and the object before it, which is nil if there is none.
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

// Judge says what an object would lead to. An error means that it has no verdict; an [UnableError] says why.
// Several goroutines may call it.
//
// The response has the text of a verdict unchanged. The user who made the request may not be allowed to read
// Secrets, or objects of other namespaces, so the text must not reveal them.
type Judge interface {
	// Ingress judges an Ingress that would replace the one of its name.
	Ingress(ctx context.Context, ing *networkingv1.Ingress) (Verdict, error)
	// Gateway judges an object of the Gateway API that would replace the one of its kind and name.
	Gateway(ctx context.Context, kind string, object metav1.Object) (Verdict, error)
	// Configuration judges a CompilerConfig that would replace the current one.
	Configuration(ctx context.Context, document []byte) (Verdict, error)
	// FailsClosed reports whether an object without a verdict is denied.
	FailsClosed() bool
}

// Verdict is the result of judging. Without faults the object is allowed.
type Verdict struct {
	Faults   []diag.Diagnostic
	Warnings []diag.Diagnostic
}

// UnableError says why there is no verdict.
type UnableError struct {
	// Reason is for the API server and its user. Err is for the log, and may be nil.
	Reason string
	Err    error
	// Again is set if there will be a verdict later. The API server has to ask again, whatever the failure
	// policy is.
	Again bool
}

// Error returns the text for the log.
func (u *UnableError) Error() string {
	if u.Err == nil {
		return u.Reason
	}
	return u.Reason + ": " + u.Err.Error()
}

// Unwrap returns the part that is only for the log.
func (u *UnableError) Unwrap() error { return u.Err }

// The limits of a response. The API server cuts warnings of more than 256 characters once there are
// more than 4,096 of them in all.
const (
	maxFaults       = 20
	maxWarnings     = 10
	maxWarningRunes = 256
)

// unchecked begins the message of a response without a verdict.
const unchecked = "hapsnap could not check this: "

// answer is the response for a verdict.
func answer(uid types.UID, v Verdict) *admissionv1.AdmissionResponse {
	// Warnings are on one line each, since they travel as headers.
	var said []string
	for _, w := range v.Warnings[:min(len(v.Warnings), maxWarnings)] {
		w.Severity = diag.Error // clients show themselves that it is a warning
		said = append(said, oneLine(strings.Replace(w.String(), "\n\thint: ", "; ", 1)))
	}
	if more := len(v.Warnings) - maxWarnings; more > 0 {
		said = append(said, fmt.Sprintf("and %d more", more))
	}
	response := &admissionv1.AdmissionResponse{UID: uid, Allowed: len(v.Faults) == 0, Warnings: said}
	if !response.Allowed {
		var lines []string
		for _, f := range v.Faults[:min(len(v.Faults), maxFaults)] {
			lines = append(lines, f.String())
		}
		if more := len(v.Faults) - maxFaults; more > 0 {
			lines = append(lines, fmt.Sprintf("and %d more", more))
		}
		response.Result = denial(metav1.StatusReasonForbidden, http.StatusForbidden, strings.Join(lines, "\n"))
		var list []metav1.StatusCause
		for _, f := range v.Faults[:min(len(v.Faults), maxFaults)] {
			list = append(list, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: f.Position.Field, Message: f.Message})
		}
		response.Result.Details = &metav1.StatusDetails{Causes: list}
	}
	return response
}

// askAgain is the response if there will be a verdict later. Clients of the API server that follow its
// conventions, such as kubectl, try again by themselves.
func askAgain(uid types.UID, reason string) *admissionv1.AdmissionResponse {
	status := denial(metav1.StatusReasonTooManyRequests, http.StatusTooManyRequests, unchecked+reason+"; try again")
	status.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return &admissionv1.AdmissionResponse{UID: uid, Result: status}
}

func denial(reason metav1.StatusReason, code int32, message string) *metav1.Status {
	return &metav1.Status{Status: metav1.StatusFailure, Reason: reason, Code: code, Message: message}
}

// oneLine makes a warning fit into a header. It removes control characters, for which the API server would
// drop the warning, and cuts long texts.
func oneLine(s string) string {
	runes := []rune(strings.Join(strings.Fields(s), " "))
	for i, r := range runes {
		if unicode.IsControl(r) {
			runes[i] = ' '
		}
	}
	if len(runes) > maxWarningRunes {
		runes = append(runes[:maxWarningRunes-1], '…')
	}
	return string(runes)
}
