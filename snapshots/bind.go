package snapshots

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

// BoundFile is one file as an instance gets it. The name of a map or general
// file carries a hash of its content, so that uploading it disturbs nothing
// that runs; a certificate keeps its name and is rotated in place.
type BoundFile struct {
	Kind    FileKind
	Name    string // base name, unchanged by the API's sanitising
	Path    string // absolute, as haproxy.cfg names it
	Source  string // the path in the snapshot
	Content []byte
}

// BoundServer is one server line of a bound configuration: what the running
// worker should show for it.
type BoundServer struct {
	Backend, Name string
	Address       string
	Port          int
	Weight        int // 1 to 256, or 0: takes no traffic
	State         SlotState
}

// Bound is what one instance gets: a snapshot joined with live data.
type Bound struct {
	ID ID
	// Node is the value of `node` in the global section. It names the snapshot
	// and the shape, so that the running worker can say what it runs.
	Node    string
	Config  []byte
	Files   []BoundFile   // sorted by path
	Servers []BoundServer // in the order of the configuration
	// Shape digests everything that needs a reload to change. Two bound
	// configurations of one shape differ in what can be changed at run time:
	// addresses, weights and states of servers, and contents of certificates.
	Shape Digest
	// Missing lists the Secrets that are named by the snapshot and have no
	// usable certificate in the live data, sorted. Their lines are left out
	// of crt-lists, so that their hosts get the fallback certificate.
	Missing []SecretName
}
