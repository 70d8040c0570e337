package render

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// Object is what a template can read of an object.
type Object struct {
	routing.Origin
	APIVersion          string
	Labels, Annotations map[string]string
	// Whole is the content, nil if the configuration does not name the kind. It must not be changed.
	Whole map[string]any
}

// Content returns the content of an object, as it is written in a manifest. A
// field that is not there is an error of the object.
func (o Object) Content() (map[string]any, error) {
	if o.Whole == nil {
		return nil, mistake{"there is no content of kind " + o.APIVersion + "/" + o.Object.Kind, listIt}
	}
	return o.Whole, nil
}

// Field returns the value of a field that may be missing, such as "spec.timeout",
// or nil.
func (o Object) Field(path string) (any, error) {
	content, err := o.Content()
	if err != nil {
		return nil, err
	}
	steps, err := kinds.FieldPath(path)
	if err != nil {
		return nil, mistake{"field: " + err.Error(), "use a path such as spec.timeout"}
	}
	var at any = content
	for _, name := range steps {
		m, _ := at.(map[string]any)
		at = m[name]
	}
	return at, nil
}

// mistake is a mistake in a template, whatever the objects are.
type mistake struct{ message, hint string }

// Error returns the message.
func (m mistake) Error() string { return m.message }

const listIt = "list it in kinds of the configuration"

// alwaysRead are the kinds that templates can always read, without their content.
var alwaysRead = []string{"networking.k8s.io/v1/Ingress", "v1/Service"}

// objectIndex finds objects by kind and by name.
type objectIndex struct {
	all      []Object
	byKind   map[string]*kindIndex
	byOrigin map[diag.Object]int
}

func indexObjects(objects []Object, kinds []kinds.Kind) *objectIndex {
	x := &objectIndex{byKind: map[string]*kindIndex{}, byOrigin: map[diag.Object]int{}}
	for _, gvk := range alwaysRead {
		x.byKind[gvk] = &kindIndex{}
	}
	for _, k := range kinds {
		x.byKind[k.GVK()] = newKindIndex(k.Indexes)
	}
	x.all = slices.SortedStableFunc(slices.Values(objects), func(a, b Object) int {
		return cmp.Or(a.Object.Compare(b.Object), cmp.Compare(a.APIVersion, b.APIVersion))
	})
	for i, o := range x.all {
		if k := x.byKind[o.APIVersion+"/"+o.Object.Kind]; k != nil && k.named == (o.Whole != nil) {
			k.objects = append(k.objects, o)
		}
		// The same object may be there twice, once with those parts of its content that are kept.
		if _, there := x.byOrigin[o.Object]; !there || o.Whole == nil {
			x.byOrigin[o.Object] = i
		}
	}
	return x
}

// annotation returns the value of an annotation of the first of some objects that
// has it, or "".
func (x *objectIndex) annotation(origins []routing.Origin, name string) string {
	for _, origin := range origins {
		if i, ok := x.byOrigin[origin.Object]; ok {
			if value := x.all[i].Annotations[name]; value != "" {
				return value
			}
		}
	}
	return ""
}

// hasContent reports whether templates read the content of an object.
func (x *objectIndex) hasContent(ref diag.Object) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(x.byKind)), func(k *kindIndex) bool { return k.has(ref) })
}

// kind returns the objects of a kind that templates may read.
func (x *objectIndex) kind(gvk string) (*kindIndex, error) {
	if k := x.byKind[gvk]; k != nil {
		return k, nil
	}
	hint := fmt.Sprintf("%s; there are %s", listIt, strings.Join(slices.Sorted(maps.Keys(x.byKind)), ", "))
	if gvk == "v1/Secret" {
		hint = "templates cannot read Secrets: use the function secret for a value"
	}
	return nil, mistake{fmt.Sprintf("%q is not a kind that templates can read", gvk), hint}
}

// kindIndex holds the objects of a kind, sorted, and finds them by their values. Several goroutines may
// use it.
type kindIndex struct {
	objects []Object
	named   bool // by the configuration: then they have content
	// indexes are made when a template first uses them.
	indexes map[string]func() map[string][]Object
}

// newKindIndex prepares the indexes of a kind that the configuration names.
func newKindIndex(paths map[string]string) *kindIndex {
	k := &kindIndex{named: true, indexes: map[string]func() map[string][]Object{}}
	for name, path := range paths {
		k.indexes[name] = sync.OnceValue(func() map[string][]Object {
			out := map[string][]Object{}
			for _, o := range k.objects {
				for _, text := range valuesAt(o.Whole, path) {
					out[text] = append(out[text], o)
				}
			}
			return out
		})
	}
	return k
}

// has reports whether an object is one of those with content. They are sorted.
func (k *kindIndex) has(ref diag.Object) bool {
	_, found := slices.BinarySearchFunc(k.objects, ref, func(o Object, ref diag.Object) int { return o.Object.Compare(ref) })
	return found && k.named
}

// by returns the objects that an index finds for a value.
func (k *kindIndex) by(index string, value any) ([]Object, error) {
	find, ok := k.indexes[index]
	if !ok {
		there := strings.Join(slices.Sorted(maps.Keys(k.indexes)), ", ")
		return nil, mistake{fmt.Sprintf("there is no index %q of that kind", index), "list it in indexes of the kind; there are: " + there}
	}
	text, err := scalar(value)
	return find()[text], err
}

// valuesAt returns the plain values that a JSONPath leads to, each once. It returns none for content
// that the path does not fit.
func valuesAt(content map[string]any, path string) []string {
	j, err := kinds.JSONPath(path) // holds a state, and so is not shared
	if err != nil {
		return nil
	}
	found, err := j.FindResults(content)
	if err != nil {
		return nil
	}
	var out []string
	for _, values := range found {
		for _, v := range values {
			if !v.IsValid() || !v.CanInterface() {
				continue
			}
			if text, err := scalar(v.Interface()); err == nil {
				out = append(out, text)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// hostMaps are the maps with a line or more for each host, as the shipped templates have them, with what writes the same
// without a template: the same bytes, and the same origins. Executing templates for thousands of hosts took three
// quarters of the time of rendering. A template with another text is executed.
var hostMaps = map[string]struct {
	text  string
	write func(*mapWriter, *mapPage)
}{
	"maps/host.map": {`# host as requested -> host of rules; *.example.com is kept as .example.com
{{range .Hosts}}{{if .Key}}{{.Key}} {{.Key}}
{{end}}{{end}}{{range .Held}}{{.Name}} {{.Name}}
{{end}}
`, func(w *mapWriter, p *mapPage) {
		for _, h := range p.Hosts {
			if key := h.Key(); key != "" {
				w.line(2, originsOf(h), w.word(key), " ", key)
			}
		}
		for _, h := range p.Held {
			w.line(3, originsOf(h), w.word(h.Name), " ", h.Name)
		}
	}},
	"maps/exact.map": {`# host|path -> backend
{{range $host := .Hosts}}{{range .Choices}}{{if eq .Type "Exact"}}{{$host.Key}}|{{.Path}} {{.To}}
{{end}}{{end}}{{end}}
`, func(w *mapWriter, p *mapPage) {
		w.choices(p, func(h routing.Host, c routing.Choice) {
			if c.Type == routing.Exact {
				w.line(2, w.of(h, c), w.word(h.Key()), "|", w.word(c.Path), " ", w.word(c.To()))
			}
		})
	}},
	"maps/prefix.map": {`# host|path/ -> backend; a slash is appended to the request's path too, so that only whole path elements match
{{range $host := .Hosts}}{{range .Choices}}{{if eq .Type "Prefix"}}{{$host.Key}}|{{.Path}}/ {{.To}}
{{end}}{{end}}{{if .Closed}}{{.Key}}|/ hapsnap_notfound
{{end}}{{end}}{{range .Held}}{{if .Closed}}{{.Name}}|/ hapsnap_notfound
{{end}}{{end}}
`, func(w *mapWriter, p *mapPage) {
		for _, h := range p.Hosts {
			for _, c := range h.Choices() {
				if c.Type == routing.Prefix {
					w.line(2, w.of(h, c), w.word(h.Key()), "|", w.word(c.Path), "/ ", w.word(c.To()))
				}
			}
			if h.Closed {
				w.line(3, originsOf(h), w.word(h.Key()), "|/ hapsnap_notfound")
			}
		}
		for _, h := range p.Held {
			if h.Closed {
				w.line(4, originsOf(h), w.word(h.Name), "|/ hapsnap_notfound")
			}
		}
	}},
	"maps/rewrite.map": {`# host|path/ or host||exact path -> the path to replace, of routes that replace what they match
{{range $host := .Hosts}}{{range .Choices}}{{if .ReplacesPrefix}}{{$host.Key}}|{{if eq .Type "Exact"}}|{{.Path}}{{else}}{{.Path}}/{{end}} {{or .Path "/"}}
{{end}}{{end}}{{end}}
`, func(w *mapWriter, p *mapPage) {
		w.choices(p, func(h routing.Host, c routing.Choice) {
			switch {
			case !c.ReplacesPrefix():
			case c.Type == routing.Exact:
				w.line(2, w.of(h, c), w.word(h.Key()), "||", w.word(c.Path), " ", cmp.Or(c.Path, "/"))
			default:
				w.line(2, w.of(h, c), w.word(h.Key()), "|", w.word(c.Path), "/ ", cmp.Or(c.Path, "/"))
			}
		})
	}},
}

// mapWriter writes a map in place of a template.
type mapWriter struct {
	path    string // of the template
	text    []byte
	origins []*LineOrigin
	refused bool // a value was
}

// written returns the output that replaces the execution of a template. It returns nil if there is none, or if a value is
// refused: then executing the template reports the value.
func (r *rendering) written(i int) *assembly {
	template := r.set.files[i]
	known, ok := hostMaps[template.Name]
	if !ok || template.Text != known.text {
		return nil
	}
	w := mapWriter{path: template.Path}
	comment, _, _ := strings.Cut(known.text, "\n")
	w.line(1, nil, comment)
	known.write(&w, new(r.data.mapPage()))
	if w.refused {
		return nil
	}
	return &assembly{files: r.set.files, text: w.text, origins: w.origins}
}

// choices calls a function for each choice of each host.
func (w *mapWriter) choices(p *mapPage, visit func(routing.Host, routing.Choice)) {
	for _, h := range p.Hosts {
		for _, c := range h.Choices() {
			visit(h, c)
		}
	}
}

// of returns the objects of a line for a choice: those of the host where the choice has none.
func (*mapWriter) of(h routing.Host, c routing.Choice) []routing.Origin {
	if origins := originsOf(c); len(origins) > 0 {
		return origins
	}
	return originsOf(h)
}

// line adds a line that a line of the template would write for some objects.
func (w *mapWriter) line(line int, objects []routing.Origin, parts ...string) {
	for _, part := range parts {
		w.text = append(w.text, part...)
	}
	w.text = append(w.text, '\n')
	w.origins = append(w.origins, &LineOrigin{Template: w.path, Line: line, Objects: objects})
}

// plainInMaps is what a word may hold of without a check. Without a colon, it holds no word for a Secret.
const plainInMaps = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/*?|"

// word is a value, checked as a template would check it.
func (w *mapWriter) word(s string) string {
	if strings.Trim(s, plainInMaps) != "" { // most have nothing else
		_, err := checkMap(s)
		w.refused = w.refused || err != nil
	}
	return s
}
