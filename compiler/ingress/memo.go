package ingress

import (
	"cmp"
	"math"
	"reflect"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/objectname"
)

// Memo remembers the claims of the Ingresses of the last translation for the next one, and what that translation found
// in Secrets with certificates. Claims are used again only if everything is the same that they were made from: the
// Ingress, the parts of the configuration in a [scope], the class with its parameters, and the Services that the
// Ingress names, whether they exist or not. Objects count as the same if their values are at the same address, since
// nobody changes a value among the inputs. A resourceVersion would not be enough: the Ingress in an admission review
// has that of the Ingress which it updates.
//
// A Memo holds what one translation used, and nothing older. Several goroutines may use it at the same time. A nil Memo
// remembers nothing.
type Memo struct {
	last         atomic.Pointer[memory]
	readOnly     *Memo // its memory is used, and not changed
	made, reused atomic.Int64
}

// NewMemo returns a Memo that remembers nothing.
func NewMemo() *Memo { return &Memo{} }

// Reader returns a Memo that uses what this one remembers, but does not change it. It is for translating objects that
// are not in the cluster, such as an Ingress under review.
func (m *Memo) Reader() *Memo {
	if m == nil {
		return nil
	}
	return &Memo{readOnly: m}
}

// Counts returns how many claims were made since the Memo was made, and how many were used again.
func (m *Memo) Counts() (made, reused int64) { return m.made.Load(), m.reused.Load() }

// memory is what one translation used. It does not change once it belongs to a Memo.
type memory struct {
	scope        scope
	known        map[place]*remembered // shared with the memory before
	certificates map[*corev1.Secret]*observation
	services     []asking // all of them
}

// place is the key of remembered claims. [claimer.applies] decides whether they still apply.
type place struct {
	value  *networkingv1.Ingress
	kind   kind
	routes int // how many routes count; allRoutes if the Ingress is not cut
}

// kind says what is remembered of an Ingress.
type kind int

const (
	outlines kind = iota
	served
	closedRoutes
)

// allRoutes says that an Ingress is not cut.
const allRoutes = math.MinInt

// remembered is an outline or claims, with everything besides the Ingress from which it was made.
type remembered struct {
	made      any
	className string
	class     *parameters
	asked     []asking
}

// asking is the name of a Service, and the Service that was found, nil for none.
type asking struct {
	name  types.NamespacedName
	found *corev1.Service
}

// claimer returns the claims for one translation. It makes those that are not remembered.
type claimer struct {
	memo    *Memo
	before  map[place]*remembered
	certs   map[*corev1.Secret]*observation // like certificates in memory
	now     memory
	classes classes
	classOf map[string]*parameters
	find    serviceFinder
	// changed are the Services that may differ from those of the memory before. If they are too many, this is nil.
	changed map[types.NamespacedName]bool
}

// claimer returns the claimer of a translation.
func (m *Memo) claimer(in inputs.Inputs, t *merge) *claimer {
	c := &claimer{
		memo: m, classes: newClasses(in.Classes, t.cfg), classOf: map[string]*parameters{}, find: t.resolver.service,
		now: memory{scope: scopeOf(t.cfg), certificates: map[*corev1.Secret]*observation{}},
	}
	t.backends.certs.observe = c.observe
	if m != nil {
		c.now.known = make(map[place]*remembered, 2*len(in.Ingresses))
		c.now.services = make([]asking, len(in.Services))
		for i, s := range in.Services {
			c.now.services[i] = asking{types.NamespacedName{Namespace: s.Ref.Namespace, Name: s.Ref.Name}, s.Value}
		}
	}
	t.add(c.classes.strangers(in.Classes)...)
	for _, class := range in.Classes {
		if class.Value.Spec.Controller == t.cfg.ControllerClass && class.Value.Spec.Parameters != nil {
			p := parametersOf(class, t.configMaps)
			c.classOf[class.Ref.Name] = p
			t.add(p.found...)
		}
	}
	if last := m.memory(); last != nil {
		c.certs = last.certificates
		if reflect.DeepEqual(last.scope, c.now.scope) {
			c.before, c.changed = last.known, changedServices(last.services, c.now.services)
		}
	}
	return c
}

// changedServices returns the Services that may differ in two lists, which should be in the same order. It returns nil if these
// are so many that looking each one up takes no longer.
func changedServices(before, now []asking) map[types.NamespacedName]bool {
	out := map[types.NamespacedName]bool{}
	for len(before)+len(now) > 0 && len(out) <= mostChanged {
		order := cmp.Compare(len(now), len(before)) // for when one list is at its end
		if len(before) > 0 && len(now) > 0 {
			if before[0] == now[0] {
				before, now = before[1:], now[1:]
				continue
			}
			order = objectname.Compare(before[0].name, now[0].name)
		}
		// Whatever the order is, each Service that is not in both lists is passed here.
		if order <= 0 {
			out[before[0].name], before = true, before[1:]
		} else {
			out[now[0].name], now = true, now[1:]
		}
	}
	if len(out) > mostChanged {
		return nil
	}
	return out
}

// mostChanged is how many changed Services are told from the others.
const mostChanged = 1000

// observe describes the certificate in a Secret. The Memo remembers the result, since reading a thousand keys takes
// longer than translating ten thousand Ingresses.
func (c *claimer) observe(secret *corev1.Secret) *observation {
	o, ok := c.certs[secret]
	if !ok {
		o = observe(secret)
	}
	c.now.certificates[secret] = o
	return o
}

func (m *Memo) memory() *memory {
	switch {
	case m == nil:
		return nil
	case m.readOnly != nil:
		return m.readOnly.last.Load()
	}
	return m.last.Load()
}

// remember makes the Memo hold what this translation used, and nothing else.
func (c *claimer) remember() {
	if c.memo != nil && c.memo.readOnly == nil {
		c.memo.last.Store(&c.now)
	}
}

// of returns an outline or claims of an Ingress. It returns the remembered ones if they still apply, otherwise those
// that build makes.
func of[T any](c *claimer, ing ingress, kind kind, routes int, build func(source) *T) *T {
	at := place{ing.Value, kind, routes}
	className := c.classes.nameOf(ing)
	class := c.classOf[className]
	if r, ok := c.before[at]; ok && c.applies(r, className, class) {
		c.now.known[at] = r
		c.count(kind, func(m *Memo) *atomic.Int64 { return &m.reused })
		made, _ := r.made.(*T)
		return made
	}
	s := source{ingress: ing, scope: &c.now.scope, className: className, class: class, service: c.find}
	if routes != allRoutes {
		s.ingress = cut(ing, routes)
	}
	if c.memo == nil {
		return build(s)
	}
	r := &remembered{className: className, class: class}
	s.service = func(name types.NamespacedName) (service, bool) {
		found, exists := c.find(name)
		if !slices.ContainsFunc(r.asked, func(a asking) bool { return a.name == name }) {
			r.asked = append(r.asked, asking{name, found.Value})
		}
		return found, exists
	}
	made := build(s)
	r.made = made
	c.now.known[at] = r
	c.count(kind, func(m *Memo) *atomic.Int64 { return &m.made })
	return made
}

// count counts claims. It does not count outlines.
func (c *claimer) count(kind kind, of func(*Memo) *atomic.Int64) {
	if kind != outlines {
		of(c.memo).Add(1)
	}
}

// applies reports whether making the remembered claims again would give the same.
func (c *claimer) applies(r *remembered, className string, class *parameters) bool {
	if r.className != className || !r.class.isLike(class) {
		return false
	}
	return !slices.ContainsFunc(r.asked, func(a asking) bool {
		if c.changed != nil && !c.changed[a.name] {
			return false
		}
		found, _ := c.find(a.name)
		return found.Value != a.found
	})
}

// candidate is one of our Ingresses.
type candidate struct {
	*outline
	claimer *claimer
	ing     ingress
	routes  int              // how many routes count
	broken  bool             // the Ingress breaks its schema
	over    *diag.Diagnostic // the limit that it exceeds
}

// cut limits how many routes of the Ingress count.
func (x *candidate) cut(routes int) {
	x.routes = routes
	x.outline = of(x.claimer, x.ing, outlines, routes, outlineOf)
}

// claims returns what the Ingress asks for.
func (x *candidate) claims() *claims { return of(x.claimer, x.ing, served, x.routes, claimsOf) }

// closedClaims returns what the Ingress asks for if its routes answer 503.
func (x *candidate) closedClaims() *claims {
	return of(x.claimer, x.ing, closedRoutes, x.routes, closedClaimsOf)
}

// candidates returns our Ingresses in the order in which they get what they claim. It also reports what authors of
// other Ingresses should know.
func (c *claimer) candidates(in inputs.Inputs, t *merge) []*candidate {
	var ours []*candidate
	add := func(ing ingress, broken bool) {
		isOurs, found := c.classes.claim(ing)
		if !isOurs && !t.cfg.Refused[ing.Ref] && !t.cfg.Dropped[ing.Ref] {
			if !broken {
				t.add(found...)
			}
			return
		}
		x := &candidate{claimer: c, ing: ing, broken: broken}
		x.cut(allRoutes)
		if !broken && !t.leftOut(x.outline) {
			t.add(found...)
		}
		if isOurs {
			ours = append(ours, x)
		}
	}
	broken := make(map[diag.Object]bool, len(in.Broken))
	for _, ing := range in.Broken {
		broken[ing.Ref] = true
	}
	for _, ing := range slices.Concat(in.Ingresses, in.Broken) {
		add(ing, broken[ing.Ref])
	}
	slices.SortFunc(ours, func(a, b *candidate) int { return a.Compare(b.Claimant) })
	return ours
}
