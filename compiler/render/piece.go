package render

import (
	"bytes"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// piece is what one execution of a template adds to haproxy.cfg.
type piece struct {
	blank   bool // nothing was written, not even a line that is taken out
	text    []byte
	origins []LineOrigin
	secrets []string // words for values of Secrets that were asked for
}

// backendPage is the dot of a template for each backend, as far as most need:
// what it does not hold cannot have been read, so that what was written can be
// used again. A template that wants more is executed with a [Page].
type backendPage struct {
	Config             config.Config
	SeveralAuthorities bool
	ErrorPages         []routing.ErrorPage
	Backend            routing.Backend

	objects *objectIndex
	asked   []annotation
}

// Annotation is [Page.Annotation], and takes note of what it was asked.
func (p *backendPage) Annotation(name string) string {
	value := p.objects.annotation(p.Backend.Origins, name)
	p.asked = append(p.asked, annotation{name, value})
	return value
}

// backends executes a template for each of some backends.
func (r *rendering) backends(into *assembly, i int, backends []routing.Backend) {
	page := &backendPage{
		Config: r.page.Config, SeveralAuthorities: r.page.SeveralAuthorities, ErrorPages: r.page.ErrorPages, objects: r.page.objects,
	}
	for _, b := range backends {
		page.Backend, page.asked = b, nil
		into.append(r.backend(i, page))
	}
}

// backend returns what a template writes for a backend.
func (r *rendering) backend(i int, page *backendPage) piece {
	b, key := page.Backend, memoKey{i, page.Backend.Name}
	answer := func(name string) string { return r.page.objects.annotation(b.Origins, name) }
	if found, ok := r.memo.find(key, b, answer); ok {
		r.ask(found.secrets)
		return found
	}
	r.secretsOf = nil
	marked, err := r.try(i, page)
	if err != nil { // perhaps for want of a field
		whole := r.page
		whole.Backend, whole.origins = b, b.Origins
		return r.assembled(r.execute(i, whole), b.Origins)
	}
	out := r.assembled(marked, b.Origins)
	out.secrets = r.secretsOf
	r.memo.keep(key, memory{backend: b, annotations: page.asked, wrote: out})
	return out
}

// assembled takes the marks out of what was written for objects.
func (r *rendering) assembled(marked []byte, origins []routing.Origin) piece {
	a := r.newAssembly(false)
	a.sets = r.sets
	a.section(marked, origins)
	return piece{blank: len(bytes.TrimSpace(marked)) == 0, text: a.text, origins: a.origins}
}

// append adds a piece.
func (a *assembly) append(p piece) {
	if !p.blank {
		a.separate()
	}
	a.text = append(a.text, p.text...)
	a.origins = append(a.origins, p.origins...)
}
