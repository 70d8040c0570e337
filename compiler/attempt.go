package compiler

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// attempt is the result of compiling one set of objects.
type attempt struct {
	artifact render.Artifact
	found    []diag.Diagnostic
	faults   []render.Fault
	closed   []diag.Object // objects that are left out, and whose routes answer 503
	verdicts gateway.Verdicts
	needs    []bind.Need // what the artifact takes from Secrets; nil if that is not known
}

// Four terms say what happens to an object at fault, from the smallest to the largest consequence:
//
//   - The object is left out: nothing of it is served. The hosts of an Ingress stay held, so that no rule of another
//     namespace without a host answers for them.
//   - Its routes are closed if the object protects something: they answer 503.
//   - Its hosts are released if they are at fault too: they are no longer held ([compilation.releaseHosts]).
//   - Its closed routes are dropped if they are at fault too ([compilation.drop]). The translation then closes other
//     routes of the namespace instead, see ingress.Config.Dropped.

// givenUp is what is not even kept of the objects that are left out.
type givenUp struct {
	hosts  map[string]bool      // the namespaces whose hosts are released
	routes map[diag.Object]bool // the objects whose closed routes are dropped
}

// try compiles without the given objects. It also releases their hosts and drops their closed routes, so that the
// result depends on the other objects only.
func (c *compilation) try(ctx context.Context, without []diag.Object) (attempt, error) {
	all := givenUp{hosts: map[string]bool{}, routes: map[diag.Object]bool{}}
	for _, object := range without {
		all.hosts[object.Namespace], all.routes[object] = true, true
	}
	return c.tryHolding(ctx, without, all)
}

// tryHolding compiles without the given objects. It keeps closed routes for those that protect something, and holds the
// hosts of their Ingresses, except for what is given up. It translates Ingresses and Gateways, and joins both models.
func (c *compilation) tryHolding(ctx context.Context, without []diag.Object, except givenUp) (attempt, error) {
	objects := c.in.Objects.Without(without...)
	routed, refused := objects, make(map[diag.Object]bool, len(without))
	for _, object := range without {
		refused[object] = true
	}
	if len(without) > 0 { // the translation needs refused Ingresses and leaves them out itself
		routed.Ingresses, routed.Broken = c.in.Objects.Ingresses, c.in.Objects.Broken
	}
	_, end := c.in.Stages.Begin(ctx, StageTranslate)
	ofIngresses := c.in.ingresses(refused)
	ofIngresses.Released, ofIngresses.Dropped = except.hosts, except.routes
	model, found := c.in.Claims.Translate(routed, ofIngresses)
	end(nil)
	c.note(model.Asked)
	amongRoutes, closedRoutes := c.withProtected(objects, refused, except.routes)
	ofGateways := c.in.gateways(model)
	ofGateways.Refused, ofGateways.Dropped = refused, except.routes
	part, foundInGateways, verdicts := c.in.Routes.Translate(amongRoutes, ofGateways)
	c.note(part.Asked)
	if c.in.Await != nil && !c.in.Await(c.named()) {
		return attempt{}, inputs.ErrIncomplete
	}
	if ofRoutes := slices.Clone(part.Backends); len(ofRoutes) > 0 {
		ingress.ReserveHeaders(part.Backends, slices.Concat(model.Backends, ofRoutes), c.in.Config.Forwarded.AllowHeaders)
		ingress.ReserveHeaders(model.Backends, ofRoutes, c.in.Config.Forwarded.AllowHeaders)
	}
	model, ok := model.With(part)
	if !ok {
		return attempt{}, errors.New("what Gateways and Ingresses bring has the same names, which is a mistake of the compiler")
	}
	var fewer []diag.Diagnostic
	model.Backends, fewer = countFewer(model.Backends, c.in.Config.Limits, func() map[diag.Object]time.Time { return born(objects) })
	a, err := c.publishable(ctx, render.Input{
		Model: model, Config: c.in.Config, Memo: c.in.Rendered,
		Objects: func() []render.Object { return describe(objects) },
	})
	a.found = slices.Concat(found, foundInGateways, fewer, a.found, checkPathTemplates(model, a.artifact))
	a.closed = slices.Concat(model.Closed, closedRoutes)
	a.verdicts = verdicts
	return a, err
}

// note records the objects for which a translation looked.
func (c *compilation) note(asked routing.Asked) {
	for _, name := range asked.Secrets {
		c.secrets[name] = true
	}
	for _, name := range asked.ConfigMaps {
		c.configMaps[name] = true
	}
}

// withProtected adds to the objects those refused routes of Gateways whose options protect something, and returns these
// routes too. The translation closes them. If they are dropped, it closes other routes of the namespace that would get
// their requests.
func (c *compilation) withProtected(objects inputs.Inputs, refused, dropped map[diag.Object]bool) (inputs.Inputs, []diag.Object) {
	if len(refused) == 0 {
		return objects, nil
	}
	var closed, left []diag.Object
	for kind, o := range c.in.Objects.Gateway.Each() {
		switch {
		case !refused[o.Ref]:
		case !kind.IsRoute() || options.Protects(o.Value.GetAnnotations()) == "":
			left = append(left, o.Ref)
		case !dropped[o.Ref]:
			closed = append(closed, o.Ref)
		}
	}
	objects.Gateway = c.in.Objects.Without(left...).Gateway
	return objects, closed
}

// publishable renders and validates an input.
func (c *compilation) publishable(ctx context.Context, in render.Input) (attempt, error) {
	_, end := c.in.Stages.Begin(ctx, StageRender)
	artifact, faults := c.in.Templates.Render(in)
	end(nil)
	if len(faults) == 0 {
		faults = slices.Concat(crowded(c.in, artifact, in.Model), manyNames(c.in, in.Model))
	}
	if len(faults) == 0 {
		faults = tooLarge(c.in, artifact)
	}
	if len(faults) > 0 {
		return attempt{faults: faults}, nil
	}
	ctx, end = c.in.Stages.Begin(ctx, StageValidate)
	verdict, err := c.check.Check(ctx, validate.Input{Artifact: artifact, Keys: c.keys, Private: c.private, OnePerText: c.in.Unpublished})
	end(err)
	if err != nil {
		return attempt{}, err
	}
	// If HAProxy refuses a certificate authority, the ConfigMap with that authority is at fault. The line that loads it
	// comes from another object: a Gateway, or a route that may have another owner.
	laid := slices.Clone(verdict.Faults)
	for i, f := range laid {
		for _, a := range in.Model.Authorities {
			if strings.Contains(f.Message, a.File) {
				laid[i].Message = "HAProxy cannot load the certificate authorities: " + f.Message
				laid[i].Origin.Objects, laid[i].Namespace = a.Origins, ""
				laid[i].Text = "" // the text belongs to other objects
			}
		}
	}
	a := attempt{artifact: artifact, faults: laid, needs: verdict.Needs}
	for _, w := range verdict.Warnings {
		a.found = append(a.found, templateDiagnostic(diag.Warning, w))
	}
	return a, nil
}

// describe returns what templates can read about the objects. It leaves out Secrets, and also their annotations, since
// kubectl keeps the values of a Secret there.
func describe(in inputs.Inputs) []render.Object {
	out := slices.Concat(described(networkingv1.SchemeGroupVersion.String(), in.Ingresses), described(corev1.SchemeGroupVersion.String(), in.Services))
	for kind, o := range in.Gateway.Each() {
		if kind.Read {
			out = append(out, describedAs(inputs.GatewayVersion, routing.Origin{Object: o.Ref, Position: o.Position()}, o.Value))
		}
	}
	for _, o := range in.Others {
		whole := described(o.Value.GetAPIVersion(), []inputs.Object[unstructured.Unstructured]{o})
		whole[0].Whole = o.Value.Object
		out = append(out, whole...)
	}
	return out
}

func described[T any](apiVersion string, objects []inputs.Object[T]) []render.Object {
	var out []render.Object
	for _, o := range objects {
		meta, _ := any(o.Value).(metav1.Object)
		out = append(out, describedAs(apiVersion, routing.Origin{Object: o.Ref, Position: o.Position()}, meta))
	}
	return out
}

func describedAs(apiVersion string, origin routing.Origin, meta metav1.Object) render.Object {
	return render.Object{Origin: origin, APIVersion: apiVersion, Labels: meta.GetLabels(), Annotations: meta.GetAnnotations()}
}

// asked returns the objects for which any attempt looked by name, and the Secrets that the templates named in the artifact
// of one.
func (c *compilation) asked(a attempt) routing.Asked {
	needs := a.needs
	if needs == nil {
		// Validation has reported what cannot be read in the file.
		needs, _ = bind.Needs(snapshots.Snapshot{Files: a.artifact.Files}.Config(), a.artifact.Certificates)
	}
	for _, n := range needs {
		c.secrets[types.NamespacedName(n.Secret)] = true
	}
	return c.named()
}

// named returns the objects for which translations have looked by name.
func (c *compilation) named() routing.Asked {
	return routing.Asked{
		Secrets:    slices.SortedFunc(maps.Keys(c.secrets), objectname.Compare),
		ConfigMaps: slices.SortedFunc(maps.Keys(c.configMaps), objectname.Compare),
	}
}
