package announce

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/flowcontrol"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/cluster"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/gateway/status"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/snapshots"
)

const (
	// gatewayPause is how long the status of one object is left alone after it was written.
	gatewayPause = time.Second
	// gatewayTries is how often a status is made again that somebody else has changed meanwhile.
	gatewayTries = 3
)

// Fleet says what the workers of HAProxy run.
type Fleet interface {
	Read(now time.Time) (cluster.FleetReport, error)
	// Changes sends when something else may be read.
	Changes() <-chan struct{}
}

// gatewayStatuses writes the status of objects of the Gateway API.
type gatewayStatuses struct {
	client dynamic.Interface
	fleet  Fleet // nil: nothing is known of it
	// services says what keeps a Gateway from its Service.
	services interface {
		trouble(gateway types.UID) string
	}
	log     *slog.Logger
	written *prometheus.CounterVec
	limit   flowcontrol.RateLimiter
	loop    *events.Loop

	mu     sync.Mutex
	in     inputs.GatewayAPI
	config config.Config
	said   gateway.Verdicts
	// elsewhere are Gateways of other fleets.
	elsewhere gateway.Elsewhere
	where     []gatewayv1.GatewayStatusAddress
	head      snapshots.ID
	first     map[types.UID]generation
	wrote     map[types.UID]gatewayMark
	right     map[types.UID]rightStatus

	changed bool      // since the queues were filled
	again   time.Time // when something may be written that had to wait, zero if nothing waits
	// shared are classes, Gateways and ListenerSets, own are routes and policies. They take turns: there are few of the former,
	// and many people look at them.
	shared, own events.Queue[gatewayObject]
	ownNext     bool
}

// generation is one of an object's, and the snapshot that had it first, as far as is known.
type generation struct {
	number int64
	first  snapshots.ID
	before bool // it was there before this process published anything
}

// rightStatus is what was to be said of a route when its status said just that, and nothing else. To look at the statuses of
// very many routes after each compile would take longer than the compile.
type rightStatus struct {
	version, after string // of the object as a compile saw it, and with the status that was written since
	controller     string
	parents        []gatewayv1.RouteParentStatus
}

// gatewayMark is what was written of an object last.
type gatewayMark struct {
	version string // of the object as a compile saw it
	status  map[string]any
	after   string    // the version of the object with that status, "" if that is not known
	next    time.Time // not before
	gone    bool      // the API server has no such object any more
	refused events.Refusal
}

func newGatewayStatuses(o Options) *gatewayStatuses {
	g := &gatewayStatuses{
		client: o.Dynamic, fleet: o.Fleet, log: o.Log, limit: flowcontrol.NewTokenBucketRateLimiter(statusRate, statusBurst),
		written: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hapsnap_compiler_gateway_status_writes_total", Help: "Statuses of objects of the Gateway API brought to the API server, by result: written, refused (not tried again), error.",
		}, []string{"result"}),
		first: map[types.UID]generation{}, wrote: map[types.UID]gatewayMark{}, right: map[types.UID]rightStatus{},
	}
	for _, result := range []string{"written", "refused", "error"} {
		g.written.WithLabelValues(result)
	}
	o.Metrics.MustRegister(g.written)
	g.loop = events.NewLoop("statuses of the Gateway API", o.Leader, o.Log, g.next)
	return g
}

// Gateways takes what the statuses of the Gateway API are to say, now that a snapshot of these objects is
// the newest one of the store.
func (a *Announcer) Gateways(in inputs.Inputs, c config.Config, said gateway.Verdicts, head snapshots.ID) {
	g := a.gateways
	if g == nil {
		return
	}
	a.services.take(in, c, said)
	g.mu.Lock()
	defer g.mu.Unlock()
	where, known := Addresses(c.IngressStatus, in)
	g.where = nil
	if known {
		var out []gatewayv1.GatewayStatusAddress
		for _, a := range where {
			kind, value := gatewayv1.HostnameAddressType, a.Hostname
			if a.IP != "" {
				kind, value = gatewayv1.IPAddressType, a.IP
			}
			out = append(out, gatewayv1.GatewayStatusAddress{Type: &kind, Value: value})
		}
		g.where = out
	}
	g.elsewhere = gateway.Elsewhere{Fleet: c.GatewayAPI.Fleet, In: in.Gateway, Reads: inputs.NewSelector(c, in.Namespaces).Reads}
	atStart := g.head.IsZero()
	g.in, g.config, g.said, g.head = in.Gateway, c, said, head
	there := map[types.UID]bool{}
	shared, own := g.objects()
	for _, o := range slices.Concat(shared, own) {
		uid := o.meta.GetUID()
		there[uid] = true
		if was, known := g.first[uid]; !known || was.number != o.meta.GetGeneration() {
			g.first[uid] = generation{number: o.meta.GetGeneration(), first: head, before: atStart}
		}
	}
	maps.DeleteFunc(g.first, func(uid types.UID, _ generation) bool { return !there[uid] })
	maps.DeleteFunc(g.wrote, func(uid types.UID, _ gatewayMark) bool { return !there[uid] }) // also of an object that went while it was written
	maps.DeleteFunc(g.right, func(uid types.UID, _ rightStatus) bool { return !there[uid] })
	g.changed = true
	g.loop.Kick()
}

// run writes until ctx is done.
func (g *gatewayStatuses) run(ctx context.Context) {
	done := make(chan struct{})
	go func() { defer close(done); g.loop.Run(ctx) }()
	var changes <-chan struct{}
	if g.fleet != nil {
		changes = g.fleet.Changes()
	}
	for {
		select {
		case <-ctx.Done():
			<-done
			return
		case <-changes:
			g.lookAgain()
		}
	}
}

// lookAgain looks at all statuses again.
func (g *gatewayStatuses) lookAgain() {
	g.mu.Lock()
	g.changed = true
	g.mu.Unlock()
	g.loop.Kick()
}

// next writes the next status that is due, and reports whether there was one.
func (g *gatewayStatuses) next(ctx context.Context) (bool, error) {
	g.mu.Lock()
	o, ok := g.due(time.Now())
	g.mu.Unlock()
	if !ok {
		return false, nil
	}
	if err := g.limit.Wait(ctx); err != nil {
		g.putBack(o)
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	mark := gatewayMark{version: o.meta.GetResourceVersion(), next: time.Now().Add(gatewayPause)}
	var err error
	mark.status, mark.after, err = g.write(ctx, o)
	result := "written"
	switch reason := apierrors.ReasonForError(err); {
	case err == nil:
	case !events.OfOne(err): // the API server did not answer, or not now
		g.written.WithLabelValues("error").Inc()
		g.putBack(o)
		return false, fmt.Errorf("write status of %s: %w", o.ref, err)
	case reason == metav1.StatusReasonNotFound && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse): // it knows the kind
		result, mark.gone = "refused", true
		g.log.Info("status not written, the object is gone", "object", o.ref.String())
	case reason == metav1.StatusReasonInvalid:
		// Not tried again until it is to say something else, or the object is another one.
		result = "refused"
		g.log.Warn("status refused", "object", o.ref.String(), "err", err)
	default: // it harms no other object
		result, mark.status = "error", nil
	}
	g.written.WithLabelValues(result).Inc()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch was := g.wrote[o.meta.GetUID()].refused; result {
	case "error":
		mark.refused = g.loop.Refused(was, o.ref.String(), err, time.Now())
		mark.next = mark.refused.Until
		g.waits(mark.next)
	case "written":
		g.loop.Accepted(was, o.ref.String())
	}
	g.wrote[o.meta.GetUID()] = mark
	return true, nil
}

// putBack has an object whose status was not written looked at again, after all others.
func (g *gatewayStatuses) putBack(o gatewayObject) {
	g.mu.Lock()
	defer g.mu.Unlock()
	mark := g.wrote[o.meta.GetUID()]
	mark.next, g.changed = time.Now(), true
	g.wrote[o.meta.GetUID()] = mark
}

// waits notes that the queue is to be filled again at some time.
func (g *gatewayStatuses) waits(until time.Time) {
	if g.again.IsZero() || until.Before(g.again) {
		g.again = until
	}
}

// due takes the next object from the queues whose status is not what it should be. They are filled once after each change,
// and when what had to wait is due.
func (g *gatewayStatuses) due(now time.Time) (gatewayObject, bool) {
	if late := !g.again.IsZero() && !now.Before(g.again); g.changed || late {
		g.fill()
	}
	isDue := func(o gatewayObject) bool { return g.differs(o, now) }
	first, second := &g.shared, &g.own
	if g.ownNext {
		first, second = second, first
	}
	o, ok := first.Next(isDue)
	if ok {
		g.ownNext = !g.ownNext
		return o, true
	}
	if o, ok = second.Next(isDue); ok {
		return o, true
	}
	if !g.again.IsZero() {
		time.AfterFunc(g.again.Sub(now), g.loop.Kick)
	}
	return gatewayObject{}, false
}

// fill fills the queues with all objects. Of a namespace, the longest wait comes first, so that an object that changes often
// does not delay others.
func (g *gatewayStatuses) fill() {
	g.changed, g.again = false, time.Time{}
	shared, own := g.objects()
	for _, list := range [][]gatewayObject{shared, own} {
		slices.SortStableFunc(list, func(a, b gatewayObject) int {
			return g.wrote[a.meta.GetUID()].next.Compare(g.wrote[b.meta.GetUID()].next)
		})
	}
	namespace := func(o gatewayObject) string { return o.ref.Namespace }
	g.shared.Fill(shared, namespace)
	g.own.Fill(own, namespace)
}

// differs reports whether the status of an object is to be written now. If it is to be written later, it notes when.
func (g *gatewayStatuses) differs(o gatewayObject, now time.Time) bool {
	mark := g.wrote[o.meta.GetUID()]
	if o.meta.GetUID() == "" || o.meta.GetDeletionTimestamp() != nil || mark.gone {
		return false
	}
	if g.isRight(o, mark) {
		return false
	}
	there := mark.status
	if there == nil || mark.version != o.meta.GetResourceVersion() {
		there = statusOf(o.meta)
	}
	want, err := o.status(there, now)
	switch {
	case err != nil:
		return false
	case status.Same(there, want):
		g.noteRight(o, mark, there)
		return false
	case now.Before(mark.next):
		g.waits(mark.next)
		return false
	}
	return true
}

// isRight reports whether nothing has changed since the status of a route was right.
func (g *gatewayStatuses) isRight(o gatewayObject, mark gatewayMark) bool {
	if o.route == nil {
		return false
	}
	was, known := g.right[o.meta.GetUID()]
	return known && was.version == o.meta.GetResourceVersion() && was.after == mark.after && was.controller == g.config.GatewayAPI.ControllerName &&
		reflect.DeepEqual(was.parents, o.route.Parents)
}

// noteRight notes that the status of a route is right. If others have written a part of it, it depends on more than the route.
func (g *gatewayStatuses) noteRight(o gatewayObject, mark gatewayMark, there map[string]any) {
	if entries, _ := there["parents"].([]any); o.route != nil && len(entries) == len(o.route.Parents) {
		g.right[o.meta.GetUID()] = rightStatus{o.meta.GetResourceVersion(), mark.after, g.config.GatewayAPI.ControllerName, o.route.Parents}
	}
}

// write writes a status to the API server, and returns it with the version of the object that has it. The status is made from
// the current one, which is read first if somebody else may have written a part of it: the compiler may not know all fields. What
// is sent is a patch: with an update that lacks labels, older API servers take them away from their owners in managedFields, and
// admission that changes objects sees no more than what is sent.
func (g *gatewayStatuses) write(ctx context.Context, o gatewayObject) (map[string]any, string, error) {
	kind, _ := inputs.GatewayKindOf(o.ref.Kind)
	client := g.client.Resource(schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1", Resource: kind.Resource}).Namespace(o.ref.Namespace)
	has, version, known := g.known(o)
	for tries := 0; ; tries++ {
		if !known {
			there, err := client.Get(ctx, o.ref.Name, metav1.GetOptions{})
			if err != nil {
				return nil, "", err
			}
			if there.GetUID() != o.meta.GetUID() {
				return nil, "", apierrors.NewNotFound(schema.GroupResource{Group: gatewayv1.GroupName, Resource: kind.Resource}, o.ref.Name)
			}
			has, _, _ = unstructured.NestedMap(there.Object, "status")
			version = there.GetResourceVersion()
		}
		g.mu.Lock()
		want, err := o.status(has, time.Now())
		g.mu.Unlock()
		if err != nil || status.Same(has, want) {
			return want, "", err
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.meta.GetUID(), "resourceVersion": version}, "status": want})
		if err != nil {
			return nil, "", fmt.Errorf("encode a status: %w", err)
		}
		after, err := client.Patch(ctx, o.ref.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager}, "status")
		switch {
		case err == nil:
			return want, after.GetResourceVersion(), nil
		case !apierrors.IsConflict(err) || tries == gatewayTries:
			return want, "", err
		}
		known = false
	}
}

// known returns the status of an object and the version that has it, if there is no status yet, or it is the one that was written
// last.
func (g *gatewayStatuses) known(o gatewayObject) (has map[string]any, version string, known bool) {
	g.mu.Lock()
	mark := g.wrote[o.meta.GetUID()]
	g.mu.Unlock()
	if mark.after != "" && mark.version == o.meta.GetResourceVersion() {
		return mark.status, mark.after, true
	}
	has = statusOf(o.meta)
	return has, o.meta.GetResourceVersion(), isEmpty(has)
}

// isEmpty reports whether a status says nothing.
func isEmpty(status map[string]any) bool {
	for _, value := range status {
		if list, is := value.([]any); value != nil && (!is || len(list) > 0) {
			return false
		}
	}
	return true
}

// statusOf returns the status of an object as the cluster sent it.
func statusOf(object any) map[string]any {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil
	}
	out, _, _ := unstructured.NestedMap(content, "status")
	return out
}

// GatewayRules returns the permissions to write the status of the Gateway API: that of classes, which are
// in no namespace, and that of the objects in every namespace whose objects are compiled.
func GatewayRules() (classes, objects []rbacv1.PolicyRule) {
	var ofClasses, ofObjects []string
	for _, k := range inputs.GatewayKinds() {
		switch {
		case k.Status && k.EveryNamespace:
			ofClasses = append(ofClasses, k.Resource+"/status")
		case k.Status:
			ofObjects = append(ofObjects, k.Resource+"/status")
		}
	}
	slices.Sort(ofObjects)
	rules := func(resources []string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{APIGroups: []string{gatewayv1.GroupName}, Resources: resources, Verbs: []string{"patch"}}}
	}
	return rules(ofClasses), rules(ofObjects)
}
