// Package admission is a validating admission webhook: an HTTPS server that an API server asks before
// it stores an object. It reads reviews of admission.k8s.io/v1, has a [Judge] check their objects, and
// answers with the fields that are at fault.
//
// It judges Ingresses, the kinds of the Gateway API that the compiler reads, and the ConfigMap that holds the
// configuration, when they are created or changed.
// It allows everything else unread. An object that it cannot judge, in time or at all, is allowed with
// a warning or denied, depending on the failure policy.
//
// The Judge decides what makes an object wrong. The ValidatingWebhookConfiguration decides whether the
// server is asked at all, and what happens while it cannot be reached.
package admission

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/credentials"
)

const (
	// maxBudget is the longest time for a review, whatever the API server grants. A
	// ValidatingWebhookConfiguration cannot ask for more.
	maxBudget = 30 * time.Second
	// defaultBudget is the time for a review if the API server names none.
	defaultBudget = 10 * time.Second
)

// handler answers reviews.
type handler struct {
	judge     Judge
	configMap types.NamespacedName // holds the configuration
	metrics   *metrics
	log       *slog.Logger
	bodies    bodies
	places    places
}

func newHandler(o Options) *handler {
	return &handler{judge: o.Judge, configMap: o.ConfigMap, log: o.Log, metrics: newMetrics(o.Metrics), bodies: bodies{patience: o.bodyTime}}
}

// budget is the time for a review, from the parameter by which an API server says how long it waits.
// The API server rounds that number up to whole seconds, and the answer has to arrive in time, so that
// budget is shorter.
func budget(parameter string) time.Duration {
	granted, err := time.ParseDuration(parameter)
	if err != nil || granted <= 0 {
		granted = defaultBudget
	}
	granted = min(granted, maxBudget)
	return granted - max(granted/10, min(granted/2, 500*time.Millisecond))
}

// ServeHTTP reads a review before it takes a place for judging, so a client that sends slowly delays no
// others.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), budget(r.URL.Query().Get("timeout")))
	defer cancel()
	request, m, code, err := h.read(w, r)
	if err != nil {
		h.metrics.malformed.Inc()
		http.Error(w, err.Error(), code)
		return
	}
	response, result := h.review(ctx, request, m)
	// The kind is a label only if it is one of a few.
	kind := request.Kind.Kind
	took := time.Since(began)
	if !slices.Contains(judgedKinds, kind) {
		kind = kindUnknown
	}
	h.metrics.reviews.WithLabelValues(kind, result).Inc()
	h.metrics.duration.Observe(took.Seconds())
	if result != allowed {
		h.log.Info("request reviewed", "kind", request.Kind.Kind, "namespace", request.Namespace, "name", request.Name, "result", result, "allowed", response.Allowed)
	}
	review := admissionv1.AdmissionReview{Response: response}
	review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	body, err := json.Marshal(review)
	if err != nil {
		http.Error(w, fmt.Sprintf("encode AdmissionReview: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // an error means that the client has gone
}

// read reads the request. With an error it returns the status of the answer.
func (h *handler) read(w http.ResponseWriter, r *http.Request) (*admissionv1.AdmissionRequest, matter, int, error) {
	body, code, err := h.bodies.read(w, r)
	if err != nil {
		return nil, matter{}, code, err
	}
	request, err := decode(body)
	if err != nil {
		return nil, matter{}, http.StatusBadRequest, err
	}
	m, err := matterOf(request, h.configMap)
	return request, m, http.StatusBadRequest, err
}

// The results of reviews.
const (
	allowed     = "allowed"
	denied      = "denied"
	notJudged   = "unjudged"
	kindUnknown = "other"
)

// review has a matter judged until ctx is done. Its place becomes free when the judge is done, which may be
// later.
func (h *handler) review(ctx context.Context, request *admissionv1.AdmissionRequest, m matter) (*admissionv1.AdmissionResponse, string) {
	uid := request.UID
	if m == (matter{}) {
		return answer(uid, Verdict{}), allowed
	}
	if !h.places.take(request.Namespace) {
		h.log.Warn("request not judged", "err", "too many reviews at a time", "namespace", request.Namespace)
		return askAgain(uid, "too many reviews at a time"), notJudged
	}
	type outcome struct {
		verdict Verdict
		err     error
	}
	judged := make(chan outcome, 1)
	go func() {
		defer h.places.leave(request.Namespace)
		v, err := h.judged(ctx, m)
		judged <- outcome{v, err}
	}()
	var o outcome
	select {
	case o = <-judged:
	case <-ctx.Done():
		select { // the judge sees the deadline too, and its error says more
		case o = <-judged:
		case <-time.After(grace):
			o.err = &UnableError{Reason: "it ran out of time", Again: true}
		}
	}
	switch {
	case o.err != nil:
		h.log.Warn("request not judged", "err", o.err)
		return h.unjudged(uid, o.err), notJudged
	case len(o.verdict.Faults) > 0:
		return answer(uid, o.verdict), denied
	}
	return answer(uid, o.verdict), allowed
}

// grace is how long a judge may take to say why it ran out of time.
const grace = 100 * time.Millisecond

// unjudged is the response if there is no verdict. Details that the user may not see are only logged.
func (h *handler) unjudged(uid types.UID, err error) *admissionv1.AdmissionResponse {
	reason := "the compiler's log says why"
	unable, known := errors.AsType[*UnableError](err)
	if known {
		reason = unable.Reason
	}
	if known && unable.Again {
		return askAgain(uid, reason)
	}
	if h.judge.FailsClosed() {
		return &admissionv1.AdmissionResponse{
			UID:    uid,
			Result: denial(metav1.StatusReasonServiceUnavailable, http.StatusServiceUnavailable, unchecked+reason),
		}
	}
	return &admissionv1.AdmissionResponse{UID: uid, Allowed: true, Warnings: []string{oneLine("allowed, though " + unchecked + reason)}}
}

// judged asks the judge. It recovers from a panic, as the process has other reviews to answer.
func (h *handler) judged(ctx context.Context, m matter) (v Verdict, err error) {
	defer func() {
		if p := recover(); p != nil {
			h.log.Error("judge panicked", "panic", p)
			err = &UnableError{Reason: "the judge panicked, see its log"}
		}
	}()
	if m.ingress != nil {
		return h.judge.Ingress(ctx, m.ingress)
	}
	if m.gateway != nil {
		return h.judge.Gateway(ctx, m.kind, m.gateway)
	}
	return h.configuration(ctx, m)
}

// configuration judges the ConfigMap.
func (h *handler) configuration(ctx context.Context, m matter) (Verdict, error) {
	document, ok := m.configuration.Data[ConfigKey]
	if !ok {
		return Verdict{Faults: []diag.Diagnostic{{
			Severity: diag.Error, Position: diag.Position{Field: "data"},
			Message: "there is no key " + ConfigKey, Hint: "put the CompilerConfig there",
		}}}, nil
	}
	return h.judge.Configuration(ctx, []byte(document))
}

const (
	// maxBody bounds a review in bytes. It holds an object twice, of at most the 3
	// MiB that an API server takes.
	maxBody = 8 << 20
	// bodyTime is how long the body of a review may take to arrive.
	bodyTime = 5 * time.Second
	// freeBody is how much of each body is not counted; maxBodies bounds the rest of all bodies that
	// are being read or wait to be judged.
	freeBody, maxBodies = 64 << 10, 64 << 20
	// maxReviews bounds the reviews that are judged at the same time, and maxOfNamespace those of one
	// namespace.
	maxReviews, maxOfNamespace = 512, 128
)

var (
	errTooLarge = errors.New("the review is too large")
	errTooMany  = errors.New("too many large reviews at a time")
)

// bodies bounds the memory and the time for the bodies of requests. Reading one body waits for no
// other.
type bodies struct {
	held     atomic.Int64
	patience time.Duration // zero: bodyTime
}

// read reads a whole body. With an error it returns the status of the answer.
func (b *bodies) read(w http.ResponseWriter, r *http.Request) ([]byte, int, error) {
	// A server without deadlines, as in a test, has no slow clients either.
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(cmp.Or(b.patience, bodyTime)))
	var out bytes.Buffer
	var counted int64
	defer func() { b.held.Add(-counted) }()
	chunk := make([]byte, 32<<10)
	for {
		n, err := r.Body.Read(chunk)
		out.Write(chunk[:n])
		if out.Len() > maxBody {
			return nil, http.StatusRequestEntityTooLarge, errTooLarge
		}
		if over := int64(out.Len()) - freeBody - counted; over > 0 {
			counted += over
			if b.held.Add(over) > maxBodies {
				return nil, http.StatusServiceUnavailable, errTooMany
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			// From now on, a read only shows whether the client is still connected.
			_ = connection.SetReadDeadline(time.Time{})
			return out.Bytes(), 0, nil
		case err != nil:
			return nil, http.StatusBadRequest, err
		}
	}
}

// places are the places for reviews that are being judged. Each namespace gets only some of them, so
// that no namespace blocks the others.
type places struct {
	mu  sync.Mutex
	all int
	of  map[string]int // by namespace
}

func (p *places) take(namespace string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= maxReviews || p.of[namespace] >= maxOfNamespace {
		return false
	}
	if p.of == nil {
		p.of = map[string]int{}
	}
	p.all++
	p.of[namespace]++
	return true
}

func (p *places) leave(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.of[namespace]--; p.of[namespace] == 0 {
		delete(p.of, namespace)
	}
}

// metrics are those of one server.
type metrics struct {
	reviews   *prometheus.CounterVec
	malformed prometheus.Counter
	distrusts prometheus.Counter
	duration  prometheus.Histogram
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hapsnap_compiler_admission_reviews_total",
			Help: "Reviews of the admission webhook, by kind of object (Ingress, ConfigMap, those of the Gateway API, other) and result: allowed, denied, unjudged (allowed or denied as the failure policy says).",
		}, []string{"kind", "result"}),
		malformed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hapsnap_compiler_admission_malformed_total", Help: "Requests to the admission webhook that were no reviews.",
		}),
		distrusts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "hapsnap_compiler_admission_certificate_refused_total",
			Help: "Connections that a client, such as an API server, ended since it does not accept the certificate of the admission webhook.",
		}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "hapsnap_compiler_admission_review_duration_seconds", Help: "Time to answer a review, the wait for the one before included.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 12),
		}),
	}
	for _, kind := range judgedKinds {
		for _, result := range []string{allowed, denied, notJudged} {
			m.reviews.WithLabelValues(kind, result)
		}
	}
	r.MustRegister(m.reviews, m.malformed, m.distrusts, m.duration)
	return m
}

// judgedKinds are the kinds of objects that are judged.
var judgedKinds = func() []string {
	out := []string{"Ingress", "ConfigMap"}
	for _, k := range inputs.GatewayKinds() {
		if k.Judged {
			out = append(out, k.Name)
		}
	}
	return out
}()

// Registrations are the ValidatingWebhookConfigurations of a cluster.
type Registrations interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*admissionregistrationv1.ValidatingWebhookConfiguration, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error)
}

// Registration is the ValidatingWebhookConfiguration with which an API server finds the webhook.
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

// DNSNames returns the names of the webhook's Services. The API server expects them in the webhook's
// certificate.
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

// Trust makes the API server trust these authorities, in PEM, for all webhooks that are a Service. Those that it trusted
// before stay for as long as [credentials.Trusted] says. Trust writes nothing if the API server trusts them already.
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
		if w.ClientConfig.Service == nil {
			continue
		}
		if trusted := credentials.Trusted(authorities, w.ClientConfig.CABundle, time.Now()); !bytes.Equal(w.ClientConfig.CABundle, trusted) {
			patch = append(patch, operation{"add", fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), trusted})
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

// RegistrationRules returns the permissions that a Registration needs. They are for the whole cluster.
func RegistrationRules(name string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{admissionregistrationv1.GroupName}, Resources: []string{"validatingwebhookconfigurations"}, ResourceNames: []string{name}, Verbs: []string{"get", "patch"}}}
}
