// Package explain traces a line of a rendered file back to its origin: the line of a template, and the objects and fields
// whose values it has.
//
// It uses what the renderer recorded: the objects that the template was executed for when it wrote the line. It compiles
// nothing itself.
package explain

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/request"
)

// Explanation is where a line came from.
type Explanation struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Text string `json:"text"`
	// Template wrote the line. It is nil if no template did; then Note says what did.
	Template *Template `json:"template,omitempty"`
	Note     string    `json:"note,omitempty"`
	// Origins are the fields that the line was written for, in the order in which the template reached
	// them. After them come the annotations, and the fields of objects with content, whose value is on
	// the line.
	Origins []Origin `json:"origins"`
}

// Template is a line of a template, as users know the file.
type Template struct {
	File string `json:"file"`
	Line int    `json:"line"`
}

// Origin is a field of an object. File, Line and Column are zero if they are unknown. Value is set if
// the line holds it as it is.
type Origin struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Field     string `json:"field,omitempty"`
	Value     string `json:"value,omitempty"`
	File      string `json:"file,omitempty"`
	Line      int    `json:"line,omitempty"`
	Column    int    `json:"column,omitempty"`
}

// Explain explains a line of the files that an artifact was published as. It returns an error if there
// is no such line.
func Explain(p Place, files []snapshots.File, a render.Artifact, in inputs.Inputs) (Explanation, error) {
	path, text, err := p.find(files)
	if err != nil {
		return Explanation{}, err
	}
	origin := a.Origin(path, p.Line)
	out := Explanation{File: path, Line: p.Line, Text: text, Origins: []Origin{}}
	for _, o := range origin.Objects {
		out.Origins = append(out.Origins, originOf(o.Object, o.Position, o.Field))
	}
	for _, o := range annotated(origin, text, in) {
		out.Origins = with(out.Origins, o)
	}
	if origin.Line > 0 {
		out.Template = &Template{File: origin.Template, Line: origin.Line}
	} else {
		out.Note = noteOn(path, text)
	}
	return out, nil
}

// NoLine is the note of a line that there is not.
const NoLine = "there is no such line"

// noteOn says what wrote a line that no template did.
func noteOn(path, text string) string {
	switch {
	case path == snapshots.EndpointsFile:
		return "endpoints are recorded from EndpointSlices"
	case strings.TrimSpace(text) == "":
		return "no template wrote it: it separates the output of templates"
	}
	return "no template wrote it: the renderer did"
}

func originOf(o diag.Object, at diag.Position, field string) Origin {
	return Origin{
		Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Field: field,
		File: at.File, Line: at.Line, Column: at.Column,
	}
}

// with adds an origin, or adds its value to the origin of the same field.
func with(origins []Origin, o Origin) []Origin {
	plain := o
	plain.Value = ""
	if i := slices.Index(origins, plain); i >= 0 {
		origins[i].Value = o.Value
		return origins
	}
	return append(origins, o)
}

// annotated returns the options of the line's objects whose values are on the line, and such fields of
// objects with content. A template is executed for a backend or a route; this tells which of its
// options the line is about.
func annotated(line render.LineOrigin, text string, in inputs.Inputs) []Origin {
	asked := map[diag.Object]bool{}
	for _, o := range line.Objects {
		asked[o.Object] = true
	}
	var out []Origin
	for _, o := range in.Others {
		if asked[o.Ref] {
			out = append(out, fieldsOnLine(o, text)...)
		}
	}
	for _, o := range in.Ingresses {
		if asked[o.Ref] {
			out = append(out, matching(o.Ref, o.Position, o.Value.Annotations, text)...)
		}
	}
	for _, o := range in.Services {
		if asked[o.Ref] {
			out = append(out, matching(o.Ref, o.Position, o.Value.Annotations, text)...)
		}
	}
	for _, o := range in.Gateway.Each() {
		if asked[o.Ref] {
			out = append(out, matching(o.Ref, o.Position, o.Value.GetAnnotations(), text)...)
		}
	}
	slices.SortFunc(out, func(a, b Origin) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Field, b.Field))
	})
	return out
}

// fieldsOnLine returns the fields of an object with content that are on a line.
func fieldsOnLine(o inputs.Object[unstructured.Unstructured], text string) []Origin {
	var out []Origin
	inputs.EachField(o.Value.Object, func(path []any, value string) {
		if !partOfLine(text, value) {
			return
		}
		found := originOf(o.Ref, o.Position(path...), manifests.FieldPath(path))
		found.Value = value
		out = append(out, found)
	})
	return out
}

// partOfLine reports whether a value is one or more whole words of a line, or stands between the
// characters that templates put between values.
func partOfLine(text, value string) bool {
	between := strings.Map(func(r rune) rune {
		if strings.ContainsRune("|:=,()", r) {
			return ' '
		}
		return r
	}, text)
	return onLine(text, value) || onLine(between, value)
}

// matching returns the options of one object whose values are on a line.
func matching(object diag.Object, at func(path ...any) diag.Position, annotations map[string]string, text string) []Origin {
	var out []Origin
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		value := annotations[name]
		if !strings.HasPrefix(name, options.Prefix) || !onLine(text, value) {
			continue
		}
		path := []any{"metadata", "annotations", name}
		found := originOf(object, at(path...), manifests.FieldPath(path))
		found.Value = value
		out = append(out, found)
	}
	return out
}

// onLine reports whether a value is one or more whole words of a line.
func onLine(text, value string) bool {
	words, wanted := strings.Fields(text), strings.Fields(value)
	for i := 0; len(wanted) > 0 && i+len(wanted) <= len(words); i++ {
		if slices.EqualFunc(words[i:i+len(wanted)], wanted, func(word, want string) bool { return strings.Trim(word, `"'`) == want }) {
			return true
		}
	}
	return false
}

// Place is a line of a rendered file. Lines count from 1.
type Place struct {
	File string
	Line int
}

const placeHint = "name a line as FILE:LINE, such as haproxy.cfg:120"

// ParsePlace reads FILE:LINE, also where a column or text follows, as compilers and grep print it.
// Otherwise it returns a usage error.
func ParsePlace(text string) (Place, error) {
	file, rest, ok := strings.Cut(text, ":")
	if !ok || rest == "" {
		return Place{}, process.WithHint(process.Usage("%s: no line is named", text), placeHint)
	}
	number, _, _ := strings.Cut(rest, ":")
	line, err := strconv.Atoi(number)
	if errors.Is(err, strconv.ErrSyntax) {
		return Place{}, process.WithHint(process.Usage("%s: %q is not the number of a line", text, number), placeHint)
	}
	if err != nil {
		return Place{}, process.WithHint(process.Usage("%s: line %s is too far", text, number), placeHint)
	}
	return Place{file, line}, nil
}

// find returns the file that a person means, by its path in the snapshot or by the end of the path, and
// the text of the line. It returns a usage error if there is none.
func (p Place) find(files []snapshots.File) (path, text string, err error) {
	var found snapshots.File
	var names []string
	for _, f := range files {
		names = append(names, f.Path)
		if (p.File == f.Path || strings.HasSuffix(p.File, "/"+f.Path)) && len(f.Path) > len(found.Path) {
			found = f
		}
	}
	if found.Path == "" {
		return "", "", process.WithHint(process.Usage("%s is not a file of the snapshot", p.File), "use one of "+strings.Join(names, ", "))
	}
	lines := strings.Split(strings.TrimSuffix(string(found.Content), "\n"), "\n")
	if p.Line < 1 || p.Line > len(lines) {
		return "", "", process.Usage("%s has %d lines, and no line %d", found.Path, len(lines), p.Line)
	}
	return found.Path, lines[p.Line-1], nil
}

// Claim is a rule of an Ingress that the request falls under and that does not have it.
type Claim struct {
	Object   diag.Object
	Position diag.Position
	Field    string
	Rule     string // such as "shop.example.com/cart (Prefix)"
	Reason   string

	rank [3]int // of the host, whether the path is exact, and how long it is
}

// Losers says which rules claim a request that another rule has.
type Losers struct {
	Form routing.PathForm
	// Compiled reports whether an Ingress is compiled: others are not looked at.
	Compiled func(inputs.Object[networkingv1.Ingress]) bool
	Found    []diag.Diagnostic // of the compile
	// Winners are the places of the rules that have the request, as positions or fields.
	Winners func(object diag.Object, position diag.Position, field string) bool
}

// Of returns the claims of Ingresses that do not get the request, those that came nearest first.
func (l Losers) Of(ingresses []inputs.Object[networkingv1.Ingress], r request.Request) []Claim {
	host, _, _ := strings.Cut(r.Host, ":")
	host = hostname.Normal(host)
	asked, _ := r.Path()
	asked = l.Form.Of(asked)
	var best [3]int
	var out []Claim
	for _, ing := range ingresses {
		compiled := l.Compiled(ing)
		for _, c := range l.claims(ing, host, asked) {
			won := l.Winners(c.Object, c.Position, c.Field)
			if c.Reason = l.said(c); c.Reason == "" && !compiled {
				c.Reason = "its Ingress is of another class or namespace, and is not compiled"
			}
			if c.Reason == "" && slices.Compare(c.rank[:], best[:]) > 0 {
				best = c.rank
			}
			if !won {
				out = append(out, c)
			}
		}
	}
	for i := range out {
		out[i].Reason = cmp.Or(out[i].Reason, less(out[i].rank, best))
	}
	slices.SortStableFunc(out, func(a, b Claim) int {
		return cmp.Or(-slices.Compare(a.rank[:], b.rank[:]), a.Object.Compare(b.Object), cmp.Compare(a.Field, b.Field))
	})
	return out
}

// less says why one rule does not have what another one has.
func less(rank, best [3]int) string {
	switch {
	case rank[0] < best[0]:
		return "a rule for this very host, or a narrower wildcard, comes first"
	case rank[1] < best[1]:
		return "an exact path comes before a prefix"
	case rank[2] < best[2]:
		return "a longer path comes first"
	}
	return "another rule has the request"
}

// said is what the compile reported of the rule, or of its Ingress as a whole.
func (l Losers) said(c Claim) string {
	whole := ""
	for _, d := range l.Found {
		switch {
		case d.Object != c.Object:
		case d.Position == c.Position && (d.Conflict || d.Severity == diag.Error):
			return d.Message
		case d.Severity == diag.Error && !d.Conflict:
			whole = cmp.Or(whole, "its Ingress has an error: "+d.Message)
		}
	}
	return whole
}

// claims returns the paths of an Ingress that a request falls under.
func (l Losers) claims(ing inputs.Object[networkingv1.Ingress], host, asked string) []Claim {
	var out []Claim
	for i, rule := range ing.Value.Spec.Rules {
		of := hostname.Of(rule.Host)
		rank := map[bool]int{true: 2}[of == host && of != ""]
		switch {
		case rule.Host == "", rank == 2:
		case hostname.WildcardOf(host) == of:
			rank = 1
		default:
			continue
		}
		if rule.HTTP == nil {
			continue
		}
		for j, p := range rule.HTTP.Paths {
			exact := p.PathType != nil && *p.PathType == networkingv1.PathTypeExact
			path := l.Form.Of(cmp.Or(p.Path, "/"))
			if exact && path != asked || !exact && !strings.HasPrefix(asked+"/", strings.TrimSuffix(path, "/")+"/") {
				continue
			}
			at := []any{"spec", "rules", i, "http", "paths", j, "path"}
			kind := networkingv1.PathTypeImplementationSpecific
			if p.PathType != nil {
				kind = *p.PathType
			}
			out = append(out, Claim{
				Object: ing.Ref, Position: ing.Position(at...), Field: manifests.FieldPath(at),
				Rule: fmt.Sprintf("%s%s (%s)", cmp.Or(rule.Host, "*"), cmp.Or(p.Path, "/"), kind),
				rank: [3]int{rank, map[bool]int{true: 1}[exact], len(strings.TrimSuffix(path, "/"))},
			})
		}
	}
	return out
}
