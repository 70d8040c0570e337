package compiler

import (
	"bytes"
	"fmt"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
)

// checkPathTemplates warns of templates of a user that look paths up as they are sent, such as a
// copy of the shipped ones from before paths were compared in a normal form. What protects a path
// can be walked around there by writing the path in another way, and nothing else shows that.
func checkPathTemplates(m routing.Model, a render.Artifact) []diag.Diagnostic {
	var config []byte
	for _, f := range a.Files {
		if f.Path == snapshots.ConfigFile {
			config = f.Content
		}
	}
	has := func(word string) bool { return bytes.Contains(config, []byte(word)) }
	if !has("(maps/prefix.map)") && !has("(maps/exact.map)") {
		return nil // paths are looked up in another way, or not at all
	}
	normalizes, guards := has("lua.hapsnap_path"), has("(maps/paths.map)")
	if normalizes && guards {
		return nil // as nearly always
	}
	for _, h := range m.Hosts {
		if len(h.Guards) == 0 {
			continue
		}
		var what string
		switch {
		case h.Form != routing.AsSent && !normalizes:
			what = "compare paths as they are sent, such as //admin and /%61dmin"
		case !guards:
			what = "pass on paths that servers read in different ways, such as /x/..%2fadmin"
		default:
			continue
		}
		return []diag.Diagnostic{{
			Severity: diag.Warning,
			Message:  fmt.Sprintf("the templates %s, so that what %s protects of host %s can be walked around", what, h.Guards[0].Origin.Object, h.Name),
			Hint:     "a copy of partials/routing.cfg, or of a frontend, is older than the shipped one: renew it; the shipped one has partials/path.cfg and partials/path-guard.cfg",
		}}
	}
	return nil
}
