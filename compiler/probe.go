package compiler

import (
	"context"
	"regexp"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
)

// place is a line of a template, and what is wrong with what it writes.
type place struct {
	template string
	line     int
	message  string // without names
}

// quoted matches what HAProxy, or a check of values, quotes in a message: names,
// mostly.
var quoted = regexp.MustCompile(`'[^']*'|"(?:[^"\\]|\\.)*"`)

func placeOf(f render.Fault) place {
	return place{f.Origin.Template, f.Origin.Line, quoted.ReplaceAllString(f.Message, "''")}
}

// ofTemplates returns the faults of an attempt that are those of a template,
// whatever the object. If they were blamed on objects, every object would be
// left out, and a configuration without any route be published. Such a fault
// shows with an object that nobody wrote too, and no line that the template
// wrote in the same place was accepted.
func (c *compilation) ofTemplates(ctx context.Context, a attempt) ([]render.Fault, error) {
	probed, err := c.probe(ctx)
	if err != nil || len(probed) == 0 {
		return nil, err
	}
	accepted := acceptedPlaces(a)
	var out []render.Fault
	for _, f := range a.faults {
		if probed[placeOf(f)] && !accepted[place{template: f.Origin.Template, line: f.Origin.Line}] {
			out = append(out, f)
		}
	}
	return out, nil
}

// acceptedPlaces returns the lines of templates that wrote any line that is not
// at fault.
func acceptedPlaces(a attempt) map[place]bool {
	type output struct {
		file string
		line int
	}
	refused := map[output]bool{}
	for _, f := range a.faults {
		refused[output{f.File, f.Line}] = true
	}
	out := map[place]bool{}
	for file, lines := range a.artifact.Origins {
		for i, origin := range lines {
			if !refused[output{file, i + 1}] {
				out[place{template: origin.Template, line: origin.Line}] = true
			}
		}
	}
	return out
}

// probe compiles an object that nobody wrote, once, and returns what is wrong
// with that. What fail refused does not count: a template may ask for an
// annotation that the probe does not have. What a check of values refused does,
// for all values of the probe are plain.
func (c *compilation) probe(ctx context.Context) (map[place]bool, error) {
	if c.probed != nil {
		return c.probed, nil
	}
	a, err := c.publishable(ctx, render.Input{Model: probeModel(), Config: c.in.Config, Objects: probeObjects()})
	if err != nil {
		return nil, err
	}
	c.probed = map[place]bool{}
	for _, f := range a.faults {
		if !f.Refused || f.Value != "" {
			c.probed[placeOf(f)] = true
		}
	}
	return c.probed, nil
}

// probeModel has one of everything.
func probeModel() routing.Model {
	origin := probeOrigin("Ingress")
	const served, gone = "hapsnap_probe_http", "hapsnap_gone_80"
	route := func(t routing.PathType, path, backend string) routing.Route {
		return routing.Route{Match: routing.Match{PathMatch: routing.PathMatch{Type: t, Path: path}}, Backend: backend, Origin: origin}
	}
	chosen := route(routing.Prefix, "/x", gone)
	chosen.Match.Conditions = []routing.Condition{{Of: routing.Header, Name: "x-probe", Value: "a"}}
	return routing.Model{
		Hosts: []routing.Host{
			{Name: ".probe.invalid", Origin: origin, Routes: []routing.Route{route(routing.Prefix, "", served)}},
			{Name: "probe.invalid", Origin: origin, Routes: []routing.Route{
				route(routing.Exact, "/gone", gone), chosen, route(routing.Prefix, "/x", served),
			}},
		},
		Backends: []routing.Backend{
			{Name: gone, Origins: []routing.Origin{origin}},
			{Name: served, Origins: []routing.Origin{origin}, Targets: []routing.Target{
				{Service: snapshots.ServicePort{Namespace: "hapsnap", Service: "probe", Port: "http"}, Weight: 1},
			}},
		},
		Certificates: []routing.Certificate{{
			File: "certs/hapsnap_probe.pem", Secret: snapshots.SecretName{Namespace: "hapsnap", Name: "probe"},
			Hosts: []string{"probe.invalid"}, Origin: origin,
		}},
		Default: served, DefaultOrigin: origin,
	}
}

// probeObjects has one object of each kind that templates can loop over.
func probeObjects() []render.Object {
	return []render.Object{
		{Origin: probeOrigin("Ingress"), APIVersion: "networking.k8s.io/v1"},
		{Origin: probeOrigin("Service"), APIVersion: "v1"},
	}
}

func probeOrigin(kind string) routing.Origin {
	return routing.Origin{Object: diag.Object{Kind: kind, Namespace: "hapsnap", Name: "probe"}}
}
