// Package render turns a routing model into the files of a snapshot, with
// templates. It is a pure function of the model, the configuration and the
// templates. For every line that it writes, it records the line of the template,
// and the objects.
//
// # What templates see
//
// The templates are those of package templates, overlaid by the user's. A
// template's dot is a [TemplateData]. Functions are the hermetic ones of sprig (no
// clock, no randomness, no environment, nothing in map order) and our own:
//
//	quote VALUE           one word of haproxy.cfg, whatever the value holds
//	literal VALUE         the same where HAProxy expects a format
//	words LIST            the values of a list, separated by spaces
//	listen ADDRESS PORT   the address of a bind line
//	secret "NS/NAME" KEY  a word for a value of a Secret, filled in by the pusher
//	socket NAME ADDRESS PORT
//	                      the address of a socket within HAProxy, for bind and
//	                      server lines, named after a port that it listens on
//	answer STATUS TEXT    what a return or deny rule answers: the error page of
//	                      the status, or the text
//	listenQUIC ADDRESS PORT
//	                      the same for HTTP/3
//	verbatim LINE         a whole line that an object's author may write: of a
//	                      backend's Snippet, and of nothing else
//	keys MAP, values MAP  in the order of the keys
//
// .Objects "example.com/v1/Widget" are the objects of a kind that the configuration
// names, .Indexed "example.com/v1/Widget" "byHost" HOST those that an index finds
// for a value, both sorted by namespace and name. Of such an object
//
//	.Content.spec.host      is a field that must exist
//	.Field "spec.timeout"   is an optional field; it is empty if it does not exist
//	.Object.Name, .Labels, .Annotations
//	                        always exist, as for Ingresses and Services
//
// If a template fails at one of these objects, the object is left out and reported.
//
// # What a value may be
//
// Every value that a template interpolates is checked. Text with a line break, a
// control character or an unprintable character is always an error. In haproxy.cfg so is
// a space, '#', '$', a backslash or a quotation mark, unless the value went through
// quote, and a brace that stands alone. So no object can end a word, a condition, a line
// or a section. The check is inserted into the parse tree, as html/template does, so that
// no author of a template has to remember it.
//
// # What is left to others
//
// Package validate decides whether HAProxy accepts the result.
//
// # Decisions
//
// A template for each backend is first executed with limited data (render.backendPage).
// It can have read nothing else. So if all of these data are equal the next time,
// positions included, its output can be used again. The annotations that it reads are
// recorded. A template that needs the hosts or other objects fails with these data. Then
// it is executed again with everything, and its output is not remembered. Maps are
// remembered in the same way, as long as all hosts are equal. The steps are the same
// with and without a memory, and so is the result.
package render

import (
	"bytes"
	"cmp"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/template"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Fallback is the certificate that is served if no other fits.
const Fallback = "certs/fallback.pem"

// Render executes the templates. It returns either a whole artifact or all faults that prevent one.
func (s *Set) Render(in Input) (Artifact, []Fault) {
	data := newTemplateData(in)
	in.Memo.within(scope{s.files, in.Config, data.SeveralAuthorities, data.ErrorPages})
	if in.Memo != nil {
		in.Memo.maps.about(data.mapPage())
	}
	all := s.newParts(data, in.Memo)
	in.Memo.makeRoom(all[0].config)
	all.run()
	r := all.joined()
	in.Memo.noteSize(r.config)
	r.checkSecrets(r.config)
	a := r.artifact
	a.add(snapshots.ConfigFile, r.config)
	for _, list := range in.Model.NetworkLists {
		a.add(list.File(), listOf(list))
	}
	if list := in.Model.Countries; list != nil {
		a.add(policy.CountriesFile, in.Memo.countriesOf(list))
	}
	for _, page := range in.Model.ErrorPages {
		a.add(page.File(), pageOf(page))
	}
	for _, authority := range in.Model.Authorities {
		a.add(authority.File, authorityOf(authority))
	}
	if len(r.faults) > 0 {
		faults := make([]Fault, len(r.faults))
		for i, f := range r.faults {
			faults[i] = f.Fault
		}
		return Artifact{}, faults
	}
	slices.SortFunc(a.Files, func(a, b snapshots.File) int { return cmp.Compare(a.Path, b.Path) })
	a.Certificates = certificates(a.Files, in.Model.Certificates)
	return a, nil
}

// add adds an assembled file.
func (a *Artifact) add(path string, from *assembly) {
	a.Files = append(a.Files, snapshots.File{Path: path, Content: from.text})
	a.Origins[path] = from.origins
}

// rendering is a part of one call of Render.
type rendering struct {
	set       *Set
	data      TemplateData
	templates []int   // of the set, that are to be executed
	template  int     // that is being executed
	check     checker // of its values
	config    *assembly
	piece     *assembly // what is written for a backend, one after the other
	artifact  Artifact  // the other files
	memo      *Memo     // or nil
	bound     *template.Template
	sets      [][]routing.Origin
	known     map[routing.Origin]int // sets of one
	// secrets are the words for values of Secrets that templates asked for.
	secrets   map[string]bool
	secretsOf []string // of the backend that is being written
	faults    []faultOf
}

// run executes the templates.
func (r *rendering) run() {
	// The templates get the functions that belong to this rendering.
	r.bound = template.Must(r.set.parsed.Clone()) // fails only for html/template
	r.bound.Funcs(template.FuncMap{
		funcCheck: func(v any) (string, error) { return r.check(v) },
		funcEnter: r.enter,
		"secret":  r.secret,
		"answer":  answers(r.data.ErrorPages).write,
	})
	for _, i := range r.templates {
		r.template, r.check = i, checkOf(r.set.files[i].Name)
		if areaOf(r.set.files[i].Name) == section {
			r.sections(r.config, i)
		} else {
			r.files(&r.artifact, i)
		}
	}
}

// checkers are the checks of values, by file extension.
var checkers = map[string]checker{".cfg": checkConfig, ".map": checkMap, ".crtlist": checkList}

// checkOf returns the check of the values in a file of a template.
func checkOf(name string) checker {
	if check, ok := checkers[path.Ext(name)]; ok {
		return check
	}
	return checkText
}

// enter returns the mark for an element of a range.
func (r *rendering) enter(depth int, element any) string {
	return string(appendMark(nil, markEnter, depth, r.intern(originsOf(element))))
}

// intern gives a set of objects a number, or -1 to an empty one.
func (r *rendering) intern(origins []routing.Origin) int {
	if len(origins) == 0 {
		return -1
	}
	if i, ok := r.known[origins[0]]; ok && len(origins) == 1 {
		return i
	}
	r.sets = append(r.sets, origins)
	if len(origins) == 1 {
		r.known[origins[0]] = len(r.sets) - 1
	}
	return len(r.sets) - 1
}

func (r *rendering) newAssembly(blank bool) *assembly {
	return &assembly{files: r.set.files, blank: blank}
}

// sections executes a template of haproxy.cfg, once or for each of something.
func (r *rendering) sections(into *assembly, i int) {
	switch r.set.loops[i] {
	case eachBackend:
		r.backends(into, i, r.data.Backends)
		return
	case eachConnections:
		r.backends(into, i, r.data.connections)
		return
	}
	for _, data := range r.data.each(r.set.loops[i]) {
		marked := r.execute(i, data)
		if len(bytes.TrimSpace(marked)) > 0 {
			into.separate()
		}
		into.sets = r.sets
		into.section(marked, data.origins)
	}
}

// files executes a template that is a file of its own, or one for each listener or bind,
// whose names follow its own. An empty one is left out, unless it is a map or
// crt-list that every snapshot has.
func (r *rendering) files(a *Artifact, i int) {
	name := r.set.files[i].Name
	if r.set.loops[i] == once && areaOf(name) == mapFile {
		a.add(name, r.hostMap(i))
		return
	}
	loop := r.set.loops[i]
	if loop != eachListener && loop != eachBind {
		if file := r.file(i, r.data); !file.empty || !file.blank {
			a.add(name, file)
		}
		return
	}
	ext := path.Ext(name)
	for _, data := range r.data.each(loop) {
		if file := r.file(i, data); !file.empty {
			a.add(strings.TrimSuffix(name, ext)+"_"+cmp.Or(data.Listener.Name, data.Bind.File())+ext, file)
		}
	}
}

// file executes a template that is a file of its own. An empty map or
// crt-list gets a comment, for the Dataplane API refuses to store nothing.
func (r *rendering) file(i int, data TemplateData) *assembly {
	return r.fileOf(i, r.execute(i, data), data.origins)
}

// fileOf takes the marks out of what was written for objects.
func (r *rendering) fileOf(i int, marked []byte, origins []routing.Origin) *assembly {
	ext := path.Ext(r.set.files[i].Name)
	out := r.newAssembly(ext != ".map" && ext != ".crtlist")
	out.sets = r.sets
	out.section(marked, origins)
	out.empty = len(bytes.TrimSpace(out.text)) == 0
	if len(out.text) == 0 && !out.blank {
		out.text, out.origins = []byte("# empty\n"), []*LineOrigin{&noOrigin}
	}
	return out
}

// try returns what a template writes, with its marks, until it ends or fails.
func (r *rendering) try(i int, dot any) ([]byte, error) {
	var out bytes.Buffer
	err := r.bound.ExecuteTemplate(&out, r.set.files[i].Name, dot)
	return out.Bytes(), err
}

// certificateForm finds the certificates that a file names.
var certificateForm = regexp.MustCompile(`certs/[A-Za-z0-9._-]+\.pem`)

// certificates returns references to those certificates that haproxy.cfg or a
// crt-list names, by file. A name that no Secret stands for is left alone: Bind
// then leaves it as it is, and HAProxy says that there is no such file.
func certificates(files []snapshots.File, known []routing.Certificate) []snapshots.CertificateRef {
	named := map[string]bool{}
	for _, file := range files {
		if file.Path != snapshots.ConfigFile && !strings.HasSuffix(file.Path, ".crtlist") {
			continue
		}
		for _, name := range certificateForm.FindAll(file.Content, -1) {
			named[string(name)] = true
		}
	}
	var refs []snapshots.CertificateRef
	if named[Fallback] {
		refs = append(refs, snapshots.CertificateRef{File: Fallback})
	}
	for _, c := range known {
		if named[c.File] {
			refs = append(refs, snapshots.CertificateRef{File: c.File, Secret: c.Secret, Use: c.Use, Observed: c.Observed})
		}
	}
	slices.SortFunc(refs, func(a, b snapshots.CertificateRef) int { return cmp.Compare(a.File, b.File) })
	return refs
}

// parts are renderings of one input that do not depend on each other: that of
// haproxy.cfg, which comes first, and those of the files beside it.
type parts []*rendering

// fileParts is how many parts the files are divided into. A part costs what
// preparing the templates costs, and large maps take as long as haproxy.cfg.
const fileParts = 2

// newParts prepares the parts. Only the first one has templates for backends.
func (s *Set) newParts(data TemplateData, memo *Memo) parts {
	var sections []int
	var files [fileParts][]int
	for i, file := range s.files {
		switch areaOf(file.Name) {
		case section:
			sections = append(sections, i)
		case mapFile, otherFile:
			files[i%fileParts] = append(files[i%fileParts], i)
		}
	}
	out := parts{s.newRendering(data, memo, sections)}
	for _, templates := range files {
		out = append(out, s.newRendering(data, memo, templates))
	}
	return out
}

func (s *Set) newRendering(data TemplateData, memo *Memo, templates []int) *rendering {
	return &rendering{
		set: s, data: data, memo: memo, templates: templates, known: map[routing.Origin]int{}, secrets: map[string]bool{},
		config: &assembly{files: s.files}, artifact: Artifact{Origins: map[string][]*LineOrigin{}},
	}
}

// run executes the templates, of several parts at the same time: what comes of
// them does not depend on which is done first.
func (all parts) run() {
	var running sync.WaitGroup
	var panics process.Catcher
	for _, r := range all {
		running.Go(func() { panics.Do(r.run) })
	}
	running.Wait()
	panics.Rethrow()
}

// joined returns the first part with the files, faults and words of all.
func (all parts) joined() *rendering {
	first := all[0]
	for _, r := range all[1:] {
		first.artifact.Files = append(first.artifact.Files, r.artifact.Files...)
		maps.Copy(first.artifact.Origins, r.artifact.Origins)
		maps.Copy(first.secrets, r.secrets)
		first.faults = append(first.faults, r.faults...)
	}
	slices.SortStableFunc(first.faults, func(a, b faultOf) int { return cmp.Compare(a.template, b.template) })
	return first
}

// faultOf is a fault that was met when a template was executed.
type faultOf struct {
	template int
	Fault
}

// piece is what one execution of a template adds to haproxy.cfg.
type piece struct {
	blank   bool // nothing was written, not even a line that is taken out
	text    []byte
	origins []*LineOrigin
	secrets []string // words for values of Secrets that were asked for
}

// backendPage is the dot of a template for each backend, as far as most need:
// what it does not hold cannot have been read, so that what was written can be
// used again. A template that wants more is executed with a [TemplateData].
type backendPage struct {
	Config             config.Config
	SeveralAuthorities bool
	ErrorPages         []routing.ErrorPage
	Backend            routing.Backend

	objects func() *objectIndex
	asked   []annotation
}

// Annotation is [TemplateData.Annotation], and records the names that it is called with.
func (p *backendPage) Annotation(name string) string {
	value := p.objects().annotation(p.Backend.Origins, name)
	p.asked = append(p.asked, annotation{name, value})
	return value
}

// backends executes a template for each of some backends.
func (r *rendering) backends(into *assembly, i int, backends []routing.Backend) {
	page := &backendPage{
		Config: r.data.Config, SeveralAuthorities: r.data.SeveralAuthorities, ErrorPages: r.data.ErrorPages, objects: r.data.objects,
	}
	for _, b := range backends {
		page.Backend, page.asked = b, nil
		into.append(r.backend(i, page))
	}
}

// backend returns what a template writes for a backend.
func (r *rendering) backend(i int, page *backendPage) piece {
	b, key := page.Backend, memoKey{i, page.Backend.Name}
	answer := func(name string) string { return r.data.objects().annotation(b.Origins, name) }
	if found, ok := r.memo.find(key, b, answer); ok {
		for _, word := range found.secrets {
			r.secrets[word] = true
		}
		return found
	}
	r.secretsOf = nil
	marked, err := r.try(i, page)
	if err != nil { // perhaps since a field is missing
		whole := r.data
		whole.Backend, whole.origins = b, b.Origins
		return r.assembled(r.execute(i, whole), b.Origins)
	}
	out := r.assembled(marked, b.Origins)
	out.secrets = r.secretsOf
	r.memo.keep(key, &memory{backend: b, annotations: page.asked, wrote: out})
	return out
}

// assembled takes the marks out of what was written for objects.
func (r *rendering) assembled(marked []byte, origins []routing.Origin) piece {
	if r.piece == nil {
		r.piece = r.newAssembly(false)
	}
	a := r.piece
	a.sets, a.text, a.origins, a.file, a.line = r.sets, a.text[:0], a.origins[:0], 0, 0
	a.section(marked, origins)
	// There is one for each backend, and the Memo keeps them: they are no longer than they need to be.
	return piece{blank: len(bytes.TrimSpace(marked)) == 0, text: bytes.Clone(a.text), origins: slices.Clone(a.origins)}
}

// append adds a piece.
func (a *assembly) append(p piece) {
	if !p.blank {
		a.separate()
	}
	a.text = append(a.text, p.text...)
	a.origins = append(a.origins, p.origins...)
}
