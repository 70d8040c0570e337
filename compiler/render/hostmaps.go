package render

import (
	"cmp"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/routing"
)

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
	origins []LineOrigin
	refused bool // a value was
}

// written returns what stands in for a template, nil if nothing does, and where a value is refused: the template then says
// which.
func (r *rendering) written(i int) *assembly {
	template := r.set.files[i]
	known, ok := hostMaps[template.Name]
	if !ok || template.Text != known.text {
		return nil
	}
	w := mapWriter{path: template.Path}
	comment, _, _ := strings.Cut(known.text, "\n")
	w.line(1, nil, comment)
	known.write(&w, new(r.page.mapPage()))
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
	w.origins = append(w.origins, LineOrigin{Template: w.path, Line: line, Objects: objects})
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
