// Package bind joins a snapshot with live data into what one HAProxy instance gets.
//
// [Bind] takes a snapshot and [Inputs] (live data, slots, and the directories of the
// instance) and returns a [Bound]: the text of haproxy.cfg, the files beside it, and the
// servers that the running worker should have. It is a pure function: the same inputs
// give the same bytes.
//
// The parts, in the order in which they are used:
//
//   - [Directives] and [UsersDirectives] read the comments of haproxy.cfg that say where
//     servers and users belong, and [Needs] which Secrets a snapshot takes something from;
//   - [AssignSlots] gives each endpoint a slot, which it keeps for as long as it lives;
//   - [Servers] gives the slots their names and weights;
//   - [Bind] writes all of it; a [Binder] does the same, and remembers which certificates
//     HAProxy can load;
//   - [Classify] says what it takes to bring a worker from one Bound to another. Two of
//     one [Bound].Shape differ in what can be changed at run time.
//
// Packages pem and htpasswd read what is in Secrets. They know nothing of snapshots.
package bind

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind/pem"
)

// Layout is where the files of a snapshot are on an instance: the absolute
// directories of its Dataplane API.
type Layout struct {
	Maps         string // maps_dir
	Certificates string // ssl_certs_dir
	General      string // general_storage_dir
}

// FileKind is the storage of the Dataplane API that keeps a bound file.
type FileKind string

// The kinds of bound files. A crt-list is a general file: creating one there
// does not reload.
const (
	MapFile         FileKind = "maps"
	CertificateFile FileKind = "certificates"
	GeneralFile     FileKind = "general"
)

// File is one file of an instance. The name of a map or general file carries a hash of its
// content, so that an upload disturbs nothing that runs. A certificate keeps its name and
// is rotated in place.
type File struct {
	Kind    FileKind
	Name    string // base name, unchanged by the API's sanitising
	Path    string // absolute, as haproxy.cfg names it
	Source  string // the path in the snapshot
	Content []byte
	// Held is set for a certificate that the pusher cannot read, see [Live.Unread]. Its content is for an
	// instance without such a file; an instance that has one keeps it.
	Held bool
}

// Inputs is what a snapshot is bound to: the live data, the fleet's slots and
// the directories of an instance.
type Inputs struct {
	Live   Live
	Slots  Slots // see AssignSlots; endpoints of Live are not looked at
	Layout Layout
}

// Bound is what one instance gets: a snapshot joined with live data.
type Bound struct {
	ID snapshots.ID
	// Node is the value of `node` in the global section. It names the snapshot and the
	// shape, so that the running worker can say what it runs.
	Node    string
	Config  []byte
	Files   []File   // sorted by path
	Servers []Server // in the order of the configuration
	// Maps are the maps whose entries can be changed at run time, in the order in which the
	// configuration first names them. Entries is a digest of the entries.
	Maps    []Map
	Entries snapshots.Digest
	// Lines gives, for each line of Config, the line of the snapshot's
	// haproxy.cfg that it comes from; 0 for the lines that Bind adds.
	Lines []int
	// Shape is a digest of everything that needs a reload to change. Two bound
	// configurations of one shape differ only in what can be changed at run time:
	// addresses, weights and states of servers, entries of maps, and contents of
	// certificates.
	Shape snapshots.Digest
	// Missing lists, sorted, what the snapshot takes from Secrets and the live data does not have, or not in a
	// usable form. [Bind] documents what is used instead.
	Missing []Need
	// Absent are the paths, on the instance, of certificates whose version is not in the
	// live data, sorted. They are not among the files: an instance that runs the snapshot
	// has the right file already, and no other instance can get it.
	Absent []string

	secrets []string // that Config holds
}

// endMarker starts the last line of a bound configuration, so that a truncated configuration is recognised.
const endMarker = "# hapsnap end "

// Bind joins a snapshot with live data for one instance. It is a pure function. Its time is
// linear in the size of the snapshot and of the binding.
//
// Each directive (see [Directive]) becomes a comment for people and one server line for
// each of its slots. A spare slot is disabled. A drained slot is disabled too, since
// HAProxy's configuration cannot say "drain", and since a weight of 0 could not be raised
// at run time with a static balance algorithm. A disabled server gets no new sessions. The
// caller that loads the configuration then sets its state to drain ([Server.State]), so
// that sessions that stick to the endpoint may finish. Weights are written if a backend has
// several directives, and are distributed over the ready endpoints of each.
//
// Content of Secrets is joined by the certificate references of the manifest, by the
// directives for users (see [UsersDirective]), and where a word of haproxy.cfg refers to a
// value (see [SecretWord]). What is missing is listed in [Bound.Missing] and never opens
// what it protects:
//
//   - A line of a crt-list whose certificate is missing is left out, so that its hosts get the fallback
//     certificate. If it asks for client certificates it stays, with the fallback certificate, since
//     the lines of other hosts do not ask.
//   - An expired certificate in a crt-list is replaced by the fallback certificate, without a reload.
//     If a host has another certificate, the line is left out.
//   - Where haproxy.cfg names the certificate, and for authorities everywhere, the fallback certificate
//     is used: it has signed no other certificate.
//   - A certificate is absent, not missing, if the live data has another version than the reference
//     names, see [Bound.Absent]. The shape is the one with that certificate.
//   - A missing list of users is empty.
//   - A missing value is replaced by one that nobody knows.
//
// The relative paths of the snapshot's files become absolute in haproxy.cfg and in
// crt-lists, `node` is set, and the last line marks the end.
//
// It remembers nothing; use a [Binder] to bind more than once.
func Bind(s snapshots.Snapshot, in Inputs) (Bound, error) { return new(Binder).Bind(s, in) }

func (b *Binder) bind(s snapshots.Snapshot, in Inputs) (Bound, error) {
	config, ok := s.File(snapshots.ConfigFile)
	if !ok {
		return Bound{}, fmt.Errorf("there is no %s", snapshots.ConfigFile)
	}
	// The directories are absolute, and consist of bytes that need no quoting in haproxy.cfg.
	for _, dir := range []string{in.Layout.Maps, in.Layout.Certificates, in.Layout.General} {
		if !strings.HasPrefix(dir, "/") || !isName(strings.ReplaceAll(dir, "/", ""), "+@=~") {
			return Bound{}, fmt.Errorf("directory %q of the instance is not absolute and plain", dir)
		}
	}
	found, err := b.directives.of(config)
	if err != nil {
		return Bound{}, err
	}
	servers, err := Servers(found.servers, in.Slots)
	if err != nil {
		return Bound{}, err
	}
	files, err := b.bindFiles(s, in.Live, in.Layout)
	if err != nil {
		return Bound{}, err
	}
	text := newTextBinder(config, files, newSecretBinder(config, in.Live), found, in.Slots, servers)
	text.maps = changeableMaps(found.lookedUp, files.files)
	if err := text.write(config); err != nil {
		return Bound{}, err
	}
	missing := slices.AppendSeq(slices.Collect(maps.Values(files.missing)), maps.Keys(text.secrets.missing))
	missing = append(missing, files.fallen...)
	slices.SortFunc(missing, Need.Compare)
	bound := Bound{ID: s.ID(), Servers: servers, Maps: text.maps, Entries: entriesDigest(text.maps), Missing: slices.Compact(missing), secrets: text.secrets.written()}
	if bound.Files, err = files.sorted(); err != nil {
		return Bound{}, err
	}
	bound.Absent = slices.Sorted(slices.Values(files.absent))
	bound.Shape = shapeOf(text.shape, bound.Files, bound.Maps, bound.Absent)
	bound.Node = bound.ID.String() + "_" + bound.Shape.Short()[:shapeDigits]
	bound.Config, bound.Lines = text.finish(bound.Node)
	return bound, nil
}

// shapeOf completes the digest of the text with the paths of the files. The paths of maps
// and general files contain their contents' hashes, except for maps whose entries can be
// changed: of those, the odd lines count. A file that is absent has the path that it would have.
func shapeOf(text hash.Hash, files []File, changeable []Map, absent []string) snapshots.Digest {
	paths := slices.Clone(absent)
	for _, f := range files {
		if i := slices.IndexFunc(changeable, func(m Map) bool { return m.Path == f.Path }); i >= 0 {
			paths = append(paths, changeable[i].shapePath())
		} else {
			paths = append(paths, f.Path)
		}
	}
	slices.Sort(paths)
	for _, path := range paths {
		fmt.Fprintf(text, "\x00file %s\n", path)
	}
	for _, m := range changeable {
		for _, line := range m.Odd {
			fmt.Fprintf(text, "\x00odd %s %q\n", m.Source, line)
		}
	}
	return snapshots.DigestOf(text)
}

// shapeDigits is how many hexadecimal digits of the shape a node carries.
const shapeDigits = 8

// ParseNode reads the `node` of a running worker: the snapshot that it runs, and the first
// 8 hexadecimal digits of the shape ([Bound].Shape) that it was loaded with. An error means
// that the worker does not run a snapshot.
func ParseNode(node string) (id snapshots.ID, shape string, err error) {
	name, shape, ok := strings.Cut(node, "_")
	id, err = snapshots.ParseID(name)
	if !ok || err != nil || len(shape) != shapeDigits || strings.Trim(shape, "0123456789abcdef") != "" {
		return snapshots.ID{}, "", fmt.Errorf("node %q does not name a snapshot", node)
	}
	return id, shape, nil
}

// SameNode reports whether two nodes name the same content in the same shape,
// under whatever revisions: a worker of one need not be reloaded to run the other.
func SameNode(a, b string) bool {
	x, shapeX, errX := ParseNode(a)
	y, shapeY, errY := ParseNode(b)
	if errX != nil || errY != nil {
		return a == b
	}
	return x.Short == y.Short && shapeX == shapeY
}

// Redact removes the values and hashes of Secrets in the bound configuration from a text,
// since HAProxy quotes words of lines that it refuses.
func (b Bound) Redact(text string) string {
	for _, secret := range b.secrets {
		text = strings.ReplaceAll(text, secret, "(hidden)")
	}
	return text
}

// Binder binds snapshots, and remembers which certificates HAProxy can load, and the
// directives and maps of the last haproxy.cfg. Reading a private key takes a millisecond, and [Bind]
// looks at every certificate each time.
//
// What it remembers follows from the PEM data and the text alone, so it is never out of date, and every Binder
// gives the same bytes. It keeps hashes of PEM data, not the data. The zero value is ready to use. It is safe
// for concurrent use, and must not be copied. A haproxy.cfg that it was given must not be changed.
type Binder struct {
	pairs, authorities verdicts
	directives         lastDirectives
}

// lastDirectives remembers the directives of one haproxy.cfg, and which maps it looks up.
type lastDirectives struct {
	mu     sync.Mutex
	config []byte
	found  directives
	parsed int // how many were read
}

func (l *lastDirectives) of(config []byte) (directives, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.config != nil && bytes.Equal(l.config, config) {
		return l.found, nil
	}
	found, err := parseDirectives(config)
	found.lookedUp = lookedUp(config)
	l.parsed++
	if err == nil {
		l.config, l.found = config, found
	}
	return found, err
}

// Bind is [Bind] with a memory.
func (b *Binder) Bind(s snapshots.Snapshot, in Inputs) (Bound, error) {
	if !s.Numbered() {
		return Bound{}, fmt.Errorf("bind: the snapshot has no number")
	}
	bound, err := b.bind(s, in)
	if err != nil {
		return Bound{}, fmt.Errorf("bind %s: %w", s.ID(), err)
	}
	return bound, nil
}

// Once returns a function that binds the snapshot when it is first called, and returns the same each time, for several
// jobs. The caller may know a list of its servers already: if it is equal, the bound snapshot has that list.
func (b *Binder) Once(s snapshots.Snapshot, in Inputs, servers []Server) func() (Bound, error) {
	return sync.OnceValues(func() (Bound, error) {
		bound, err := b.Bind(s, in)
		if len(servers) > 0 && slices.Equal(bound.Servers, servers) {
			bound.Servers = servers
		}
		return bound, err
	})
}

// certificateKind says which storage takes the PEM, or why it cannot be served. The
// Dataplane API's storage for certificates refuses Ed25519 keys, so those are general
// files: their name has a hash, and a new one needs a reload.
func (b *Binder) certificateKind(data []byte) (FileKind, error) {
	if len(data) == 0 {
		return "", pem.ErrNoCertificate
	}
	v := b.pairs.of(data, judgeKeyPair)
	if v.err == nil && !v.storable {
		return GeneralFile, nil
	}
	return CertificateFile, v.err
}

// checkAuthorities says why PEM data is not in the form that [pem.ParseAuthorities] returns.
func (b *Binder) checkAuthorities(data []byte) error {
	if len(data) == 0 {
		return pem.ErrNoCertificate
	}
	return b.authorities.of(data, judgeAuthorities).err
}

// verdict says whether HAProxy can load PEM data, and whether the certificate storage of
// the Dataplane API takes it.
type verdict struct {
	storable bool
	err      error
}

func judgeKeyPair(data []byte) verdict {
	pair, err := pem.ParseKeyPair(data)
	return verdict{pair.Storable, err}
}

func judgeAuthorities(data []byte) verdict {
	plain, err := pem.ParseAuthorities(data)
	if err == nil && !bytes.Equal(plain, data) {
		err = pem.ErrBadCertificate // it may hold a key
	}
	return verdict{err: err}
}

// maxVerdicts limits the memory, of about 100 bytes for each verdict.
const maxVerdicts = 1 << 16

// verdicts remembers the verdicts of one judge, by the hash of what was judged.
type verdicts struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]verdict
}

func (v *verdicts) of(data []byte, judge func([]byte) verdict) verdict {
	sum := sha256.Sum256(data)
	if found, ok := v.lookup(sum); ok {
		return found
	}
	found := judge(data)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known == nil || len(v.known) >= maxVerdicts {
		v.known = map[[sha256.Size]byte]verdict{}
	}
	v.known[sum] = found
	return found
}

func (v *verdicts) lookup(sum [sha256.Size]byte) (verdict, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	found, ok := v.known[sum]
	return found, ok
}
