package render

import (
	"errors"
	"maps"
	"regexp"
	"strings"
	"text/template"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// maxFailures is at how many objects one template may fail before it is given up.
const maxFailures = 100

// execute returns what a template writes, with its marks, or takes note of why
// it does not, and returns nothing. Where it fails at an object that it reads, it
// is executed again without that one: so all such objects are found at once.
func (r *rendering) execute(i int, page Page) []byte {
	for range maxFailures {
		out, err := r.try(i, page)
		if err == nil {
			return out
		}
		fault := r.faultAt(out, page, err)
		culprit, ok := onlyObject(fault)
		if page.hidden[culprit] {
			return nil
		}
		r.faults = append(r.faults, faultOf{r.template, fault})
		if !ok || !page.objects.hasContent(culprit) {
			return nil
		}
		if page.hidden = maps.Clone(page.hidden); page.hidden == nil {
			page.hidden = map[diag.Object]bool{}
		}
		page.hidden[culprit] = true
	}
	return nil
}

// onlyObject returns the object that answers for a fault, if there is just one.
func onlyObject(f Fault) (diag.Object, bool) {
	if len(f.Origin.Objects) != 1 {
		return diag.Object{}, false
	}
	return f.Origin.Objects[0].Object, true
}

// faultAt says why a template could not be executed to its end.
func (r *rendering) faultAt(written []byte, page Page, err error) Fault {
	here := r.newAssembly(true)
	here.sets = r.sets
	f := Fault{Message: messageOf(err), Origin: here.stopped(written, page.origins), Refused: isRefusal(err)}
	if !f.Refused {
		f.Origin = r.placeIn(err, f.Origin)
	}
	if value, ok := errors.AsType[*ValueError](err); ok {
		f.Message, f.Hint, f.Value = value.Error(), value.Hint, value.Value
	}
	if wrong, ok := errors.AsType[mistake](err); ok {
		f.Hint = wrong.hint
	}
	if field, ok := missingField(err); ok {
		f.Message, f.Field = field+" is missing", field
	}
	return f
}

// missingForm matches what text/template says of a field that is not in the
// content of an object.
var missingForm = regexp.MustCompile(`at <\S*\.Content\.(\S+)>: map has no entry for key "(.+)"$`)

// missingField returns the path of the field that a template wants of an object's
// content, where there is none.
func missingField(err error) (string, bool) {
	m := missingForm.FindStringSubmatch(err.Error())
	if m == nil {
		return "", false
	}
	before, _, ok := strings.Cut("."+m[1]+".", "."+m[2]+".")
	return strings.TrimPrefix(before+"."+m[2], "."), ok
}

// placeIn returns the place that an error names, or where the execution stopped.
func (r *rendering) placeIn(err error, stopped LineOrigin) LineOrigin {
	for _, file := range r.set.files {
		if line, _, _ := splitError(file.Name, err); line > 0 {
			return LineOrigin{Template: file.Path, Line: line, Objects: stopped.Objects}
		}
	}
	return stopped
}

// messageOf takes what text/template says around the cause off an error.
func messageOf(err error) string {
	var exec template.ExecError
	if errors.As(err, &exec) {
		if cause := errors.Unwrap(exec.Err); cause != nil {
			return cause.Error()
		}
	}
	text := err.Error()
	if m := placeOf.FindStringSubmatch(text); m != nil {
		text = m[4]
	}
	return text
}
