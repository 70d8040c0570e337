package announce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applynetworkingv1 "k8s.io/client-go/applyconfigurations/networking/v1"
)

// timeout is how long the API server may take for one request.
const timeout = 10 * time.Second

// nextEvent writes the Event that is due next, and reports whether there was one.
func (a *Announcer) nextEvent(ctx context.Context) (bool, error) {
	a.mu.Lock()
	w, before, ok := a.events.next(time.Now())
	a.mu.Unlock()
	if !ok {
		return false, nil
	}
	if err := a.eventLimit.Wait(ctx); err != nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := a.writeEvent(ctx, w, before)
	if err != nil && !hopeless(err) {
		a.metrics.events.WithLabelValues("error").Inc()
		return false, fmt.Errorf("write Event on %s %s/%s: %w", w.Regarding.Kind, w.Regarding.Namespace, w.Regarding.Name, err)
	}
	result := "written"
	if err != nil {
		result = "refused"
		a.options.Log.Warn("event refused", "object", w.Regarding.Kind+" "+w.Regarding.Namespace+"/"+w.Regarding.Name, "err", err)
	}
	a.metrics.events.WithLabelValues(result).Inc()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events.wrote(w.name, time.Now())
	return true, nil
}

// hopeless reports whether an Event can never be written, or not any more.
func hopeless(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// writeEvent creates an Event, or says on the one that is there that it holds
// still, or again. One that another process has made is left as it is.
func (a *Announcer) writeEvent(ctx context.Context, w wish, before int32) error {
	client := a.options.Events.Events(w.namespace())
	now := metav1.NowMicro()
	if before > 0 {
		data, err := json.Marshal(map[string]any{"series": eventsv1.EventSeries{Count: before + 1, LastObservedTime: now}})
		if err != nil {
			return fmt.Errorf("encode Event: %w", err)
		}
		if _, err = client.Patch(ctx, w.name, types.MergePatchType, data, metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
			return err
		}
	}
	_, err := client.Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace(), Name: w.name},
		EventTime:  now, ReportingController: "hapsnap.dev/compiler", ReportingInstance: cut(a.options.Instance, 128),
		Action: action, Type: w.Type, Reason: w.Reason, Note: w.Note, Regarding: w.Regarding,
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// nextStatus writes the status that is due next, and reports whether there was
// one.
func (a *Announcer) nextStatus(ctx context.Context) (bool, error) {
	a.mu.Lock()
	c, ok := a.marks.next(a.desire.changes(), time.Now())
	a.mu.Unlock()
	if !ok {
		return false, nil
	}
	if err := a.statusLimit.Wait(ctx); err != nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := a.writeStatus(ctx, c)
	// An Ingress that is gone, or another one by now, is met as such soon enough.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
		a.metrics.statuses.WithLabelValues("error").Inc()
		return false, fmt.Errorf("write status of %s: %w", c.ref, err)
	}
	result := "written"
	if err != nil {
		result = "refused"
		a.options.Log.Warn("status refused", "object", c.ref.String(), "err", err)
	}
	a.metrics.statuses.WithLabelValues(result).Inc()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.marks.wrote(c, time.Now()) {
		a.options.Log.Error("status is written by another controller too, leaving it alone for a while", "object", c.ref.String(), "err", errors.New("not as it was written"), "for", truce)
	}
	return true, nil
}

// writeStatus makes the addresses ours and sets them, or, without any, gives up
// what is ours: the API server takes away what only we had written, and leaves
// what others have written since. An Ingress of the same name that is another one
// is a conflict.
func (a *Announcer) writeStatus(ctx context.Context, c change) error {
	apply := applynetworkingv1.Ingress(c.ref.Name, c.ref.Namespace).WithUID(c.uid)
	if len(c.addresses) > 0 {
		balancer := applynetworkingv1.IngressLoadBalancerStatus()
		for _, has := range c.addresses {
			one := applynetworkingv1.IngressLoadBalancerIngress()
			if has.IP != "" {
				one.WithIP(has.IP)
			} else {
				one.WithHostname(has.Hostname)
			}
			balancer.WithIngress(one)
		}
		apply.WithStatus(applynetworkingv1.IngressStatus().WithLoadBalancer(balancer))
	}
	_, err := a.options.Ingresses.Ingresses(c.ref.Namespace).ApplyStatus(ctx, apply, metav1.ApplyOptions{FieldManager: manager, Force: true})
	return err
}
