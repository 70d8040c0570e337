package binding

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// Objects are the live objects that were read.
type Objects struct {
	bind.Live
	Slices   int           // how many EndpointSlices there are
	problems []string      // objects that could not be used
	faulty   []SecretFault // parts of Secrets of a cluster that cannot be used
	broken   map[snapshots.SecretName]bool
	// faults are the faults of values whose use only a snapshot tells.
	faults   map[bind.Need][]error
	secrets  map[snapshots.SecretName]bool
	evidence evidence
	unsure   bool // something could not be parsed, and may hold the objects that seem absent
	dropped  bool // the reader has an object without its content, and it is not among those that were decoded before
}

// WatchObjects reads the directory and sends its objects: at once, and whenever changed receives a value. It returns
// when ctx is done.
func WatchObjects(ctx context.Context, dir string, changed <-chan struct{}, send func(Objects, error)) {
	f := newFolder(dir)
	for {
		send(f.objects())
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// folder is a directory that is read again and again. The reader keeps no content of what was decoded: the content of an
// object takes ten times the memory of its text, and a directory may have 10,000.
type folder struct {
	dir    string
	reader manifests.Reader
	read   bool // it was read before
	known  decoded
}

func newFolder(dir string) *folder {
	f := &folder{dir: dir, known: decoded{}}
	f.reader.Parsed = f.parsed
	return f
}

// objects returns the objects of the directory. An object does not count while another file has one of the same name, and
// is not known any more when it counts again. Then everything is read anew: without its content it would look empty.
func (f *folder) objects() (Objects, error) {
	set, err := f.reader.Read(f.dir)
	if err != nil {
		return Objects{}, fmt.Errorf("read live objects: %w", err)
	}
	objects, known := translate(set, f.known)
	if objects.dropped && f.read {
		f.reader, f.known, f.read = manifests.Reader{Parsed: f.parsed}, decoded{}, false
		return f.objects()
	}
	f.known, f.read = known, true
	return objects, nil
}

// parsed decodes an object as soon as it was parsed. If that fails, translate tries again, and says why.
func (f *folder) parsed(o manifests.Object) {
	var v any
	switch o.GVK() {
	case endpointSlices:
		v = decodedOr[discoveryv1.EndpointSlice](o)
	case secrets:
		v = decodedOr[corev1.Secret](o)
	}
	if v == nil {
		return
	}
	f.known[o.Identity()] = v
}

// decodedOr decodes an object, which keeps no content then. It returns nil if that fails.
func decodedOr[T any](o manifests.Object) any {
	var v T
	if m, ok := any(&v).(metav1.Object); len(o.Decode(&v)) > 0 || ok && m.GetName() != o.Name {
		return nil
	}
	v = namespaced(v, o)
	o.Forget()
	return &v
}

// The kinds that are read.
var (
	endpointSlices = manifests.GVK{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
	secrets        = manifests.GVK{APIVersion: "v1", Kind: "Secret"}
)

// decoded are the objects that were decoded before, by their identity. A directory may have thousands, of which few
// change at a time.
type decoded map[any]any

// translate reads the EndpointSlices and Secrets in a set of objects, of which some were decoded before. Of those that it
// decodes, the set keeps only the names.
func translate(set manifests.Set, known decoded) (Objects, decoded) {
	var sliceList []discoveryv1.EndpointSlice
	var secretList []corev1.Secret
	now := decoded{}
	out := Objects{broken: map[snapshots.SecretName]bool{}, secrets: map[snapshots.SecretName]bool{}, unsure: len(set.Problems) > 0}
	for _, p := range set.Problems {
		out.problems = append(out.problems, fmt.Sprintf("%s: %s", p.Position, p.Message))
	}
	for _, o := range set.Objects {
		switch o.GVK() {
		case endpointSlices:
			decodeInto(&out, o, &sliceList, known, now)
		case secrets:
			decodeInto(&out, o, &secretList, known, now)
		}
	}
	for _, s := range secretList {
		out.secrets[snapshots.SecretName{Namespace: s.Namespace, Name: s.Name}] = true
	}
	out.Slices = len(sliceList)
	sliced := map[types.NamespacedName]bool{}
	for _, s := range sliceList {
		sliced[types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}] = true
	}
	out.evidence = newEvidence(set, sliced)
	out.Endpoints = live.Endpoints(sliceList)
	certificates, problems := live.Certificates(secretList)
	out.Certificates = certificates
	more := live.GatherSecrets(secretList)
	out.Authorities, out.Users, out.Values, out.faults = more.Authorities, more.Users, more.Values, more.Problems
	for _, p := range problems {
		out.broken[p.Secret] = true
		out.problems = append(out.problems, p.Error())
	}
	return out, now
}

// decodeInto appends an object to a list. If the object breaks its schema, decodeInto notes a problem, and the previous
// content stays in use.
func decodeInto[T any](out *Objects, o manifests.Object, list *[]T, known, now decoded) {
	if before, ok := known[o.Identity()].(*T); ok {
		now[o.Identity()] = before
		*list = append(*list, *before)
		return
	}
	var v T
	if faults := o.Decode(&v); len(faults) > 0 {
		out.unsure = true
		out.problems = append(out.problems, fmt.Sprintf("%s: %s: %s", faults[0].Position, o, faults[0].Error()))
		return
	}
	if m, ok := any(&v).(metav1.Object); ok && m.GetName() != o.Name {
		out.dropped, out.unsure = true, true
		return
	}
	v = namespaced(v, o)
	o.Forget()
	now[o.Identity()] = &v
	*list = append(*list, v)
}

// namespaced sets the namespace of an object if its manifest left it out.
func namespaced[T any](v T, o manifests.Object) T {
	switch v := any(&v).(type) {
	case *discoveryv1.EndpointSlice:
		v.Namespace = o.Namespace
	case *corev1.Secret:
		v.Namespace = o.Namespace
	}
	return v
}

// mergeLive returns the live data to use after a read. It leaves the endpoints as they were, since lossGuard decides
// about those. If a Secret is broken now, its last usable certificate stays in use. Its authorities, users and values
// do not stay, since the present content says who may pass. Absent data stays in three cases: something could not be
// parsed and may hold the data, all EndpointSlices are absent too, or endpoints of the namespace are kept.
func mergeLive(old, read Objects, doubted func(namespace string) bool) Objects {
	nothing := read.Slices == 0 && old.Slices > 0
	doubt := func(name snapshots.SecretName) bool {
		return !read.secrets[name] && (read.unsure || nothing || doubted(name.Namespace))
	}
	if read.Slices == 0 {
		read.Slices = old.Slices
	}
	read.Endpoints = old.Endpoints
	read.Certificates = withAbsent(read.Certificates, old.Certificates, func(name snapshots.SecretName) bool {
		return read.broken[name] || read.unsure || doubt(name)
	})
	read.Values = withAbsent(read.Values, old.Values, func(key bind.SecretKey) bool { return doubt(key.Secret) })
	read.Authorities = withAbsent(read.Authorities, old.Authorities, doubt)
	read.Users = withAbsent(read.Users, old.Users, doubt)
	return read
}

// withAbsent returns what was read, together with those previous entries that are absent now and should be kept.
func withAbsent[K comparable, V any](read, old map[K]V, keep func(K) bool) map[K]V {
	out := maps.Clone(read)
	for key, value := range old {
		if _, there := read[key]; !there && keep(key) {
			if out == nil {
				out = map[K]V{}
			}
			out[key] = value
		}
	}
	return out
}
