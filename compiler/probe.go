package compiler

import (
	"bytes"
	"context"
	"regexp"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
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

// listed matches a list of what was quoted. The keywords that HAProxy knows are
// more where a script adds to them.
var listed = regexp.MustCompile(`''(?:, '')+`)

func placeOf(f render.Fault) place {
	message := listed.ReplaceAllString(quoted.ReplaceAllString(f.Message, "''"), "''")
	return place{f.Origin.Template, f.Origin.Line, message}
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
	for _, file := range a.artifact.Files {
		number := 0
		for line := range bytes.Lines(file.Content) {
			number++
			// An empty line is what a template ends with, and says nothing.
			if len(bytes.TrimSpace(line)) > 0 && !refused[output{file.Path, number}] {
				origin := a.artifact.Origin(file.Path, number)
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
	found := map[place]bool{}
	for _, model := range probeModels(c.in.Config) {
		a, err := c.publishable(ctx, render.Input{Model: model, Config: c.in.Config, Objects: probeObjects()})
		if err != nil {
			return nil, err
		}
		for _, f := range a.faults {
			if !f.Refused || f.Value != "" {
				found[placeOf(f)] = true
			}
		}
	}
	c.probed = found
	return c.probed, nil
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
