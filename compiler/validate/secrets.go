package validate

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/leak"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// checkPrivate refuses every file that holds a private key or the value of a Secret,
// in whatever form. A fault does not quote it, and there is one for all lines that
// the same template wrote for the same objects.
func checkPrivate(a render.Artifact, x *leak.Index) []render.Fault {
	type cause struct{ what, origin string }
	seen := map[cause]bool{}
	var out []render.Fault
	for _, f := range a.Files {
		line, counted := 1, 0
		for _, found := range x.Find(f.Content) {
			line, counted = line+bytes.Count(f.Content[counted:found.At], []byte("\n")), found.At
			origin := a.Origin(f.Path, line)
			c := cause{f.Path + found.What, fmt.Sprint(origin.Template, origin.Line, distinct(origin))}
			if seen[c] || found.Plain && !concerns(origin, found.Secret.Secret.Namespace) {
				continue
			}
			seen[c] = true
			out = append(out, privateFault(f.Path, line, origin, found))
		}
	}
	return out
}

func privateFault(path string, line int, origin render.LineOrigin, found leak.Finding) render.Fault {
	hint := "refer to a Secret of type kubernetes.io/tls instead"
	if found.Secret.Key != "" {
		hint = "a template gets it with the function secret; if nothing in that Secret is secret, list it in publicSecrets"
	}
	return render.Fault{
		Message: path + " would hold " + found.What + ", and snapshots are kept where many can read them",
		Hint:    fmt.Sprintf("it is on line %d of that file; %s", line, hint),
		Origin:  origin, File: path, Line: line,
	}
}

// distinct names the objects of a line.
func distinct(o render.LineOrigin) []string {
	var out []string
	for _, object := range o.Objects {
		out = append(out, object.Object.String())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// concerns reports whether an object of a namespace has a part in a line.
func concerns(o render.LineOrigin, namespace string) bool {
	return slices.ContainsFunc(o.Objects, func(object routing.Origin) bool { return object.Object.Namespace == namespace })
}
