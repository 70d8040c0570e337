package routetable

import (
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Certificate is one that clients are shown.
type Certificate struct {
	File     string
	Secret   snapshots.SecretName // zero for one that is made up where no other is
	NotAfter time.Time            // as far as the compiler saw it
	Default  bool                 // no line names the host
}

// certificateList is a crt-list: which file is for which name.
type certificateList struct {
	names map[string]*Certificate // also "*.example.com"
	first *Certificate
}

// certificates reads the crt-lists.
func (r *reader) certificates(refs []snapshots.CertificateRef) {
	r.byList = map[string]*certificateList{}
	known := map[string]snapshots.CertificateRef{}
	for _, ref := range refs {
		known[ref.File] = ref
	}
	one := func(file string, isDefault bool) *Certificate {
		c := &Certificate{File: file, Secret: known[file].Secret, Default: isDefault}
		if seen := known[file].Observed; seen != nil {
			c.NotAfter = seen.NotAfter
		}
		return c
	}
	for _, l := range r.listeners {
		for _, path := range l.lists {
			if r.byList[path] != nil {
				continue
			}
			list := &certificateList{names: map[string]*Certificate{}}
			files := map[string]*Certificate{}
			for _, line := range lines(r.files[path]) {
				file, names, _ := strings.Cut(line, " ")
				if list.first == nil {
					list.first = one(file, true)
				}
				if names = strings.TrimSpace(names); strings.HasPrefix(names, "[") {
					_, names, _ = strings.Cut(names, "]")
				}
				for name := range strings.FieldsSeq(names) {
					if files[file] == nil {
						files[file] = one(file, false)
					}
					if name[0] != '!' && list.names[name] == nil {
						list.names[name] = files[file]
					}
				}
			}
			r.byList[path] = list
		}
	}
}

// certificateFor returns what clients are shown for the host of a route.
func (r *reader) certificateFor(route Route) *Certificate {
	if len(route.Listener.lists) == 0 {
		return nil
	}
	list := r.byList[route.Listener.lists[0]]
	if c := list.names[route.Host]; c != nil {
		return c
	}
	if _, parent, ok := strings.Cut(route.Host, "."); ok {
		if c := list.names["*."+parent]; c != nil {
			return c
		}
	}
	return list.first
}
