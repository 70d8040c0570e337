package render

import (
	"reflect"
	"sync"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/decision"
)

// Memo remembers what templates wrote for backends, and the maps, for the next rendering. The output of
// a template is used again only if everything that it can read is equal, positions included: so nothing
// in the Memo can be out of date.
//
// It keeps what was used since [Memo.Begin], and between the two calls before. It is for one goroutine
// at a time.
type Memo struct {
	scope         scope
	young, old    map[memoKey]*memory
	maps          mapMemo
	written, used int
	// bytes and lines are those of the last haproxy.cfg.
	bytes, lines int

	countries     *routing.CountryList
	countriesFile *assembly // of it
}

// scope is everything that all templates for backends can read. When it changes, the Memo forgets
// everything.
type scope struct {
	files   Templates
	config  config.Config
	several bool // authorities
	pages   []routing.ErrorPage
}

// memoKey is the key of a memory. A memory is compared further before it is used.
type memoKey struct {
	file int // in the scope's
	name string
}

// memory is what a template wrote for a backend, and what it read.
type memory struct {
	backend     routing.Backend
	annotations []annotation
	wrote       piece
}

// annotation is an annotation that a template asked for, and the answer.
type annotation struct{ name, value string }

// NewMemo returns a Memo that remembers nothing.
func NewMemo() *Memo { return &Memo{} }

// Begin says that a compile begins, in which there may be several renderings. The Memo forgets what
// neither this compile nor the last one uses.
func (m *Memo) Begin() {
	if m != nil {
		m.young, m.old = make(map[memoKey]*memory, len(m.young)), m.young
	}
}

// makeRoom prepares for a haproxy.cfg that is about as long as the last one.
func (m *Memo) makeRoom(a *assembly) {
	if m != nil {
		a.text, a.origins = make([]byte, 0, m.bytes+m.bytes/16), make([]*LineOrigin, 0, m.lines+m.lines/16)
	}
}

func (m *Memo) noteSize(a *assembly) {
	if m != nil {
		m.bytes, m.lines = len(a.text), len(a.origins)
	}
}

// Counts returns how many pieces templates wrote since the Memo was made, and how many were used again.
func (m *Memo) Counts() (written, used int) { return m.written, m.used }

// Maps returns how many maps were written since the Memo was made.
func (m *Memo) Maps() int {
	m.maps.mu.Lock()
	defer m.maps.mu.Unlock()
	return m.maps.made
}

// within forgets everything if the scope is another one.
func (m *Memo) within(s scope) {
	if m != nil && (m.young == nil || !reflect.DeepEqual(m.scope, s)) {
		m.scope, m.young, m.old = s, map[memoKey]*memory{}, nil
		m.maps.wrote = nil
	}
}

// find returns what was written for an equal backend whose objects have the same annotations, among
// those that were asked for.
func (m *Memo) find(key memoKey, b routing.Backend, answer func(name string) string) (piece, bool) {
	if m == nil {
		return piece{}, false
	}
	found, ok := m.young[key]
	if !ok {
		found, ok = m.old[key]
	}
	if !ok || !reflect.DeepEqual(found.backend, b) {
		return piece{}, false
	}
	for _, a := range found.annotations {
		if answer(a.name) != a.value {
			return piece{}, false
		}
	}
	m.young[key] = found
	m.used++
	return found.wrote, true
}

func (m *Memo) keep(key memoKey, x *memory) {
	if m != nil {
		m.young[key] = x
		m.written++
	}
}

// mapMemo remembers the maps that were written for hosts. Several goroutines may
// use it.
type mapMemo struct {
	mu    sync.Mutex
	of    mapPage           // what they can have read
	wrote map[int]*assembly // by template, in the scope of the Memo
	made  int
}

// mapPage is the dot of a template for a map, with what most templates need: see [backendPage].
type mapPage struct {
	Hosts []routing.Host
	Held  []routing.Held
	Binds []routing.Bind

	config config.Config // of the scope
	splits []routing.Split
}

func (d TemplateData) mapPage() mapPage {
	return mapPage{Hosts: d.Hosts, Held: d.Held, Binds: d.Binds, config: d.Config, splits: d.splits}
}

// whole is what the methods below need of a TemplateData.
func (p *mapPage) whole() TemplateData {
	return TemplateData{Config: p.config, Hosts: p.Hosts, Held: p.Held, Binds: p.Binds, splits: p.splits}
}

// Decisions is [TemplateData.Decisions].
func (p *mapPage) Decisions() decision.Tables { return p.whole().Decisions() }

// PathForm is [TemplateData.PathForm].
func (p *mapPage) PathForm() routing.PathForm { return p.whole().PathForm() }

// HostsOfOtherForms is [TemplateData.HostsOfOtherForms].
func (p *mapPage) HostsOfOtherForms() []routing.Host { return p.whole().HostsOfOtherForms() }

// HostsOfListeners is [TemplateData.HostsOfListeners].
func (p *mapPage) HostsOfListeners() []routing.Host { return p.whole().HostsOfListeners() }

// Guards is [TemplateData.Guards].
func (p *mapPage) Guards() []routing.GuardEntry { return p.whole().Guards() }

// about sets what maps are asked for from now on. It forgets maps of anything else. It keeps the given page in place of an
// equal one, so that the hosts of the last rendering are not held beside those of this one.
func (m *mapMemo) about(page mapPage) {
	if m.wrote == nil || !reflect.DeepEqual(m.of.Hosts, page.Hosts) || !reflect.DeepEqual(m.of.Held, page.Held) ||
		!reflect.DeepEqual(m.of.Binds, page.Binds) || !reflect.DeepEqual(m.of.splits, page.splits) {
		m.wrote = map[int]*assembly{}
	}
	m.of = page
}

// count counts a map that is written.
func (m *mapMemo) count() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made++
}

func (m *mapMemo) find(template int) *assembly {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wrote[template]
}

func (m *mapMemo) keep(template int, file *assembly) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrote[template] = file
}

// hostMap returns the map that a template writes, which must not be changed.
func (r *rendering) hostMap(i int) *assembly {
	if r.memo != nil {
		if found := r.memo.maps.find(i); found != nil {
			return found
		}
		r.memo.maps.count()
	}
	r.secretsOf = nil
	file := r.written(i)
	if file == nil {
		marked, err := r.try(i, new(r.data.mapPage()))
		if err != nil { // perhaps since a field is missing
			return r.file(i, r.data)
		}
		file = r.fileOf(i, marked, nil)
	}
	if r.memo != nil && len(r.secretsOf) == 0 {
		r.memo.maps.keep(i, file)
	}
	return file
}

// countriesOf returns the file of a list of countries, which must not be changed. The file may have
// hundreds of thousands of lines, and is made again only when the list changes.
func (m *Memo) countriesOf(list *routing.CountryList) *assembly {
	if m == nil {
		return countriesFile(list)
	}
	if m.countries != list {
		m.countries, m.countriesFile = list, countriesFile(list)
	}
	return m.countriesFile
}
