package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// fake is a judge made of functions. A missing function fails the test.
type fake struct {
	t             *testing.T
	ingress       func(context.Context, *networkingv1.Ingress) (Verdict, error)
	configuration func(context.Context, []byte) (Verdict, error)
	gateway       func(context.Context, string, metav1.Object) (Verdict, error)
	closed        bool
}

func (f fake) Ingress(ctx context.Context, ing *networkingv1.Ingress) (Verdict, error) {
	if f.ingress == nil {
		f.t.Errorf("Ingress %s/%s was judged", ing.Namespace, ing.Name)
		return Verdict{}, nil
	}
	return f.ingress(ctx, ing)
}

func (f fake) Gateway(ctx context.Context, kind string, object metav1.Object) (Verdict, error) {
	if f.gateway == nil {
		f.t.Errorf("%s %s/%s was judged", kind, object.GetNamespace(), object.GetName())
		return Verdict{}, nil
	}
	return f.gateway(ctx, kind, object)
}

func (f fake) Configuration(ctx context.Context, document []byte) (Verdict, error) {
	if f.configuration == nil {
		f.t.Errorf("the configuration %q was judged", document)
		return Verdict{}, nil
	}
	return f.configuration(ctx, document)
}

func (f fake) FailsClosed() bool { return f.closed }

var settings = types.NamespacedName{Namespace: "hapsnap", Name: "config"}

func handlerOf(judge Judge, registry *prometheus.Registry) *handler {
	return newHandler(Options{Judge: judge, ConfigMap: settings, Metrics: registry, Log: slog.New(slog.DiscardHandler)})
}

// ask sends a review unchanged. It returns the status and the response of the answer, or nil.
func ask(t *testing.T, h http.Handler, query, body string) (int, *admissionv1.AdmissionResponse) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path+query, strings.NewReader(body)))
	if w.Code != http.StatusOK {
		return w.Code, nil
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil {
		t.Fatalf("answer %q: %v", w.Body, err)
	}
	if review.Kind != "AdmissionReview" || review.APIVersion != "admission.k8s.io/v1" || review.Response == nil || review.Response.UID != "u1" {
		t.Fatalf("answer is %s", w.Body)
	}
	return w.Code, review.Response
}

// review writes a review of an Ingress in the namespace shop. before is empty for a new one.
func review(operation, kind, object, before string) string {
	group, version := "networking.k8s.io", "v1"
	switch {
	case kind == "ConfigMap":
		group = ""
	case !strings.HasPrefix(kind, "Ingress"):
		group = "gateway.networking.k8s.io"
	}
	parts := fmt.Sprintf(`"uid":"u1","operation":%q,"namespace":"shop","name":"web","kind":{"group":%q,"version":%q,"kind":%q}`, operation, group, version, kind)
	if object != "" {
		parts += `,"object":` + object
	}
	if before != "" {
		parts += `,"oldObject":` + before
	}
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{` + parts + `}}`
}

const (
	web       = `{"metadata":{"name":"web","namespace":"shop"},"spec":{"rules":[{"host":"a.example"}]}}`
	webOther  = `{"metadata":{"name":"web","namespace":"shop"},"spec":{"rules":[{"host":"b.example"}]}}`
	webLabel  = `{"metadata":{"name":"web","namespace":"shop","labels":{"a":"b"}},"spec":{"rules":[{"host":"a.example"}]}}`
	webNote   = `{"metadata":{"name":"web","namespace":"shop","annotations":{"a":"b"}},"spec":{"rules":[{"host":"a.example"}]}}`
	webOwned  = `{"metadata":{"name":"web","namespace":"shop","finalizers":["x/y"],"managedFields":[{"manager":"x"}]},"spec":{"rules":[{"host":"a.example"}]}}`
	webDying  = `{"metadata":{"name":"web","namespace":"shop","deletionTimestamp":"2024-05-06T07:08:09Z"},"spec":{"rules":[{"host":"b.example"}]}}`
	webStatus = `{"metadata":{"name":"web","namespace":"shop"},"spec":{"rules":[{"host":"a.example"}]},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`
)

func TestWhatIsJudged(t *testing.T) {
	subresource := strings.Replace(review("UPDATE", "Ingress", webOther, web), `"uid"`, `"subResource":"status","uid"`, 1)
	for _, c := range []struct {
		name, review string
		judged       bool
	}{
		{"a new one", review("CREATE", "Ingress", web, ""), true},
		{"a change of spec", review("UPDATE", "Ingress", webOther, web), true},
		{"a change of annotations", review("UPDATE", "Ingress", webNote, web), true},
		{"a change of labels, which templates read", review("UPDATE", "Ingress", webLabel, web), true},
		{"a dry run", strings.Replace(review("CREATE", "Ingress", web, ""), `"uid"`, `"dryRun":true,"uid"`, 1), true},
		{"a change of what nobody reads", review("UPDATE", "Ingress", webOwned, web), false},
		{"a change of status", review("UPDATE", "Ingress", webStatus, web), false},
		{"the subresource status", subresource, false},
		{"one that is being deleted", review("UPDATE", "Ingress", webDying, web), false},
		{"a deletion", review("DELETE", "Ingress", "", web), false},
		{"another kind", review("CREATE", "IngressClass", `{}`, ""), false},
		{"another ConfigMap", review("CREATE", "ConfigMap", `{"data":{"config.yaml":"x"}}`, ""), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			judged := 0
			judge := fake{t: t, ingress: func(_ context.Context, ing *networkingv1.Ingress) (Verdict, error) {
				judged++
				if ing.Namespace != "shop" || ing.Name != "web" || len(ing.Spec.Rules) != 1 {
					t.Errorf("judged %+v", ing)
				}
				return Verdict{}, nil
			}}
			if code, response := ask(t, handlerOf(judge, prometheus.NewRegistry()), "", c.review); code != http.StatusOK || !response.Allowed {
				t.Errorf("answered %d, %+v", code, response)
			}
			if (judged == 1) != c.judged {
				t.Errorf("judged %d times", judged)
			}
		})
	}
}

func TestConfigurationIsJudged(t *testing.T) {
	ours := func(operation, object, before string) string {
		return strings.Replace(review(operation, "ConfigMap", object, before), `"namespace":"shop","name":"web"`, `"namespace":"hapsnap","name":"config"`, 1)
	}
	const before = `{"data":{"config.yaml":"kind: x\n"}}`
	for _, c := range []struct {
		name, review string
		judged       string
		allowed      bool
	}{
		{"new", ours("CREATE", `{"data":{"config.yaml":"kind: x\n"}}`, ""), "kind: x\n", true},
		{"changed", ours("UPDATE", `{"data":{"config.yaml":"kind: y\n"}}`, before), "kind: y\n", true},
		{"the same", ours("UPDATE", `{"metadata":{"labels":{"a":"b"}},"data":{"config.yaml":"kind: x\n"}}`, before), "", true},
		{"without the key", ours("UPDATE", `{"data":{"config.yml":"kind: x\n"}}`, before), "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			judged := ""
			judge := fake{t: t, configuration: func(_ context.Context, document []byte) (Verdict, error) {
				judged = string(document)
				return Verdict{}, nil
			}}
			code, response := ask(t, handlerOf(judge, prometheus.NewRegistry()), "", c.review)
			if code != http.StatusOK || response.Allowed != c.allowed || judged != c.judged {
				t.Errorf("answered %d, %+v; judged %q", code, response, judged)
			}
		})
	}
}

// Objects of the Gateway API are judged when the part changes that the compiler sees, as with Ingresses.
func TestWhatIsJudgedOfGateways(t *testing.T) {
	object := func(kind, metadata, spec, status string) string {
		return fmt.Sprintf(`{"apiVersion":"gateway.networking.k8s.io/v1","kind":%q,"metadata":{"name":"web","namespace":"shop"%s},"spec":{%s},"status":{%s}}`, kind, metadata, spec, status)
	}
	const spec = `"parentRefs":[{"name":"web"}]`
	before := object("HTTPRoute", "", spec, "")
	for _, c := range []struct {
		name, review string
		judged       string // the kind
	}{
		{"a new route", review("CREATE", "HTTPRoute", before, ""), "HTTPRoute"},
		{"a new route for calls", review("CREATE", "GRPCRoute", object("GRPCRoute", "", spec, ""), ""), "GRPCRoute"},
		{"a new route for TLS", review("CREATE", "TLSRoute", object("TLSRoute", "", spec, ""), ""), "TLSRoute"},
		{"a new route for TCP", review("CREATE", "TCPRoute", object("TCPRoute", "", spec, ""), ""), "TCPRoute"},
		{"a new Gateway", review("CREATE", "Gateway", object("Gateway", "", "", ""), ""), "Gateway"},
		{"a new policy", review("CREATE", "BackendTLSPolicy", object("BackendTLSPolicy", "", "", ""), ""), "BackendTLSPolicy"},
		{"a new ListenerSet", review("CREATE", "ListenerSet", object("ListenerSet", "", "", ""), ""), "ListenerSet"},
		{"a change of spec", review("UPDATE", "HTTPRoute", object("HTTPRoute", "", `"parentRefs":[{"name":"other"}]`, ""), before), "HTTPRoute"},
		{"a change of labels", review("UPDATE", "HTTPRoute", object("HTTPRoute", `,"labels":{"a":"b"}`, spec, ""), before), "HTTPRoute"},
		{"a change of status", review("UPDATE", "HTTPRoute", object("HTTPRoute", "", spec, `"parents":[{"controllerName":"a/b","parentRef":{"name":"web"}}]`), before), ""},
		{"a change of what nobody reads", review("UPDATE", "HTTPRoute", object("HTTPRoute", `,"generation":4,"resourceVersion":"9","finalizers":["x/y"],"managedFields":[{"manager":"x"}],"ownerReferences":[{"name":"x"}]`, spec, ""), before), ""},
		{"one that is being deleted", review("UPDATE", "HTTPRoute", object("HTTPRoute", `,"deletionTimestamp":"2024-05-06T07:08:09Z"`, "", ""), before), ""},
		{"a deletion", review("DELETE", "HTTPRoute", "", before), ""},
		{"a kind that is not judged", review("CREATE", "ReferenceGrant", object("ReferenceGrant", "", "", ""), ""), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			judged := ""
			judge := fake{t: t, gateway: func(_ context.Context, kind string, object metav1.Object) (Verdict, error) {
				if judged = kind; object.GetNamespace() != "shop" || object.GetName() != "web" {
					t.Errorf("judged %+v", object)
				}
				return Verdict{}, nil
			}}
			h := handlerOf(judge, prometheus.NewRegistry())
			if code, response := ask(t, h, "", c.review); code != http.StatusOK || !response.Allowed {
				t.Errorf("answered %d, %+v", code, response)
			}
			if judged != c.judged {
				t.Errorf("judged %q", judged)
			}
			if judged != "" && testutil.ToFloat64(h.metrics.reviews.WithLabelValues(judged, allowed)) != 1 {
				t.Errorf("the review is not counted as one of %s", judged)
			}
		})
	}
	if code, _ := ask(t, handlerOf(fake{t: t}, prometheus.NewRegistry()), "", review("CREATE", "HTTPRoute", `{"spec":[]}`, "")); code != http.StatusBadRequest {
		t.Errorf("a route that is none: %d", code)
	}
}

func TestMalformedReviews(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want int
	}{
		"empty":            {"", http.StatusBadRequest},
		"no JSON":          {"{", http.StatusBadRequest},
		"another kind":     {`{"apiVersion":"v1","kind":"Ingress"}`, http.StatusBadRequest},
		"another version":  {strings.Replace(review("CREATE", "Ingress", web, ""), "admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1), http.StatusBadRequest},
		"no request":       {`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, http.StatusBadRequest},
		"no uid":           {strings.Replace(review("CREATE", "Ingress", web, ""), `"u1"`, `""`, 1), http.StatusBadRequest},
		"no object":        {review("CREATE", "Ingress", "", ""), http.StatusBadRequest},
		"no object before": {review("UPDATE", "Ingress", web, ""), http.StatusBadRequest},
		"wrong type":       {review("CREATE", "Ingress", `{"spec":{"rules":1}}`, ""), http.StatusBadRequest},
		"too large":        {strings.Repeat(" ", maxBody+1), http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			h := handlerOf(fake{t: t}, prometheus.NewRegistry())
			if code, _ := ask(t, h, "", c.body); code != c.want {
				t.Errorf("answered %d, want %d", code, c.want)
			}
			if n := testutil.ToFloat64(h.metrics.malformed); n != 1 {
				t.Errorf("counted %v", n)
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	object := diag.Position{Field: `metadata.annotations["hapsnap.dev/rate-limit"]`}
	fault := diag.Diagnostic{Severity: diag.Error, Position: object, Message: `"lots" is not a number`, Hint: "use requests per second, such as 100"}
	warning := diag.Diagnostic{Position: diag.Position{Field: "spec.rules[0].host"}, Message: "is taken", Hint: "use\nanother"}
	status := func(code int32, reason metav1.StatusReason, message string) *metav1.Status {
		return &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}
	}
	refused := status(403, metav1.StatusReasonForbidden, `metadata.annotations["hapsnap.dev/rate-limit"]: "lots" is not a number`+"\n\thint: use requests per second, such as 100")
	refused.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "FieldValueInvalid", Field: object.Field, Message: fault.Message}}}
	again := status(429, metav1.StatusReasonTooManyRequests, "hapsnap could not check this: it ran out of time; try again")
	again.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	for _, c := range []struct {
		name    string
		verdict Verdict
		err     error
		closed  bool
		want    admissionv1.AdmissionResponse
		result  string
	}{
		{"sound", Verdict{}, nil, true, admissionv1.AdmissionResponse{Allowed: true}, allowed},
		{
			"with a warning", Verdict{Warnings: []diag.Diagnostic{warning}}, nil, true,
			admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{`spec.rules[0].host: is taken; use\nanother`}}, allowed,
		},
		{
			"at fault", Verdict{Faults: []diag.Diagnostic{fault}, Warnings: []diag.Diagnostic{warning}}, nil, false,
			admissionv1.AdmissionResponse{Result: refused, Warnings: []string{`spec.rules[0].host: is taken; use\nanother`}}, denied,
		},
		{
			"not judged, open", Verdict{}, &UnableError{Reason: "caches\nare empty", Err: errors.New("Secret other/key")}, false,
			admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{"allowed, though hapsnap could not check this: caches are empty"}}, notJudged,
		},
		{
			"not judged, closed", Verdict{}, fmt.Errorf("judge: %w", &UnableError{Reason: "caches are empty"}), true,
			admissionv1.AdmissionResponse{Result: status(503, metav1.StatusReasonServiceUnavailable, "hapsnap could not check this: caches are empty")}, notJudged,
		},
		{
			"not judged, for a reason that is nobody's business", Verdict{}, errors.New("read Secret other/key"), false,
			admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{"allowed, though hapsnap could not check this: the compiler's log says why"}}, notJudged,
		},
		{
			"late, open", Verdict{}, &UnableError{Reason: "it ran out of time", Again: true}, false,
			admissionv1.AdmissionResponse{Result: again}, notJudged,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			judge := fake{t: t, closed: c.closed, ingress: func(context.Context, *networkingv1.Ingress) (Verdict, error) { return c.verdict, c.err }}
			h := handlerOf(judge, prometheus.NewRegistry())
			_, response := ask(t, h, "", review("CREATE", "Ingress", web, ""))
			c.want.UID = "u1"
			if diff := cmp.Diff(&c.want, response); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if n := testutil.ToFloat64(h.metrics.reviews.WithLabelValues("Ingress", c.result)); n != 1 {
				t.Errorf("%v were counted as %s", n, c.result)
			}
		})
	}
}

func TestAnswersAreBounded(t *testing.T) {
	many := make([]diag.Diagnostic, 100)
	for i := range many {
		many[i] = diag.Diagnostic{Severity: diag.Error, Position: diag.Position{Field: fmt.Sprintf("spec.rules[%d]", i)}, Message: strings.Repeat("ö", 1000)}
	}
	response := answer("u1", Verdict{Faults: many, Warnings: many})
	if n := len(response.Warnings); n != maxWarnings+1 || response.Warnings[n-1] != "and 90 more" {
		t.Errorf("%d warnings", n)
	}
	if n := len([]rune(response.Warnings[0])); n != maxWarningRunes {
		t.Errorf("a warning has %d characters", n)
	}
	if lines := strings.Split(response.Result.Message, "\n"); len(lines) != maxFaults+1 || lines[maxFaults] != "and 80 more" {
		t.Errorf("the message has %d lines", len(lines))
	}
}

// A judge that is too slow does not delay the API server. A judge that panics does not end the process.
func TestJudgeThatDoesNotAnswer(t *testing.T) {
	released := make(chan struct{})
	defer close(released)
	h := handlerOf(fake{t: t, ingress: func(context.Context, *networkingv1.Ingress) (Verdict, error) {
		<-released
		return Verdict{}, nil
	}}, prometheus.NewRegistry())
	_, response := ask(t, h, "?timeout=200ms", review("CREATE", "Ingress", web, ""))
	if response.Allowed || response.Result.Code != http.StatusTooManyRequests || !strings.Contains(response.Result.Message, "out of time") {
		t.Errorf("answered %+v", response)
	}
	h = handlerOf(fake{t: t, closed: true, ingress: func(context.Context, *networkingv1.Ingress) (Verdict, error) { panic("no") }}, prometheus.NewRegistry())
	if _, response = ask(t, h, "", review("CREATE", "Ingress", web, "")); response.Allowed {
		t.Errorf("answered %+v", response)
	}
}

// Reviews beyond the limit of their namespace are refused at once. Those of other namespaces are judged.
func TestReviewsAreBounded(t *testing.T) {
	released, begun := make(chan struct{}), make(chan struct{}, maxReviews)
	h := handlerOf(fake{t: t, ingress: func(context.Context, *networkingv1.Ingress) (Verdict, error) {
		begun <- struct{}{}
		<-released
		return Verdict{}, nil
	}}, prometheus.NewRegistry())
	answered := make(chan bool, maxReviews)
	send := func(namespace string) {
		_, response := ask(t, h, "?timeout=30s", strings.Replace(review("CREATE", "Ingress", web, ""), `"shop"`, `"`+namespace+`"`, 1))
		answered <- response.Allowed
	}
	for range maxOfNamespace {
		go send("shop")
		<-begun
	}
	if _, response := ask(t, h, "", review("CREATE", "Ingress", web, "")); response.Allowed || response.Result.Code != http.StatusTooManyRequests {
		t.Errorf("one more was answered %+v", response)
	}
	go send("other")
	<-begun
	close(released)
	for range maxOfNamespace + 1 {
		if !<-answered {
			t.Error("a review was denied")
		}
	}
	if _, response := ask(t, h, "", review("CREATE", "Ingress", web, "")); !response.Allowed {
		t.Error("the places are not free again")
	}
}

func TestBudget(t *testing.T) {
	for parameter, want := range map[string]time.Duration{
		"":         9 * time.Second,
		"nonsense": 9 * time.Second,
		"-1s":      9 * time.Second,
		"10s":      9 * time.Second,
		"1s":       500 * time.Millisecond,
		"100ms":    50 * time.Millisecond,
		"5h":       27 * time.Second,
	} {
		if got := budget(parameter); got != want {
			t.Errorf("%q gives %v, want %v", parameter, got, want)
		}
	}
}

// FuzzReview looks for harmful bodies. What is not a review gets 400, and a review gets an answer.
func FuzzReview(f *testing.F) {
	for _, body := range []string{"", review("CREATE", "Ingress", web, ""), review("UPDATE", "Ingress", webOther, web), review("DELETE", "Ingress", "", web), review("UPDATE", "ConfigMap", "null", "{}")} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		request, err := decode(body)
		if err != nil {
			return
		}
		if m, err := matterOf(request, settings); err == nil && m.ingress != nil && m.configuration != nil {
			t.Error("one request is about two objects")
		}
	})
}

// The answer repeats the uid, except for an absurd one.
func TestUIDIsBounded(t *testing.T) {
	h := handlerOf(fake{t: t}, prometheus.NewRegistry())
	if code, _ := ask(t, h, "", strings.Replace(review("CREATE", "Ingress", web, ""), `"u1"`, `"`+strings.Repeat("u", maxUID+1)+`"`, 1)); code != http.StatusBadRequest {
		t.Errorf("answered %d", code)
	}
}
