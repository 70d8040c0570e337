package announce

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryv1client "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/util/flowcontrol"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/events"
)

const (
	// serviceRate and serviceBurst are how many Services are looked at in a second, and at once.
	serviceRate, serviceBurst = 10, 20
	// servicePause is how long a Service is left alone after it was looked at, unless its Gateway asks for
	// something else, and serviceRetry after that failed.
	servicePause, serviceRetry = 5 * time.Second, 30 * time.Second
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
	troubles map[types.UID]string                 // by Gateway
	twice    map[types.UID]string                 // Gateways whose Service is another Gateway's
	failing  bool                                 // that was logged
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
	next time.Time // not before
	// failed says that the compiler will try again; trouble says what is wrong, even if only somebody else can fix it.
	failed  bool
	trouble string
}

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
	there, known := map[types.NamespacedName]bool{}, map[types.UID]bool{}
	for _, t := range s.tasks {
		there[t.name] = true
		if t.want != nil {
			known[t.owner.UID] = true
		}
	}
	maps.DeleteFunc(s.marks, func(name types.NamespacedName, _ serviceMark) bool { return !there[name] })
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
	for _, v := range said.Gateways {
		o, ok := find(in.Gateway.Gateways, v.Ref)
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

// due returns the next Service to look at.
func (s *gatewayServices) due(now time.Time) (serviceTask, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var soonest time.Duration
	for _, t := range s.tasks {
		mark, known := s.marks[t.name]
		wait := mark.next.Sub(now)
		switch {
		case !known, mark.trouble == "" && t.differs(mark.task), wait <= -serviceAgain:
			return t, true
		case t.seen == mark.task.seen && !mark.failed && !t.differs(mark.task):
		case wait <= 0:
			return t, true
		case soonest == 0 || wait < soonest:
			soonest = wait
		}
	}
	if soonest > 0 {
		time.AfterFunc(soonest, s.loop.Kick)
	}
	return serviceTask{}, false
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
		if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown { // the API server did not answer
			return false, fmt.Errorf("write Service %s: %w", t.name, err)
		}
		trouble = fmt.Sprintf("the Service %s cannot be written: %v", t.name.Name, err)
	}
	mark := serviceMark{task: t, next: time.Now().Add(servicePause), failed: err != nil, trouble: trouble}
	if err != nil {
		mark.next = time.Now().Add(serviceRetry)
	}
	s.mu.Lock()
	s.marks[t.name] = mark
	different := false
	if t.want != nil {
		different = s.troubles[t.owner.UID] != trouble
		s.troubles[t.owner.UID] = trouble
	}
	failing := slices.ContainsFunc(slices.Collect(maps.Values(s.marks)), func(m serviceMark) bool { return m.trouble != "" })
	switch {
	case failing && !s.failing:
		s.log.Warn("cannot write the Service of a Gateway, trying again later", "service", t.name.String(), "reason", trouble)
	case !failing && s.failing:
		s.log.Info("every Gateway has its Service again")
	}
	s.failing = failing
	s.mu.Unlock()
	if different {
		s.changed()
	}
	return true, nil
}

// provide creates or changes a Service and its EndpointSlices. It returns why not, if it is somebody
// else's.
func (s *gatewayServices) provide(ctx context.Context, t serviceTask) (string, error) {
	client := s.services.Services(t.name.Namespace)
	has, err := client.Get(ctx, t.name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if len(t.want.Ports) == 0 {
			return "", nil
		}
		want := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: t.name.Namespace, Name: t.name.Name, OwnerReferences: []metav1.OwnerReference{t.ownerReference()}}}
		want.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
		t.shape(want)
		if has, err = client.Create(ctx, want, metav1.CreateOptions{FieldManager: manager}); err != nil {
			return "", err
		}
		s.wrote("Service created", t.name)
	case err != nil:
		return "", err
	case has.DeletionTimestamp != nil:
		return fmt.Sprintf("the Service %s is being deleted", t.name.Name), nil
	case t.owns(has) && has.Annotations[compilerAnnotation] != "" && !t.made(has):
		return fmt.Sprintf("the Service %s was made by the compiler with the Lease %s", t.name.Name, has.Annotations[compilerAnnotation]), nil
	case !t.owns(has):
		return fmt.Sprintf("there is a Service %s that is not of this Gateway", t.name.Name), nil
	case len(t.want.Ports) == 0:
		return "", nil
	default:
		want := has.DeepCopy()
		t.shape(want)
		if !reflect.DeepEqual(want, has) {
			if has, err = client.Update(ctx, want, metav1.UpdateOptions{FieldManager: manager}); err != nil {
				return "", err
			}
			s.wrote("Service changed", t.name)
		}
	}
	return s.provideSlices(ctx, t, has)
}

func (s *gatewayServices) wrote(what string, name types.NamespacedName) {
	s.written.WithLabelValues("written").Inc()
	s.log.Info("service of a gateway written", "what", what, "service", name.String())
}

// provideSlices brings the EndpointSlices of a Service to what they should be. One without endpoints is
// none.
func (s *gatewayServices) provideSlices(ctx context.Context, t serviceTask, service *corev1.Service) (string, error) {
	client := s.slices.EndpointSlices(t.name.Namespace)
	// There is one for each family of addresses.
	var wants []*discoveryv1.EndpointSlice
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: t.name.Namespace, Name: sliceName(t.name.Name, family),
				Labels:          map[string]string{discoveryv1.LabelServiceName: t.name.Name, discoveryv1.LabelManagedBy: sliceManager},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID, Controller: new(true)}},
			},
			AddressType: family,
		}
		for _, text := range t.want.Addresses {
			if a, err := netip.ParseAddr(text); err == nil && a.Is4() == (family == discoveryv1.AddressTypeIPv4) {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{text}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
			}
		}
		for _, port := range t.want.Ports {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new(portName(port)), Port: new(int32(port)), Protocol: new(corev1.ProtocolTCP)})
		}
		wants = append(wants, slice)
	}
	for _, want := range wants {
		has, err := client.Get(ctx, want.Name, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		switch {
		case err != nil && !missing:
			return "", err
		case missing && len(want.Endpoints) == 0:
			continue
		case missing:
			_, err = client.Create(ctx, want, metav1.CreateOptions{FieldManager: manager})
		case !ownsSlice(has, service):
			return fmt.Sprintf("there is an EndpointSlice %s that is not of this Gateway", want.Name), nil
		case len(want.Endpoints) == 0:
			err = client.Delete(ctx, want.Name, exactly(has.UID, has.ResourceVersion))
		default:
			next := has.DeepCopy()
			next.Labels = replaced(has.Labels, nil, want.Labels)
			next.Endpoints, next.Ports = want.Endpoints, want.Ports
			if reflect.DeepEqual(next, has) {
				continue
			}
			_, err = client.Update(ctx, next, metav1.UpdateOptions{FieldManager: manager})
		}
		if err != nil {
			return "", err
		}
		s.wrote("EndpointSlice "+want.Name, t.name)
	}
	return "", nil
}

func ownsSlice(has *discoveryv1.EndpointSlice, service *corev1.Service) bool {
	owner := metav1.GetControllerOf(has)
	return owner != nil && owner.UID == service.UID && has.Labels[discoveryv1.LabelManagedBy] == sliceManager
}

// exactly deletes an object only if it is the one that was looked at.
func exactly(uid types.UID, version string) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}
}

// remove deletes a Service that was made by us, with its EndpointSlices.
func (s *gatewayServices) remove(ctx context.Context, t serviceTask) error {
	client := s.services.Services(t.name.Namespace)
	has, err := client.Get(ctx, t.name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	owner := metav1.GetControllerOf(has)
	if owner == nil || owner.Kind != "Gateway" || !t.made(has) || has.DeletionTimestamp != nil {
		return nil
	}
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		slice, err := s.slices.EndpointSlices(t.name.Namespace).Get(ctx, sliceName(t.name.Name, family), metav1.GetOptions{})
		if err == nil && ownsSlice(slice, has) {
			err = s.slices.EndpointSlices(t.name.Namespace).Delete(ctx, slice.Name, exactly(slice.UID, slice.ResourceVersion))
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if err := client.Delete(ctx, t.name.Name, exactly(has.UID, has.ResourceVersion)); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	s.wrote("Service deleted", t.name)
	return nil
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

// gatewayAnnotation names the Gateway of a Service.
const gatewayAnnotation = "gateway.hapsnap.dev/gateway"

func (t serviceTask) ownerReference() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: gatewayv1.GroupVersion.String(), Kind: "Gateway", Name: t.owner.Name, UID: t.owner.UID, Controller: new(true)}
}

// made reports whether a Service was made by the compilers of this Lease.
func (t serviceTask) made(has *corev1.Service) bool {
	return t.lease != "" && has.Annotations[compilerAnnotation] == t.lease
}

// owns reports whether a Service was made for the Gateway with its controllerName.
func (t serviceTask) owns(has *corev1.Service) bool {
	owner := metav1.GetControllerOf(has)
	return owner != nil && owner.UID == t.owner.UID && has.Annotations[controllerAnnotation] == t.controller
}

// brought are the keys of a Service that are of its Gateway.
type brought struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// shape gives a Service what it should have, and leaves what others have given it.
func (t serviceTask) shape(s *corev1.Service) {
	var before brought
	_ = json.Unmarshal([]byte(s.Annotations[broughtAnnotation]), &before) // what cannot be read lists nothing
	now := brought{Labels: slices.Sorted(maps.Keys(t.want.Labels)), Annotations: slices.Sorted(maps.Keys(t.want.Annotations))}
	s.Labels = replaced(s.Labels, before.Labels, t.want.Labels)
	s.Annotations = replaced(s.Annotations, before.Annotations, t.want.Annotations)
	text, _ := json.Marshal(now)
	s.Labels[managedBy] = "hapsnap"
	s.Annotations[broughtAnnotation], s.Annotations[controllerAnnotation], s.Annotations[gatewayAnnotation] = string(text), t.controller, t.owner.Name
	s.Annotations[compilerAnnotation] = t.lease
	was := map[int32]corev1.ServicePort{}
	for _, p := range s.Spec.Ports {
		was[p.Port] = p
	}
	s.Spec.Ports = nil
	for _, port := range t.want.Ports {
		p := was[int32(port)]
		p.Name, p.Port, p.TargetPort, p.Protocol = portName(port), int32(port), intstr.FromInt32(int32(port)), corev1.ProtocolTCP
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	s.Spec.Selector, s.Spec.Type = nil, t.kind
	// Fields that a Service has from another type are removed. The API server removes them itself only if nothing else
	// changes, and refuses other changes.
	s.Spec.ExternalName = ""
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		s.Spec.LoadBalancerClass, s.Spec.LoadBalancerIP, s.Spec.LoadBalancerSourceRanges = nil, "", nil
		s.Spec.AllocateLoadBalancerNodePorts, s.Spec.HealthCheckNodePort = nil, 0
	}
	if s.Spec.Type != corev1.ServiceTypeClusterIP {
		return
	}
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].NodePort = 0
	}
	if len(s.Spec.ExternalIPs) == 0 { // with these, any type has it
		s.Spec.ExternalTrafficPolicy = ""
	}
}

func portName(port int) string { return fmt.Sprintf("port-%d", port) }

// replaced returns a map without some keys and with others.
func replaced(has map[string]string, without []string, with map[string]string) map[string]string {
	out := maps.Clone(has)
	if out == nil {
		out = map[string]string{}
	}
	for _, key := range without {
		delete(out, key)
	}
	maps.Copy(out, with)
	return out
}

func sliceName(service string, family discoveryv1.AddressType) string {
	return service + map[discoveryv1.AddressType]string{discoveryv1.AddressTypeIPv4: "-v4", discoveryv1.AddressTypeIPv6: "-v6"}[family]
}
