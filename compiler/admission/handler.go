package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxBudget is how long a review may take, whatever the API server grants: it
	// is the most that a ValidatingWebhookConfiguration can ask for.
	maxBudget = 30 * time.Second
	// defaultBudget is that of an API server that does not say.
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
	return &handler{judge: o.Judge, configMap: o.ConfigMap, log: o.Log, metrics: newMetrics(o.Metrics)}
}

// budget is how long a review may take, from the parameter by which an API
// server tells how long it waits. The number is rounded up to whole seconds, and
// the answer has to get there, so that some of it is left.
func budget(parameter string) time.Duration {
	granted, err := time.ParseDuration(parameter)
	if err != nil || granted <= 0 {
		granted = defaultBudget
	}
	granted = min(granted, maxBudget)
	return granted - max(granted/10, min(granted/2, 500*time.Millisecond))
}

// ServeHTTP reads a review before it takes a place among those that are judged: who sends
// slowly keeps nobody waiting.
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
	h.metrics.reviewed(request.Kind.Kind, result, time.Since(began))
	if result != allowed {
		h.log.Info("request reviewed", "kind", request.Kind.Kind, "namespace", request.Namespace, "name", request.Name, "result", result, "allowed", response.Allowed)
	}
	reply(w, response)
}

// read reads what is asked. With an error it returns the status of the answer.
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

// review has a matter judged until ctx is done. Its place is free when the judge is done,
// which may be later.
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
		select { // a judge that sees it too knows better why
		case o = <-judged:
		case <-time.After(grace):
			o.err = &UnableError{Reason: "there was no time for it", Again: true}
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

// grace is how long a judge may take to say why it had no time.
const grace = 100 * time.Millisecond

// unjudged is the response if there is no verdict. What is in the log alone may name what
// is not for everybody.
func (h *handler) unjudged(uid types.UID, err error) *admissionv1.AdmissionResponse {
	reason := "the compiler's log says why"
	unable, known := errors.AsType[*UnableError](err)
	if known {
		reason = unable.Reason
	}
	if known && unable.Again {
		return askAgain(uid, reason)
	}
	return unjudged(uid, h.judge.FailsClosed(), reason)
}

// judged asks the judge. What makes it panic would do so again when it is
// compiled; here it must not end the process, which has others to answer.
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
	return h.configuration(ctx, m)
}

// configuration judges the ConfigMap.
func (h *handler) configuration(ctx context.Context, m matter) (Verdict, error) {
	document, ok := m.configuration.Data[ConfigKey]
	if !ok {
		return Verdict{Faults: withoutKey()}, nil
	}
	return h.judge.Configuration(ctx, []byte(document))
}

func reply(w http.ResponseWriter, response *admissionv1.AdmissionResponse) {
	review := admissionv1.AdmissionReview{Response: response}
	review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	body, err := json.Marshal(review)
	if err != nil {
		http.Error(w, fmt.Sprintf("encode AdmissionReview: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // who asked has gone: there is nobody to tell
}
