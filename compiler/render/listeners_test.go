package render_test

import (
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/templates"
)

// Hosts of one listener are never served to everybody: the templates cannot tell listeners apart.
func TestListenerWithHostsOfItsOwn(t *testing.T) {
	t.Parallel()
	files, err := render.Shipped(templates.FS)
	if err != nil {
		t.Fatal(err)
	}
	set, _ := render.Parse(files)
	model := routing.Model{
		Backends:  []routing.Backend{{Name: "a"}},
		Listeners: []routing.Listener{{Name: "inside", Port: 8080, Protocol: routing.HTTP, Own: &routing.Tree{Default: "a"}}},
	}
	artifact, faults := set.Render(render.Input{Model: model, Config: config.Default()})
	if len(faults) != 1 || !strings.Contains(faults[0].Message, "listener inside has hosts of its own") || len(artifact.Files) > 0 {
		t.Errorf("%d files, and %+v", len(artifact.Files), faults)
	}
	model.Listeners = nil
	if _, faults = set.Render(render.Input{Model: model, Config: config.Default()}); len(faults) > 0 {
		t.Errorf("without it: %+v", faults)
	}
}
