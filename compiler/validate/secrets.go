package validate

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/leak"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// maxPrivateWarnings bounds the warnings about values that may stay. People who write Secrets
// choose how many there are.
const maxPrivateWarnings = 20

// checkPrivate looks for private keys and for values of Secrets in all files, in whatever
// form. A message does not quote what was found, and there is one for all lines that the
// same template wrote for the same objects.
//
// A private key is a fault wherever it is. The value of a Secret is a fault on a line that
// an object of its own namespace has a part in, and that object is to blame. Elsewhere it
// is a warning, and so is a value that the templates or the configuration hold: people who
// may write a Secret choose its values, and must not be able to stop anybody else.
func checkPrivate(a render.Artifact, x *leak.Index) (faults, warnings []render.Fault) {
	type cause struct{ what, origin string }
	seen := map[cause]bool{}
	for _, f := range a.Files {
		line, counted := 1, 0
		for _, found := range x.Find(f.Content) {
			line, counted = line+bytes.Count(f.Content[counted:found.At], []byte("\n")), found.At
			origin := a.Origin(f.Path, line)
			own := concerns(origin, found.Secret.Secret.Namespace)
			c := cause{f.Path + found.What, fmt.Sprint(origin.Template, origin.Line, distinct(origin))}
			if seen[c] || found.Plain && !own || found.Secret.Key != "" && isOurs(origin) && !found.Written {
				continue
			}
			seen[c] = true
			switch isKey := found.Secret.Key == ""; {
			case isKey || own && !found.Written:
				faults = append(faults, privateFault(f.Path, line, origin, found))
			case len(warnings) < maxPrivateWarnings:
				warnings = append(warnings, privateWarning(f.Path, line, origin, found))
			}
		}
	}
	return faults, warnings
}

func privateFault(path string, line int, origin render.LineOrigin, found leak.Finding) render.Fault {
	hint := "refer to a Secret of type kubernetes.io/tls instead"
	if found.Secret.Key != "" {
		hint = "a template gets it with the function secret; if nothing in that Secret is secret, list it in publicSecrets"
	}
	return render.Fault{
		Message: path + " would hold " + found.What + ", and snapshots are kept where many can read them",
		Hint:    fmt.Sprintf("it is on line %d of that file; %s", line, hint),
		Origin:  origin, File: path, Line: line, Namespace: found.Secret.Secret.Namespace,
	}
}

// privateWarning names the objects of the line in the hint: the warning is the
// administrator's, for people of another namespace are not to learn of the Secret.
func privateWarning(path string, line int, origin render.LineOrigin, found leak.Finding) render.Fault {
	hint := fmt.Sprintf("it is on line %d of that file", line)
	if names := distinct(origin); len(names) > 0 {
		hint += ", for " + names[0]
	}
	return render.Fault{
		Message: path + " holds " + found.What + ", and snapshots are kept where many can read them",
		Hint:    hint + "; if it is secret, change it there and in the Secret; if not, list the Secret in publicSecrets",
		Origin:  origin, File: path, Line: line,
	}
}

// isOurs reports whether hapsnap itself has written a line: a shipped template, for no
// object.
func isOurs(o render.LineOrigin) bool {
	return len(o.Objects) == 0 && strings.HasPrefix(o.Template, render.ShippedPrefix)
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
