package announce

import (
	"context"
	"fmt"
	"log/slog"
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
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/gateway/status"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/snapshots"
)

const (
	// gatewayRate and gatewayBurst are how many statuses are written in a second, and at once.
	gatewayRate, gatewayBurst = 50, 100
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

	changed bool      // since the queue was made
	again   time.Time // when something may be written that had to wait, zero if nothing waits
	queue   []gatewayObject
}

// generation is one of an object's, and the snapshot that had it first, as far as is known.
type generation struct {
	number int64
	first  snapshots.ID
	before bool // it was there before this process published anything
}

// gatewayMark is what was written of an object last.
type gatewayMark struct {
	version string // of the object as a compile saw it
	status  map[string]any
	next    time.Time // not before
	gone    bool      // the API server has no such object any more
	refused events.Refusal
}

func newGatewayStatuses(o Options) *gatewayStatuses {
	g := &gatewayStatuses{
		client: o.Dynamic, fleet: o.Fleet, log: o.Log, limit: flowcontrol.NewTokenBucketRateLimiter(gatewayRate, gatewayBurst),
		written: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hapsnap_compiler_gateway_status_writes_total", Help: "Statuses of objects of the Gateway API brought to the API server, by result: written, refused (not tried again), error.",
		}, []string{"result"}),
		first: map[types.UID]generation{}, wrote: map[types.UID]gatewayMark{},
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
	for _, o := range g.objects() {
		uid := o.meta.GetUID()
		there[uid] = true
		if was, known := g.first[uid]; !known || was.number != o.meta.GetGeneration() {
			g.first[uid] = generation{number: o.meta.GetGeneration(), first: head, before: atStart}
		}
	}
	for uid := range g.first {
		if !there[uid] {
			delete(g.first, uid)
			delete(g.wrote, uid)
		}
	}
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
	mark.status, err = g.write(ctx, o)
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

// due takes the next object from the queue whose status is not what it should be. An empty queue is
// filled once after each change, and when what had to wait is due.
func (g *gatewayStatuses) due(now time.Time) (gatewayObject, bool) {
	if late := !g.again.IsZero() && !now.Before(g.again); g.changed || late { // the longest wait comes first, so that an object that changes often does not delay others
		g.queue, g.changed, g.again = g.objects(), false, time.Time{}
		slices.SortStableFunc(g.queue, func(a, b gatewayObject) int {
			return g.wrote[a.meta.GetUID()].next.Compare(g.wrote[b.meta.GetUID()].next)
		})
	}
	for len(g.queue) > 0 {
		o := g.queue[0]
		g.queue = g.queue[1:]
		mark := g.wrote[o.meta.GetUID()]
		if o.meta.GetUID() == "" || o.meta.GetDeletionTimestamp() != nil || mark.gone {
			continue
		}
		there := mark.status
		if there == nil || mark.version != o.meta.GetResourceVersion() {
			there = statusOf(o.meta)
		}
		want, err := o.status(there, now)
		switch {
		case err != nil || status.Same(there, want):
		case now.Before(mark.next):
			g.waits(mark.next)
		default:
			return o, true
		}
	}
	if !g.again.IsZero() {
		time.AfterFunc(g.again.Sub(now), g.loop.Kick)
	}
	return gatewayObject{}, false
}

// write writes a status to the API server, and returns it. It is made from the current one.
func (g *gatewayStatuses) write(ctx context.Context, o gatewayObject) (map[string]any, error) {
	kind, _ := inputs.GatewayKindOf(o.ref.Kind)
	client := g.client.Resource(schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1", Resource: kind.Resource}).Namespace(o.ref.Namespace)
	for tries := 0; ; tries++ {
		there, err := client.Get(ctx, o.ref.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if there.GetUID() != o.meta.GetUID() {
			return nil, apierrors.NewNotFound(schema.GroupResource{Group: gatewayv1.GroupName, Resource: kind.Resource}, o.ref.Name)
		}
		has, _, _ := unstructured.NestedMap(there.Object, "status")
		g.mu.Lock()
		want, err := o.status(has, time.Now())
		g.mu.Unlock()
		if err != nil || status.Same(has, want) {
			return want, err
		}
		there.Object["status"] = want
		if _, err = client.UpdateStatus(ctx, there, metav1.UpdateOptions{FieldManager: manager}); !apierrors.IsConflict(err) || tries == gatewayTries {
			return want, err
		}
	}
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
		return []rbacv1.PolicyRule{{APIGroups: []string{gatewayv1.GroupName}, Resources: resources, Verbs: []string{"update"}}}
	}
	return rules(ofClasses), rules(ofObjects)
}

// gatewayObject is an object of the Gateway API, and how its new status is made from the current one.
type gatewayObject struct {
	ref    diag.Object
	meta   metav1.Object
	status func(there map[string]any, now time.Time) (map[string]any, error)
}

// objects returns the objects whose status is for us to write.
func (g *gatewayStatuses) objects() []gatewayObject {
	var out []gatewayObject
	fleet := g.running()
	classes, gateways, sets := byRef(g.in.Classes), byRef(g.in.Gateways), byRef(g.in.Sets)
	for _, v := range g.said.Classes {
		if o, ok := classes[v.Ref]; ok {
			out = append(out, gatewayObject{v.Ref, o.Value, func(there map[string]any, now time.Time) (map[string]any, error) {
				return status.Class(there, v.Status, now)
			}})
		}
	}
	for _, v := range g.said.Gateways {
		if o, ok := gateways[v.Ref]; ok {
			out = append(out, gatewayObject{v.Ref, o.Value, func(there map[string]any, now time.Time) (map[string]any, error) {
				return status.Gateway(there, g.ofGateway(v, o.Value, fleet, there), now)
			}})
		}
	}
	for _, v := range g.said.Others {
		if o, ok := gateways[v.Ref]; ok {
			out = append(out, gatewayObject{v.Ref, o.Value, func(there map[string]any, now time.Time) (map[string]any, error) {
				return status.Other(there, v.Status, now)
			}})
		}
	}
	for _, v := range g.said.Sets {
		if o, ok := sets[v.Ref]; ok {
			out = append(out, gatewayObject{v.Ref, o.Value, func(there map[string]any, now time.Time) (map[string]any, error) {
				return status.ListenerSet(there, ofSet(v, o.Value, fleet, there), now)
			}})
		}
	}
	parents := map[diag.Object][]gatewayv1.RouteParentStatus{}
	for _, v := range g.said.Routes {
		parents[v.Ref] = v.Parents
	}
	for kind, o := range g.in.Each() {
		if kind.IsRoute() {
			out = append(out, g.routeObject(o, parents[o.Ref]))
		}
	}
	return append(out, g.policyObjects()...)
}

// policyObjects are all policies: those for nothing of ours lose what we have written when they were.
func (g *gatewayStatuses) policyObjects() []gatewayObject {
	ancestors := map[diag.Object][]gatewayv1.PolicyAncestorStatus{}
	for _, v := range g.said.Policies {
		ancestors[v.Ref] = v.Ancestors
	}
	var out []gatewayObject
	for _, o := range g.in.Policies {
		out = append(out, gatewayObject{o.Ref, o.Value, func(there map[string]any, now time.Time) (map[string]any, error) {
			if there["ancestors"] == nil && len(ancestors[o.Ref]) == 0 {
				return there, nil
			}
			return status.Policy(there, g.config.GatewayAPI.ControllerName, ancestors[o.Ref], g.elsewhereFor(o.Ref.Namespace, "ancestorRef"), now)
		}})
	}
	return out
}

// byRef returns objects by what names them. There may be thousands, and each is looked for.
func byRef[T any](list []inputs.Object[T]) map[diag.Object]inputs.Object[T] {
	out := make(map[diag.Object]inputs.Object[T], len(list))
	for _, o := range list {
		out[o.Ref] = o
	}
	return out
}

// routeObject is a route. If it names none of our Gateways any more, it loses the status that we wrote when it did.
func (g *gatewayStatuses) routeObject(o inputs.GatewayObject, parents []gatewayv1.RouteParentStatus) gatewayObject {
	return gatewayObject{o.Ref, o.Value, func(there map[string]any, now time.Time) (map[string]any, error) {
		if there["parents"] == nil && len(parents) == 0 {
			return there, nil
		}
		return status.Route(there, g.config.GatewayAPI.ControllerName, parents, g.elsewhereFor(o.Ref.Namespace, "parentRef"), now)
	}}
}

// elsewhereFor says which entries of statuses of a namespace are those of compilers of other fleets.
func (g *gatewayStatuses) elsewhereFor(namespace, field string) func(entry map[string]any) bool {
	return func(entry map[string]any) bool {
		ref, _ := entry[field].(map[string]any)
		about := diag.Object{Kind: "Gateway", Namespace: namespace}
		for key, into := range map[string]*string{"kind": &about.Kind, "namespace": &about.Namespace, "name": &about.Name} {
			if value, is := ref[key].(string); is {
				*into = value
			}
		}
		return g.elsewhere.Has(about, status.Message(entry, string(gatewayv1.RouteConditionAccepted)))
	}
}

// running says what is known of the workers.
func (g *gatewayStatuses) running() status.Fleet {
	if g.fleet == nil {
		return status.Fleet{Silent: "nothing tells the compiler what the instances run"}
	}
	report, err := g.fleet.Read(time.Now())
	switch {
	case err != nil:
		return status.Fleet{Silent: err.Error()}
	case len(report.Workers) == 0:
		return status.Fleet{Silent: "the fleet has no instances"}
	}
	out := status.Fleet{Run: func(uid types.UID, number int64, was bool) bool {
		for id := range report.Workers {
			if id != g.head && !g.had(id, uid, number, was) {
				return false
			}
		}
		return true
	}}
	if report.Stopped {
		out.Stopped = "the rollout is stopped; the status of the pusher says why"
	}
	return out
}

// had reports whether an earlier snapshot has a generation of an object. All have it from the one on that
// was made of it first, as far as is known. Of those before this process began, the status of the object
// says it.
func (g *gatewayStatuses) had(id snapshots.ID, uid types.UID, number int64, was bool) bool {
	of, known := g.first[uid]
	if !known || of.number != number || id.IsZero() {
		return false
	}
	return id.Revision >= of.first.Revision || of.before && was
}

func (g *gatewayStatuses) ofGateway(v gateway.GatewayVerdict, o *gatewayv1.Gateway, fleet status.Fleet, there map[string]any) gatewayv1.GatewayStatus {
	out := *v.Status.DeepCopy()
	programmed := string(gatewayv1.GatewayConditionProgrammed)
	if trouble := g.services.trouble(o.UID); trouble != "" && gateway.Condition(out.Conditions, programmed).Type == "" {
		out.Conditions = append(out.Conditions, metav1.Condition{
			Type: programmed, Status: metav1.ConditionFalse, Reason: string(gatewayv1.GatewayReasonNoResources), Message: trouble, ObservedGeneration: o.Generation,
		})
	}
	lists := []*[]metav1.Condition{&out.Conditions}
	for i := range out.Listeners {
		lists = append(lists, &out.Listeners[i].Conditions)
	}
	fleet.Programmed(there, o.UID, o.Generation, lists...)
	if len(out.Addresses) == 0 {
		out.Addresses = g.where
	}
	return out
}

func ofSet(v gateway.SetVerdict, o *gatewayv1.ListenerSet, fleet status.Fleet, there map[string]any) gatewayv1.ListenerSetStatus {
	out := *v.Status.DeepCopy()
	lists := []*[]metav1.Condition{&out.Conditions}
	for i := range out.Listeners {
		lists = append(lists, &out.Listeners[i].Conditions)
	}
	fleet.Programmed(there, o.UID, o.Generation, lists...)
	return out
}
