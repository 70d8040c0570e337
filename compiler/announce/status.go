package announce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applynetworkingv1 "k8s.io/client-go/applyconfigurations/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/internal/objectname"
)

// address is one of status.loadBalancer.ingress.
type address = networkingv1.IngressLoadBalancerIngress

// Addresses returns the addresses at which Ingresses are served, sorted, and whether they are known. They are not if none
// are configured, or the Service does not exist. If the Service waits for its load balancer, there are known to be none.
func Addresses(c config.IngressStatus, in inputs.Inputs) ([]networkingv1.IngressLoadBalancerIngress, bool) {
	if c.Service == "" {
		return addresses(c.Addresses), len(c.Addresses) > 0
	}
	service, _ := objectname.Parse(c.Service) // of a configuration that was checked
	for _, s := range in.Services {
		if s.Ref.Namespace == service.Namespace && s.Ref.Name == service.Name {
			return addresses(ofService(s.Value)), true
		}
	}
	return nil, false
}

// ofService returns the addresses of a Service, as ingress-nginx does with
// --publish-service: for a load balancer those that it was given and the
// external IPs, else the external name, the external IPs or the cluster IP.
func ofService(s *corev1.Service) []string {
	var out []string
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return []string{s.Spec.ExternalName}
	case corev1.ServiceTypeLoadBalancer:
		for _, i := range s.Status.LoadBalancer.Ingress {
			out = append(out, i.IP, i.Hostname)
		}
		return append(out, s.Spec.ExternalIPs...)
	}
	if len(s.Spec.ExternalIPs) > 0 {
		return s.Spec.ExternalIPs
	}
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	return []string{s.Spec.ClusterIP}
}

// addresses sorts IPs and host names, without repeats.
func addresses(texts []string) []address {
	var out []address
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil {
			out = append(out, address{IP: ip.String()})
		} else if text != "" {
			out = append(out, address{Hostname: text})
		}
	}
	return sorted(out)
}

func sorted(list []address) []address {
	return slices.CompactFunc(slices.SortedFunc(slices.Values(list), compareAddresses), same)
}

func compareAddresses(a, b address) int {
	return cmp.Or(cmp.Compare(a.IP, b.IP), cmp.Compare(a.Hostname, b.Hostname))
}

func same(a, b address) bool { return compareAddresses(a, b) == 0 }

// desire is what the statuses should say.
type desire struct {
	in        inputs.Inputs
	served    map[diag.Object]bool // Ingresses that the published snapshot serves
	addresses []address
	known     bool // the addresses
}

// change is a status to write: the addresses, or none to remove ours.
type change struct {
	ref       diag.Object
	uid       types.UID
	version   string // of the Ingress as it was seen
	addresses []address
}

// changes returns the statuses that differ from what they should be, in the order of the Ingresses.
// While it is not known where they are served, nothing changes.
func (d desire) changes() []change {
	if !d.known {
		return nil
	}
	var out []change
	for _, ing := range slices.Concat(d.in.Ingresses, d.in.Broken) {
		has := sorted(ing.Value.Status.LoadBalancer.Ingress)
		c := change{ref: ing.Ref, uid: ing.Value.UID, version: ing.Value.ResourceVersion}
		switch ours := slices.EqualFunc(has, d.addresses, same); {
		case c.uid == "" || ing.At != nil || ing.Value.DeletionTimestamp != nil:
		case d.served[ing.Ref] && !ours:
			c.addresses = d.addresses
			out = append(out, c)
		case !d.served[ing.Ref] && ours && len(has) > 0:
			out = append(out, c)
		}
	}
	return out
}

// The times of statuses.
const (
	// conflictAfter is how many writes of a status within a window mean that another program writes it
	// too.
	conflictAfter = 3
	window        = 10 * time.Minute
	// cooldown is how long such a status is left alone.
	cooldown = time.Hour
)

// mark is what was written of a status.
type mark struct {
	version   string // of the Ingress, for which it was
	addresses []address
	at        []time.Time // the last times, within the window
	refused   events.Refusal
}

// pendingStatuses decide which status is written next. Their methods are given the time.
type pendingStatuses struct {
	marks  marks
	wanted []change
	filled bool // the queue is of wanted
	queue  events.Queue[change]
}

// want replaces the changes that are to be made.
func (s *pendingStatuses) want(changes []change) { s.wanted, s.filled = changes, false }

// next returns the next change that is due. Namespaces take turns: somebody may make Ingresses anew all the time, quicker
// than statuses are written. Of a namespace, changes that the API server refused come after all others, and the one that
// waits longest comes first among them.
func (s *pendingStatuses) next(now time.Time) (change, bool) {
	due := func(c change) bool { return s.marks.due(c, now) }
	if s.filled {
		if c, ok := s.queue.Next(due); ok {
			return c, true
		}
	}
	// Once for all changes, and not for each of them: there may be tens of thousands.
	var all []change
	for _, c := range s.wanted {
		if due(c) {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b change) int { return s.marks[a.uid].refused.Until.Compare(s.marks[b.uid].refused.Until) })
	s.queue.Fill(all, func(c change) string { return c.ref.Namespace })
	s.filled = true
	return s.queue.Next(due)
}

// marks are what was written, by UID. Its methods are given the time.
type marks map[types.UID]mark

// due reports whether a change is to be written. It is not, if the same was written for this version of
// the Ingress: then the write has not arrived yet, or changed nothing.
func (m marks) due(c change, now time.Time) bool {
	was, ok := m[c.uid]
	if !ok {
		return true
	}
	if now.Before(was.refused.Until) {
		return false
	}
	if was.version == c.version && slices.EqualFunc(was.addresses, c.addresses, same) {
		return false
	}
	return len(was.at) < conflictAfter || now.Sub(was.at[0]) >= window && now.Sub(was.at[len(was.at)-1]) >= cooldown
}

// wrote records a change that was written, and reports whether another program seems to write the same
// status: then it is left alone for a while.
func (m marks) wrote(c change, now time.Time) (conflict bool) {
	was := m[c.uid]
	var recent []time.Time
	if slices.EqualFunc(was.addresses, c.addresses, same) {
		recent = slices.DeleteFunc(slices.Clone(was.at), func(at time.Time) bool { return now.Sub(at) >= window })
	}
	m[c.uid] = mark{version: c.version, addresses: c.addresses, at: append(recent, now)}
	return len(recent)+1 == conflictAfter
}

// keep forgets Ingresses that are gone.
func (m marks) keep(in inputs.Inputs) {
	there := map[types.UID]bool{}
	for _, ing := range slices.Concat(in.Ingresses, in.Broken) {
		there[ing.Value.UID] = true
	}
	for uid := range m {
		if !there[uid] {
			delete(m, uid)
		}
	}
}

// timeout is how long the API server may take for one request.
const timeout = 10 * time.Second

// nextStatus writes the status that is due next, and reports whether there was
// one.
func (a *Announcer) nextStatus(ctx context.Context) (bool, error) {
	a.mu.Lock()
	c, ok := a.pending.next(time.Now())
	a.mu.Unlock()
	if !ok {
		return false, nil
	}
	if err := a.limit.Wait(ctx); err != nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// Without addresses we give up ownership: the API server then removes what only we had written, and leaves what
	// others have written since. If another Ingress has the name by now, the API server answers with a conflict.
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
	// If the Ingress is gone, or is another one by now, the next read of the objects shows it.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
		a.metrics.statuses.WithLabelValues("error").Inc()
		a.mu.Lock()
		defer a.mu.Unlock()
		m := a.pending.marks[c.uid]
		defer func() { a.pending.marks[c.uid] = m }()
		if !events.OfOne(err) {
			m.refused.Until = time.Now() // others come first
			return false, fmt.Errorf("write status of %s: %w", c.ref, err)
		}
		m.refused = a.statuses.Refused(m.refused, c.ref.String(), err, time.Now())
		return true, nil
	}
	result := "written"
	if err != nil {
		result = "refused"
		a.options.Log.Warn("status refused", "object", c.ref.String(), "err", err)
	}
	a.metrics.statuses.WithLabelValues(result).Inc()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.statuses.Accepted(a.pending.marks[c.uid].refused, c.ref.String())
	}
	if a.pending.marks.wrote(c, time.Now()) {
		a.options.Log.Error("status is written by another controller too, leaving it alone for a while", "object", c.ref.String(), "err", errors.New("it is not what the compiler wrote"), "for", cooldown)
	}
	return true, nil
}
