package provisioner

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/internal/events"
)

// The reasons of Events on Gateways.
const (
	reasonRefused = "FleetRefused"
	reasonFailed  = "FleetNotMade"
	reasonPartly  = "FleetLacks"
	reasonMade    = "FleetMade"
)

// signature ends the messages of our conditions. Once the compiler of the fleet has written Accepted, it owns
// the conditions.
const signature = " (provisioner)"

// reporter reports on Gateways what happens to their fleets.
type reporter struct {
	gateways dynamic.NamespaceableResourceInterface
	recorder *events.Recorder
	statuses *events.Loop
	log      *slog.Logger
	written  *prometheus.CounterVec

	mu    sync.Mutex
	queue []saying
}

// saying is what the status of a Gateway should say as long as nobody else writes one.
type saying struct {
	gateway    *gatewayv1.Gateway
	conditions []metav1.Condition
}

func newReporter(client kubernetes.Interface, all dynamic.Interface, leader events.Leader, instance string, log *slog.Logger, registry prometheus.Registerer) *reporter {
	v := &reporter{
		gateways: all.Resource(gateways), log: log,
		recorder: events.New(events.Options{Program: "provisioner", Events: client.EventsV1(), Leader: leader, Instance: instance, Log: log, Metrics: registry}),
		written: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hapsnap_provisioner_status_writes_total", Help: "Statuses of Gateways brought to the API server while the compiler of their fleet has not answered, by result: written, error.",
		}, []string{"result"}),
	}
	for _, result := range []string{"written", "error"} {
		v.written.WithLabelValues(result)
	}
	registry.MustRegister(v.written)
	v.statuses = events.NewLoop("statuses of Gateways", leader, log, v.next)
	return v
}

func (v *reporter) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { v.recorder.Run(ctx) })
	v.statuses.Run(ctx)
	running.Wait()
}

// say reports what happened to the fleets.
func (p *provisioner) say(fleets []Fleet, removal Removal) {
	var lasting []events.Event
	var queue []saying
	count := map[string]int{"waiting": len(removal.Waiting)}
	for _, f := range fleets {
		reason, message := "", ""
		switch s := p.states[f.Name]; {
		case f.Refused != "":
			reason, message = reasonRefused, f.Refused
			count["refused"]++
		case s == nil || s.at.IsZero():
			continue // the term ended during the work on it
		case s.err != nil:
			reason, message = reasonFailed, strings.ReplaceAll(s.err.Error(), "\n", "; ")
			count["failed"]++
		default:
			count["made"]++
		}
		for _, g := range f.Gateways {
			about := corev1.ObjectReference{APIVersion: gatewayv1.GroupVersion.String(), Kind: "Gateway", Namespace: g.Namespace, Name: g.Name, UID: g.UID}
			tell := func(kind, reason, note string) {
				lasting = append(lasting, events.Event{Regarding: about, Action: "Provision", Type: kind, Reason: reason, Note: events.Note(note)})
			}
			if reason != "" {
				tell(corev1.EventTypeWarning, reason, fmt.Sprintf("fleet %s: %s", f.Name, message))
			} else {
				tell(corev1.EventTypeNormal, reasonMade, fmt.Sprintf("fleet %s: its objects begin with %s", f.Name, p.made[f.Name].Name))
			}
			if len(f.Left) > 0 && f.Refused == "" {
				tell(corev1.EventTypeWarning, reasonPartly, fmt.Sprintf("fleet %s: %s", f.Name, strings.Join(f.Left, "; ")))
			}
			queue = append(queue, saying{g, Conditions(f, reason, message, g.Generation)})
		}
	}
	p.metrics.fleets.Reset()
	for _, stand := range []string{"made", "refused", "failed", "waiting"} {
		p.metrics.fleets.WithLabelValues(stand).Set(float64(count[stand]))
	}
	held := 0.0
	if removal.Held != "" {
		held = 1
		if !p.held {
			p.Log.Error("fleets are not removed", "err", removal.Held)
		}
	}
	p.held = removal.Held != ""
	p.metrics.held.Set(held)
	p.reporter.recorder.Say(lasting, nil, time.Now())
	p.reporter.say(queue)
}

// Conditions returns the conditions of a Gateway while the compiler of its fleet has written none.
func Conditions(f Fleet, reason, message string, generation int64) []metav1.Condition {
	accepted := metav1.Condition{Type: string(gatewayv1.GatewayConditionAccepted), ObservedGeneration: generation}
	programmed := metav1.Condition{Type: string(gatewayv1.GatewayConditionProgrammed), ObservedGeneration: generation}
	switch reason {
	case reasonRefused:
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, string(gatewayv1.GatewayReasonInvalidParameters), message
		programmed.Status, programmed.Reason, programmed.Message = metav1.ConditionFalse, string(gatewayv1.GatewayReasonInvalid), message
	case reasonFailed:
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionUnknown, string(gatewayv1.GatewayReasonPending), "the fleet "+f.Name.String()+" cannot be made"
		programmed.Status, programmed.Reason, programmed.Message = metav1.ConditionFalse, string(gatewayv1.GatewayReasonNoResources), message
	default:
		message = "the fleet " + f.Name.String() + " is made; its compiler has not answered yet"
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionUnknown, string(gatewayv1.GatewayReasonPending), message
		programmed.Status, programmed.Reason, programmed.Message = metav1.ConditionUnknown, string(gatewayv1.GatewayReasonPending), message
	}
	for _, c := range []*metav1.Condition{&accepted, &programmed} {
		c.Message = events.Cut(c.Message, 1024) + signature
	}
	return []metav1.Condition{accepted, programmed}
}

// speaks reports whether we may write the conditions of a Gateway: nobody has written them yet, or we have.
func speaks(there []metav1.Condition) bool {
	c := meta.FindStatusCondition(there, string(gatewayv1.GatewayConditionAccepted))
	return c == nil || c.Status == metav1.ConditionUnknown && c.Reason == string(gatewayv1.GatewayReasonPending) || strings.HasSuffix(c.Message, signature)
}

// differ reports whether something has to be written.
func differ(there, wanted []metav1.Condition) bool {
	for _, w := range wanted {
		c := meta.FindStatusCondition(there, w.Type)
		if c == nil || c.Status != w.Status || c.Reason != w.Reason || c.Message != w.Message || c.ObservedGeneration != w.ObservedGeneration {
			return true
		}
	}
	return false
}

func (v *reporter) say(all []saying) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.queue = nil
	for _, s := range all {
		if there := s.gateway.Status.Conditions; speaks(there) && differ(there, s.conditions) {
			v.queue = append(v.queue, s)
		}
	}
	v.statuses.Kick()
}

// next writes one status, and reports whether there was one.
func (v *reporter) next(ctx context.Context) (bool, error) {
	v.mu.Lock()
	if len(v.queue) == 0 {
		v.mu.Unlock()
		return false, nil
	}
	s := v.queue[0]
	v.queue = v.queue[1:]
	v.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := v.write(ctx, s)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return true, nil // somebody was faster, which the next turn will see
	}
	if err != nil {
		v.written.WithLabelValues("error").Inc()
		v.log.Warn("cannot write the status of a Gateway", "gateway", s.gateway.Namespace+"/"+s.gateway.Name, "err", err)
		return true, nil
	}
	return true, nil
}

// write replaces our conditions in a status, and nothing else in it.
func (v *reporter) write(ctx context.Context, s saying) error {
	at := v.gateways.Namespace(s.gateway.Namespace)
	o, err := at.Get(ctx, s.gateway.Name, metav1.GetOptions{})
	if err != nil || o.GetUID() != s.gateway.UID || o.GetGeneration() != s.gateway.Generation {
		return err
	}
	there, err := conditionsOf(o)
	if err != nil || !speaks(there) || !differ(there, s.conditions) {
		return err
	}
	for _, c := range s.conditions {
		meta.SetStatusCondition(&there, c)
	}
	var list []any
	for _, c := range there {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c)
		if err != nil {
			return err
		}
		list = append(list, fields)
	}
	if err := unstructured.SetNestedSlice(o.Object, list, "status", "conditions"); err != nil {
		return err
	}
	if _, err = at.UpdateStatus(ctx, o, metav1.UpdateOptions{FieldManager: manager}); err == nil {
		v.written.WithLabelValues("written").Inc()
	}
	return err
}

func conditionsOf(o *unstructured.Unstructured) ([]metav1.Condition, error) {
	status, _, err := unstructured.NestedMap(o.Object, "status")
	if err != nil {
		return nil, fmt.Errorf("read the status: %w", err)
	}
	var out struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"conditions": status["conditions"]}, &out); err != nil {
		return nil, fmt.Errorf("read the status: %w", err)
	}
	return out.Conditions, nil
}

// metrics are those of a provisioner, beside those of its election, its Events and statuses.
type metrics struct {
	fleets          *prometheus.GaugeVec
	held            prometheus.Gauge
	synced, removed *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		fleets: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hapsnap_provisioner_fleets", Help: "Fleets by how they stand: made, refused, failed, and waiting for their removal since no Gateway names them.",
		}, []string{"stand"}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "hapsnap_provisioner_removals_held", Help: "1 while no fleet is removed since too many would go at once, else 0.",
		}),
		synced: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hapsnap_provisioner_applies_total", Help: "Fleets brought to what Gateways ask for, by result: applied, foreign (an object is somebody else's), error.",
		}, []string{"result"}),
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hapsnap_provisioner_removals_total", Help: "Fleets that no Gateway named any more, by result: removed, error.",
		}, []string{"result"}),
	}
	for _, stand := range []string{"made", "refused", "failed", "waiting"} {
		m.fleets.WithLabelValues(stand)
	}
	for _, result := range []string{"applied", "foreign", "error"} {
		m.synced.WithLabelValues(result)
	}
	for _, result := range []string{"removed", "error"} {
		m.removed.WithLabelValues(result)
	}
	r.MustRegister(m.fleets, m.held, m.synced, m.removed)
	return m
}
