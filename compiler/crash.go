package compiler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/process"
)

// A panic during a compile is a mistake of ours, or of a library, which some object triggers. A crash of the HAProxy that
// checks is a mistake of HAProxy's. The author of that object must not be able to stop the compiler for everybody, again
// and again after each start. So a binary search finds the object, and the compile leaves it out as if it did not exist,
// since any code that reads it may panic. If the object protects something, all routes of its namespace are left out, so
// that nothing is served without its protection. A HAProxy that crashes without any object too is at fault by itself, and
// the compile is tried again. So is one for which HAProxy hangs or is killed, since the machine may be slow or have too little memory,
// unless a new route has that effect without all others.

// mostCrashes is how many objects are left out for crashes in one compile. Finding one among n objects takes log2(n)
// compiles.
const mostCrashes = 8

// mostCrashesOfOne is how many objects of a namespace are found that crash on their own. From then on all routes of the namespace are
// left out, until one of these objects changes: its author could otherwise stop the compiler for everybody, with hundreds of
// them.
const mostCrashesOfOne = 3

// crash says why a compile came to no end.
type crash struct {
	panicked      bool // so that memories may be damaged
	doubtful      bool // the machine may be at fault: it is slow, or has too little memory
	message, hint string
}

// crashOf returns the crash of a compile that returned this error, if it is one.
func crashOf(err error) (crash, bool) {
	if p, ok := errors.AsType[process.PanicError](err); ok {
		return crash{panicked: true, message: fmt.Sprintf("the compiler panics for it: %v", p.Value), hint: "report it, with the object, as a mistake of hapsnap, in " + p.Place}, true
	}
	if c, ok := errors.AsType[validate.CrashError](err); ok {
		return crash{message: fmt.Sprintf("HAProxy crashes for it: %v", c), hint: "report it, with the object, as a mistake of HAProxy"}, true
	}
	switch {
	case errors.Is(err, validate.ErrSilent):
		return crash{doubtful: true, message: fmt.Sprintf("HAProxy does not end for it: %v", err), hint: "see which files it has HAProxy read"}, true
	case errors.Is(err, validate.ErrKilled):
		return crash{doubtful: true, message: fmt.Sprintf("HAProxy is killed for it: %v", err), hint: "see how much memory it has HAProxy take"}, true
	}
	return crash{}, false
}

// crashes remembers the objects for which a compile crashed, so that the next compile does not have to search for
// them.
type crashes struct {
	lock  sync.Mutex
	known map[diag.Object]crashed
	sound inputs.Inputs // of the last compile that came to an end
}

// crashed is an object as it was when it made a compile crash, and the diagnostic that reports it.
type crashed struct {
	value any
	said  diag.Diagnostic
	own   bool // see [Input.withoutCrashed]
}

// leaveOut returns an input without the objects that are known to cause crashes. It forgets objects that have changed
// since.
func (c *crashes) leaveOut(in Input) Input {
	if c == nil {
		return in
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	objects := map[diag.Object]anObject{}
	if len(c.known) > 0 {
		for _, o := range everyObject(in.Objects) {
			objects[o.ref] = o
		}
	}
	for object, known := range c.known {
		if o, ok := objects[object]; !ok || o.value != known.value {
			delete(c.known, object)
		}
	}
	for _, object := range slices.SortedFunc(maps.Keys(c.known), diag.Object.Compare) {
		in = in.withoutCrashed(objects[object], c.known[object].said, c.known[object].own)
	}
	return in
}

// copy returns a memory of the same objects, for a review: an object under review must not be forgotten for its other content.
func (c *crashes) copy() *crashes {
	if c == nil {
		return nil
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	return &crashes{known: maps.Clone(c.known), sound: c.sound}
}

// ended records the objects of a compile that came to an end.
func (c *crashes) ended(in inputs.Inputs) {
	if c != nil {
		c.lock.Lock()
		defer c.lock.Unlock()
		c.sound = in
	}
}

// news returns those objects that were not in the last compile that came to an end, nil if that are most.
func (c *crashes) news(all []anObject) []anObject {
	if c == nil {
		return nil
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	sound := map[diag.Object]any{}
	for _, o := range everyObject(c.sound) {
		sound[o.ref] = o.value
	}
	news := slices.DeleteFunc(slices.Clone(all), func(o anObject) bool { return sound[o.ref] == o.value })
	if 2*len(news) > len(all) {
		return nil
	}
	return news
}

func (c *crashes) add(o anObject, said diag.Diagnostic, own bool) {
	if c == nil {
		return
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.known == nil {
		c.known = map[diag.Object]crashed{}
	}
	c.known[o.ref] = crashed{o.value, said, own}
}

// caught is [compileOnce], but returns a panic as a [process.PanicError].
func caught(ctx context.Context, in Input, check checker) (r Result, err error) {
	err = process.Caught(func() error {
		r, err = compileOnce(ctx, in, check)
		return err
	})
	return r, err
}

// crashing searches for an object that makes a compile crash. With only the objects that sort before it, the compile
// does not crash. With this object in addition, it does. A crash that does not happen again is no object's fault. Own says
// that the compile crashes for this object without the routes of other namespaces too. If the machine may be at fault, only a new
// object is, and only if its compile crashes without all other routes too.
func crashing(ctx context.Context, in Input, check checker, doubtful bool) (o anObject, own, found bool) {
	all := slices.SortedFunc(slices.Values(everyObject(in.Objects)), func(a, b anObject) int { return usersLast(a.ref, b.ref) })
	without := func(gone []anObject) (bool, error) {
		short := in
		short.Memories = Memories{} // they are about all objects
		short.Await = nil           // so are the names
		short.Objects = in.Objects.Without(refsOf(gone)...)
		_, err := caught(ctx, short, check)
		_, crashed := crashOf(err)
		return !crashed, ctx.Err()
	}
	passes := func(n int) (bool, error) { return without(all[n:]) }
	if !doubtful { // a HAProxy that hangs takes ten minutes each time
		if ok, err := passes(len(all)); ok || err != nil {
			return anObject{}, false, false
		}
	}
	if o, found, err := crashingAlone(in.Crashes.news(all), all, without); found || err != nil || doubtful {
		return o, true, found
	}
	n, err := boundary(len(all), passes)
	if err != nil || n < 0 {
		return anObject{}, false, false
	}
	others := slices.DeleteFunc(slices.Clone(all[:n]), func(other anObject) bool { return !other.routes || other.ref.Namespace == all[n].ref.Namespace })
	ok, err := without(slices.Concat(others, all[n+1:]))
	return all[n], !ok && err == nil, true
}

// crashingAlone searches for a route among new ones that makes a compile crash without all other routes too. It is the one that
// a search among all objects finds, too, so that no result depends on earlier compiles. But this search takes few compiles: a
// tenant who changes such an object all the time would hold up everybody.
func crashingAlone(news, all []anObject, without func([]anObject) (bool, error)) (o anObject, found bool, err error) {
	n, err := boundary(len(news), func(n int) (bool, error) { return without(news[n:]) })
	if err != nil || n < 0 || !news[n].routes {
		return anObject{}, false, err
	}
	ok, err := without(slices.DeleteFunc(slices.Clone(all), func(other anObject) bool { return !other.routes || other.ref == news[n].ref }))
	return news[n], !ok && err == nil, err
}

// usersLast orders objects for a search: what others use comes before them. So the search finds a route, and not the Gateway
// or the Service that the routes of others need too, without which that route has no effect.
func usersLast(a, b diag.Object) int {
	rank := func(o diag.Object) int {
		switch {
		case o.Kind == "Ingress", strings.HasSuffix(o.Kind, "Route"):
			return 5
		case o.Kind == "ListenerSet":
			return 4
		case o.Kind == "Gateway":
			return 3
		case o.Kind == "GatewayClass":
			return 2
		case o.APIVersion != "": // what only templates read, and may name anything
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Compare(b))
}

// withoutCrashed returns an input without an object, and reports it. All routes of its namespace are left out if the object
// protects something, or if it is one of too many that crash on their own: those that do so only together with routes of other
// namespaces may be innocent.
func (in Input) withoutCrashed(o anObject, said diag.Diagnostic, own bool) Input {
	gone := []anObject{o}
	in.Found = append(slices.Clone(in.Found), said)
	in.crashed = maps.Clone(in.crashed)
	if in.crashed == nil {
		in.crashed = map[string]int{}
	}
	if own {
		in.crashed[o.ref.Namespace]++
	}
	why, hint := "", ""
	switch {
	case options.Protects(o.annotations) != "":
		why, hint = o.ref.String()+" is left out, which protects something", "delete "+o.ref.String()+", or write it in another way"
	case in.crashed[o.ref.Namespace] >= mostCrashesOfOne && o.ref.Namespace != "":
		why, hint = fmt.Sprintf("%d of its objects are left out for crashes, and nobody looks for more", mostCrashesOfOne), "delete those objects, or write them in another way"
	}
	if why != "" {
		for _, other := range everyObject(in.Objects) {
			if other.ref.Namespace != o.ref.Namespace || other.ref == o.ref || !other.routes {
				continue
			}
			gone = append(gone, other)
			in.Found = append(in.Found, diag.Diagnostic{
				Severity: diag.Error, Object: other.ref, Position: other.at,
				Message: fmt.Sprintf("is left out with all routes of namespace %s: %s", o.ref.Namespace, why), Hint: hint,
			})
		}
	}
	in.Objects = in.Objects.Without(refsOf(gone)...)
	return in
}

// anObject is an object of any kind.
type anObject struct {
	ref         diag.Object
	at          diag.Position
	annotations map[string]string
	value       any  // a pointer; as long as it is the same, the content is the same
	routes      bool // whether the object sends requests somewhere
}

func refsOf(objects []anObject) []diag.Object {
	out := make([]diag.Object, len(objects))
	for i, o := range objects {
		out[i] = o.ref
	}
	return out
}

// everyObject returns all objects that people write.
func everyObject(in inputs.Inputs) []anObject {
	var out []anObject
	add := func(objects ...anObject) { out = append(out, objects...) }
	for _, o := range slices.Concat(in.Ingresses, in.Broken) {
		add(anObject{o.Ref, o.Position(), o.Value.Annotations, o.Value, true})
	}
	for _, o := range in.Services {
		add(anObject{o.Ref, o.Position(), o.Value.Annotations, o.Value, false})
	}
	for _, o := range in.Secrets {
		add(anObject{o.Ref, o.Position(), nil, o.Value, false})
	}
	for _, o := range in.ConfigMaps {
		add(anObject{o.Ref, o.Position(), nil, o.Value, false})
	}
	for _, o := range in.EndpointSlices {
		add(anObject{o.Ref, o.Position(), nil, o.Value, false})
	}
	for kind, o := range in.Gateway.Each() {
		add(anObject{o.Ref, o.Position(), o.Value.GetAnnotations(), o.Value, kind.IsRoute()})
	}
	for _, o := range in.Others {
		add(anObject{o.Ref, o.Position(), o.Value.GetAnnotations(), o.Value, false})
	}
	return out
}
