package announce

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryv1client "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/util/flowcontrol"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/events"
)

const (
	// serviceRate and serviceBurst are how many Services are looked at in a second, and at once.
	serviceRate, serviceBurst = 10, 20
	// servicePause is how long a Service is left alone after it was looked at, unless its Gateway asks for
	// something else.
	servicePause = 5 * time.Second
	// serviceAgain is when it is looked at although nothing says that it has changed.
	serviceAgain = 10 * time.Minute
)

const (
	// controllerAnnotation says on a Service whose it is: the controllerName of the class.
	controllerAnnotation = inputs.ControllerAnnotation
	// compilerAnnotation says by which Lease the compiler leads that made it: two fleets may have one
	// controllerName.
	compilerAnnotation = "gateway.hapsnap.dev/compiler"
	// broughtAnnotation lists the keys that the Gateway has brought, so that they go when it drops them.
	broughtAnnotation = "gateway.hapsnap.dev/brought"
	managedBy         = "app.kubernetes.io/managed-by"
	// sliceManager is in EndpointSlices, so that Kubernetes leaves them alone.
	sliceManager = "compiler.hapsnap.dev"
)

// gatewayServices makes the Services of Gateways. It checks a Service when the wanted one has changed, or the existing one as
// far as the compiler sees it, and writes what differs.
type gatewayServices struct {
	services corev1client.ServicesGetter
	slices   discoveryv1client.EndpointSlicesGetter
	log      *slog.Logger
	lease    string
	limit    flowcontrol.RateLimiter
	loop     *events.Loop
	written  *prometheus.CounterVec
	changed  func() // when the trouble with a Gateway has

	mu       sync.Mutex
	tasks    []serviceTask
	marks    map[types.NamespacedName]serviceMark // by Service
	turns    events.Turns                         // of namespaces
	troubles map[types.UID]string                 // by Gateway
	twice    map[types.UID]string                 // Gateways whose Service is another Gateway's
	failing  bool                                 // a Service is somebody else's, and that was logged
}

// serviceTask is a Service that is to be like what a Gateway wants, or to be gone if that is nil.
type serviceTask struct {
	name       types.NamespacedName
	want       *gateway.Service
	owner      *gatewayv1.Gateway
	controller string
	lease      string // of the compilers that write it
	kind       corev1.ServiceType
	seen       string // the version that the compiler knows
}

// serviceMark is what was looked at last.
type serviceMark struct {
	task serviceTask
	at   time.Time
	// refused says that the compiler will try again; trouble says what is wrong, even if only somebody else can fix it.
	refused events.Refusal
	trouble string
	// unanswered says that nobody has answered since. Then others come first.
	unanswered bool
}

// ofOthers reports whether a Service is somebody else's.
func (m serviceMark) ofOthers() bool { return m.trouble != "" && m.refused == events.Refusal{} }

func newGatewayServices(o Options, changed func()) *gatewayServices {
	s := &gatewayServices{
		services: o.Services, slices: o.Slices, log: o.Log, lease: o.Lease, limit: flowcontrol.NewTokenBucketRateLimiter(serviceRate, serviceBurst), changed: changed,
		marks: map[types.NamespacedName]serviceMark{}, troubles: map[types.UID]string{},
		written: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hapsnap_compiler_gateway_service_writes_total", Help: "Services and EndpointSlices of Gateways that were created, changed or deleted, by result: written, error.",
		}, []string{"result"}),
	}
	for _, result := range []string{"written", "error"} {
		s.written.WithLabelValues(result)
	}
	o.Metrics.MustRegister(s.written)
	s.loop = events.NewLoop("Services of Gateways", o.Leader, o.Log, s.next)
	return s
}

// take takes the wanted Services, now that a snapshot with these Gateways is published.
func (s *gatewayServices) take(in inputs.Inputs, c config.Config, said gateway.Verdicts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks, s.twice = serviceTasks(in, c, said, s.lease)
	there, namespaces, known := map[types.NamespacedName]bool{}, map[string]bool{}, map[types.UID]bool{}
	for _, t := range s.tasks {
		there[t.name], namespaces[t.name.Namespace] = true, true
		if t.want != nil {
			known[t.owner.UID] = true
		}
	}
	maps.DeleteFunc(s.marks, func(name types.NamespacedName, _ serviceMark) bool { return !there[name] })
	s.turns.Keep(namespaces)
	maps.DeleteFunc(s.troubles, func(uid types.UID, _ string) bool { return !known[uid] })
	s.loop.Kick()
}

// serviceTasks returns what is to be made, and then what is to be deleted: of the Services that compilers of
// this Lease have made, those whose Gateway is to have another one, or is another controller's, and all if none are made any
// more. Of a Gateway that is not there Kubernetes deletes the Service: it knows. Of two Gateways with one
// name for their Services the one gets it whose Service it is already, or else the older one, and the other
// one hears of it.
func serviceTasks(in inputs.Inputs, c config.Config, said gateway.Verdicts, lease string) (out []serviceTask, twice map[types.UID]string) {
	seen := map[types.NamespacedName]*corev1.Service{}
	for _, o := range in.Services {
		if o.At == nil {
			seen[types.NamespacedName{Namespace: o.Ref.Namespace, Name: o.Ref.Name}] = o.Value
		}
	}
	controller := c.GatewayAPI.ControllerName
	wanted := map[types.NamespacedName]bool{}
	twice = map[types.UID]string{}
	asked := map[types.NamespacedName]bool{} // Gateways whose Services are known
	var owners, others []serviceTask
	gateways := byRef(in.Gateway.Gateways)
	for _, v := range said.Gateways {
		o, ok := gateways[v.Ref]
		if !ok || v.Service == nil || o.Value.UID == "" || o.Value.DeletionTimestamp != nil {
			continue
		}
		t := serviceTask{
			name: types.NamespacedName{Namespace: v.Ref.Namespace, Name: v.Service.Name}, want: v.Service, owner: o.Value,
			controller: controller, lease: lease, kind: corev1.ServiceType(c.GatewayAPI.Services.Type),
		}
		has := seen[t.name]
		if has != nil {
			t.seen = has.ResourceVersion
		}
		if has != nil && t.owns(has) {
			owners = append(owners, t)
		} else {
			others = append(others, t)
		}
	}
	for _, t := range slices.Concat(owners, others) {
		if wanted[t.name] {
			twice[t.owner.UID] = fmt.Sprintf("the Service %s is that of another Gateway", t.name.Name)
			continue
		}
		wanted[t.name], asked[types.NamespacedName{Namespace: t.name.Namespace, Name: t.owner.Name}] = true, true
		out = append(out, t)
	}
	foreign := map[string]bool{}
	for _, class := range in.Gateway.Classes {
		foreign[class.Ref.Name] = string(class.Value.Spec.ControllerName) != controller
	}
	for _, g := range in.Gateway.Gateways {
		if foreign[string(g.Value.Spec.GatewayClassName)] {
			asked[types.NamespacedName{Namespace: g.Ref.Namespace, Name: g.Ref.Name}] = true
		}
	}
	off := !c.GatewayAPI.Enabled || !c.GatewayAPI.Services.Enabled
	var gone []serviceTask
	for name, has := range seen {
		of := types.NamespacedName{Namespace: name.Namespace, Name: has.Annotations[gatewayAnnotation]}
		t := serviceTask{name: name, lease: lease, seen: has.ResourceVersion}
		if t.made(has) && has.DeletionTimestamp == nil && !wanted[name] && (off || asked[of]) {
			gone = append(gone, t)
		}
	}
	slices.SortFunc(gone, func(a, b serviceTask) int { return cmp.Compare(a.name.String(), b.name.String()) })
	return append(out, gone...), twice
}

// trouble says what keeps a Gateway from its Service, "" if nothing does.
func (s *gatewayServices) trouble(of types.UID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.twice[of], s.troubles[of])
}

// next returns when a Service may be looked at again. What the API server refused waits for longer, unless its Gateway asks
// for something else by now.
func (m serviceMark) next(t serviceTask) time.Time {
	if pause := m.at.Add(servicePause); t.differs(m.task) || m.refused.Until.IsZero() {
		return pause
	}
	return m.refused.Until
}

// due returns the next Service to look at. Namespaces take turns: somebody may make Gateways anew all the time. Of those of a
// namespace that are looked at again, the one that waits longest comes first: the API server may refuse so many that some are
// due all the time.
func (s *gatewayServices) due(now time.Time) (next serviceTask, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const atOnce = time.Duration(math.MinInt64) // it was not looked at yet
	var soonest, longest time.Duration
	for _, t := range s.tasks {
		mark, known := s.marks[t.name]
		wait := mark.next(t).Sub(now)
		switch {
		case !known, mark.trouble == "" && !mark.unanswered && t.differs(mark.task):
			wait = atOnce
		case wait > -serviceAgain && t.seen == mark.task.seen && mark.refused == events.Refusal{} && !mark.unanswered && !t.differs(mark.task):
			continue
		case wait > 0:
			if soonest == 0 || wait < soonest {
				soonest = wait
			}
			continue
		}
		if !ok || cmp.Or(s.turns.Compare(t.name.Namespace, next.name.Namespace), cmp.Compare(wait, longest)) < 0 {
			next, ok, longest = t, true, wait
		}
	}
	if ok {
		s.turns.Took(next.name.Namespace)
	} else if soonest > 0 {
		time.AfterFunc(soonest, s.loop.Kick)
	}
	return next, ok
}

// differs reports whether something else is wanted.
func (t serviceTask) differs(from serviceTask) bool {
	if (t.want == nil) != (from.want == nil) {
		return true
	}
	return t.want != nil && (t.owner.UID != from.owner.UID || t.kind != from.kind || t.controller != from.controller || !reflect.DeepEqual(t.want, from.want))
}

// next brings the Service that is due to what it should be, and reports whether there was one.
func (s *gatewayServices) next(ctx context.Context) (bool, error) {
	t, ok := s.due(time.Now())
	if !ok {
		return false, nil
	}
	if err := s.limit.Wait(ctx); err != nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var trouble string
	var err error
	if t.want != nil {
		trouble, err = s.provide(ctx, t)
	} else {
		err = s.remove(ctx, t)
	}
	if err != nil {
		s.written.WithLabelValues("error").Inc()
		if !events.OfOne(err) { // the API server did not answer, or not now
			s.mu.Lock()
			defer s.mu.Unlock()
			mark := s.marks[t.name]
			mark.at, mark.unanswered = time.Now(), true
			s.marks[t.name] = mark
			return false, fmt.Errorf("write Service %s: %w", t.name, err)
		}
	}
	if s.looked(t, trouble, err, time.Now()) {
		s.changed()
	}
	return true, nil
}

// looked notes that a Service was looked at, with what is wrong with it or why it could not be written. It reports whether
// its Gateway has another trouble now.
func (s *gatewayServices) looked(t serviceTask, trouble string, err error, now time.Time) (different bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, mark := s.marks[t.name], serviceMark{task: t, at: now, trouble: trouble}
	object := diag.Object{Kind: "Service", Namespace: t.name.Namespace, Name: t.name.Name}.String()
	if err != nil {
		mark.trouble = fmt.Sprintf("the Service %s cannot be written: %v", t.name.Name, err)
		mark.refused = s.loop.Refused(was.refused, object, err, now)
	} else {
		s.loop.Accepted(was.refused, object)
	}
	s.marks[t.name] = mark
	if t.want != nil {
		different = s.troubles[t.owner.UID] != mark.trouble
		s.troubles[t.owner.UID] = mark.trouble
	}
	failing := slices.ContainsFunc(slices.Collect(maps.Values(s.marks)), serviceMark.ofOthers)
	switch {
	case failing && !s.failing:
		s.log.Warn("cannot write the Service of a Gateway, trying again later", "service", t.name.String(), "reason", trouble)
	case !failing && s.failing:
		s.log.Info("every Gateway has its Service again")
	}
	s.failing = failing
	return different
}

// ServiceRules returns the permissions to make Services for Gateways in every namespace whose objects are
// compiled.
func ServiceRules() []rbacv1.PolicyRule {
	verbs := []string{"create", "delete", "get", "update"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: verbs},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: verbs},
	}
}
