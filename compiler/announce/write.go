package announce

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applynetworkingv1 "k8s.io/client-go/applyconfigurations/networking/v1"
)

// timeout is how long the API server may take for one request.
const timeout = 10 * time.Second

// nextStatus writes the status that is due next, and reports whether there was
// one.
func (a *Announcer) nextStatus(ctx context.Context) (bool, error) {
	a.mu.Lock()
	c, ok := a.marks.next(a.desire.changes(), time.Now())
	a.mu.Unlock()
	if !ok {
		return false, nil
	}
	if err := a.limit.Wait(ctx); err != nil {
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
