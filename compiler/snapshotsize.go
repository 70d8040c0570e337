package compiler

import (
	"bytes"
	"cmp"
	"compress/flate"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/fair"
	"github.com/hapsnap/hapsnap/snapshots"
)

// A snapshot has a largest size, and one that is larger is published to no store. A few words of an annotation may become
// many lines, so that one namespace could stop everybody whose limits count what tenants write. So the lines of a namespace
// count, too, and if there is no room for all, those namespaces lose what does not fit that have most.

const (
	// roomForConfig is how many bytes haproxy.cfg may have. The pusher adds the servers, and then reads it from an instance,
	// whose answers may have 64 MiB.
	roomForConfig = snapshots.MaxFile / 4 * 3
	// roomCompressed is how many bytes a snapshot may have when it is compressed: a store in ConfigMaps takes a little more.
	roomCompressed = 24 << 20
)

// room is what there is too little of.
type room struct {
	path string // of the only file that counts, "" for all
	most int
	// compressed says that bytes count as those that they become when they are compressed.
	compressed bool
	what, hint string
}

// tooLittle returns the rooms that a snapshot with these files does not fit into, which are none as a rule.
func tooLittle(a render.Artifact, most int) (out []room) {
	all := 0
	for _, f := range a.Files {
		all += len(f.Content)
		limit := snapshots.MaxFile
		if f.Path == snapshots.ConfigFile {
			limit = roomForConfig
		}
		if len(f.Content) > limit {
			out = append(out, room{path: f.Path, most: limit, what: "bytes in " + f.Path})
		}
	}
	if most == 0 {
		most = snapshots.MaxSnapshot
	}
	if all > most {
		out = append(out, room{most: most, what: "bytes in the files of the snapshot", hint: "; or have limits.snapshotBytes of the configuration raised"})
	}
	if all > roomCompressed {
		size := compressedSize(func(w io.Writer) {
			for _, f := range a.Files {
				_, _ = w.Write(f.Content)
			}
		})
		if size > roomCompressed {
			out = append(out, room{most: roomCompressed, compressed: true, what: "bytes in the compressed snapshot"})
		}
	}
	return out
}

// compressedSize returns how many bytes a text has when it is compressed quickly.
func compressedSize(write func(io.Writer)) int {
	var n counter
	w, _ := flate.NewWriter(&n, flate.BestSpeed) // the level is one that there is
	write(w)
	_ = w.Close()
	return int(n)
}

// counter counts the bytes that are written to it.
type counter int

func (n *counter) Write(p []byte) (int, error) {
	*n += counter(len(p))
	return len(p), nil
}

// tooLarge returns a fault for each object whose lines do not fit into a snapshot. In the namespaces that have most, the
// oldest objects are kept, as far as they fit.
func tooLarge(in Input, a render.Artifact) (out []render.Fault) {
	rooms := tooLittle(a, in.Config.Limits.SnapshotBytes)
	if len(rooms) == 0 {
		return nil // nearly always
	}
	ages, left := born(in.Objects), map[diag.Object]bool{}
	for _, r := range rooms {
		users, all, origins := r.users(a)
		share := r.share(users, all)
		used := maps.Clone(all)
		for object, size := range users {
			used[object.Namespace] -= size
		}
		oldest := slices.SortedFunc(maps.Keys(users), func(a, b diag.Object) int {
			return cmp.Or(ages[a].Compare(ages[b]), a.Compare(b))
		})
		for _, object := range oldest {
			size := used[object.Namespace] + users[object]
			if size <= share {
				used[object.Namespace] = size
				continue
			}
			if left[object] {
				continue
			}
			left[object] = true
			out = append(out, render.Fault{
				Message: fmt.Sprintf("is left out: with it namespace %s would have %d %s, and there is room for %d", object.Namespace, size, r.what, share),
				Hint:    "have fewer options, or fewer backends with them; the oldest objects of a namespace are kept, as far as they fit" + r.hint,
				Origin:  render.LineOrigin{Objects: []routing.Origin{origins[object]}},
			})
		}
	}
	return out
}

// users returns how many bytes the objects have that can be left out, with their origins, and how many each namespace has,
// of which "" is none.
func (r room) users(a render.Artifact) (users map[diag.Object]int, all map[string]int, origins map[diag.Object]routing.Origin) {
	users, all, origins = map[diag.Object]int{}, map[string]int{}, map[diag.Object]routing.Origin{}
	texts := map[string][]byte{} // of namespaces
	for _, f := range a.Files {
		if r.path != "" && f.Path != r.path {
			continue
		}
		number := 0
		for line := range bytes.Lines(f.Content) {
			number++
			o := payerOf(a.Origin(f.Path, number).Objects)
			namespace := o.Object.Namespace // "" is the templates'
			all[namespace] += len(line)
			if r.compressed {
				texts[namespace] = append(texts[namespace], line...)
			}
			if o.Routes() || o.Object.Kind == "Service" {
				users[o.Object] += len(line)
				origins[o.Object] = o
			}
		}
	}
	for namespace, text := range texts {
		all[namespace] = compressedSize(func(w io.Writer) { _, _ = w.Write(text) })
	}
	if r.compressed {
		for object, size := range users {
			users[object] = size * all[object.Namespace] / len(texts[object.Namespace])
		}
	}
	return users, all, origins
}

// share returns how many bytes a namespace may have. What namespaces without such objects have, such as lists of the
// administrator, and what templates write for nobody, takes no more than half of the room.
func (r room) share(users map[diag.Object]int, all map[string]int) int {
	can := map[string]bool{}
	for object := range users {
		can[object.Namespace] = true
	}
	most, sizes := r.most, []int(nil)
	for namespace, size := range all {
		if can[namespace] {
			sizes = append(sizes, size)
		} else {
			most -= size
		}
	}
	return fair.Allowance(sizes, max(most, r.most/2))
}

// payerOf returns the origin, of several, whose namespace has what they wrote: the route, not the Gateway that it is attached to,
// nor the parameters of its class.
func payerOf(origins []routing.Origin) routing.Origin {
	for _, o := range origins {
		if o.Routes() {
			return o
		}
	}
	if len(origins) == 0 {
		return routing.Origin{}
	}
	return origins[0]
}
