package render

import (
	"reflect"
	"sync"

	"github.com/hapsnap/hapsnap/compiler/routing"
)

// mapMemo remembers the maps that were written for hosts. Several goroutines may
// use it.
type mapMemo struct {
	mu    sync.Mutex
	hosts []routing.Host
	held  []routing.Held
	wrote map[int]*assembly // by template, in the scope of the Memo
}

// mapPage is the dot of a template for a map, as far as most need: see
// [backendPage].
type mapPage struct {
	Hosts []routing.Host
	Held  []routing.Held
}

// about says whose maps are asked for from now on. Of other hosts nothing is kept.
func (m *mapMemo) about(hosts []routing.Host, held []routing.Held) {
	if m.wrote == nil || !reflect.DeepEqual(m.hosts, hosts) || !reflect.DeepEqual(m.held, held) {
		m.hosts, m.held, m.wrote = hosts, held, map[int]*assembly{}
	}
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
	}
	r.secretsOf = nil
	marked, err := r.try(i, &mapPage{r.page.Hosts, r.page.Held})
	if err != nil { // perhaps for want of a field
		return r.file(i, r.page)
	}
	file := r.fileOf(i, marked, nil)
	if r.memo != nil && len(r.secretsOf) == 0 {
		r.memo.maps.keep(i, file)
	}
	return file
}
