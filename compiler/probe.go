package compiler

import (
	"context"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
)

// probe tells a mistake in a template from a mistake in an object: a template
// that is wrong whatever the object would otherwise have every object left out,
// and publish a configuration without any. It compiles an object that nobody
// wrote. What is wrong with that is the templates' fault.
func (c *compilation) probe(ctx context.Context) error {
	if c.probed {
		return nil
	}
	a, err := c.publishable(ctx, render.Input{Model: probeModel(), Config: c.in.Config})
	if err != nil {
		return err
	}
	// A template may refuse the probe on purpose, for lack of an annotation
	// that it asks for. That says nothing of the template.
	faults := slices.DeleteFunc(a.faults, func(f render.Fault) bool { return a.artifact.Files == nil && len(f.Origin.Objects) > 0 })
	if len(faults) > 0 {
		c.reportTemplates(faults)
		return ErrTemplates
	}
	c.probed = true
	return nil
}

// probeModel has one of everything.
func probeModel() routing.Model {
	origin := routing.Origin{Object: diag.Object{Kind: "Ingress", Namespace: "hapsnap", Name: "probe"}}
	const served, gone = "hapsnap_probe_http", "hapsnap_gone_80"
	route := func(t routing.PathType, path, backend string) routing.Route {
		return routing.Route{Match: routing.Match{Type: t, Path: path}, Backend: backend, Origin: origin}
	}
	return routing.Model{
		Hosts: []routing.Host{
			{Name: ".probe.invalid", Origin: origin, Routes: []routing.Route{route(routing.Prefix, "", served)}},
			{Name: "probe.invalid", Origin: origin, Routes: []routing.Route{route(routing.Exact, "/gone", gone), route(routing.Prefix, "/x", served)}},
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
