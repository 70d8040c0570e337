package configmapstore

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
)

// patience is how long what another writer staged is left alone while nothing is
// added to it. A chunk takes far less.
const patience = 10 * time.Second

// longest is how many times the patience all of a snapshot may take, from when its
// manifest was created: 32 chunks, at a second each, and as much again.
const longest = 6

// Options are what a store must be told, but for Log.
type Options struct {
	Config    *rest.Config // how the API server is reached
	Namespace string
	Name      string // which begins the names of the ConfigMaps
	// Key signs what is written, none if empty; Allowed says whose signatures are accepted,
	// anybody's if empty.
	Key     signature.Key
	Allowed signature.Allowed
	Log     *slog.Logger // default: discards
}

// Store is a history of snapshots in the ConfigMaps of a namespace. It is safe for
// concurrent use, also by several processes.
type Store struct {
	namespace, name string
	core            corev1client.CoreV1Interface
	metadata        metadata.Interface
	log             *slog.Logger
	signing         signing

	mu       sync.Mutex    // guards head and believed
	head     sequence.Head // the newest snapshot that this Store wrote or verified
	believed string        // the version of the channel that was believed last
	// reading is held while the channel is read: of two answers, the older one would seem
	// to be a channel that went back, if it were believed after the newer one.
	reading sync.Mutex

	patience time.Duration
	// step is called at each point where the process could be killed. Tests
	// set it; an error from it ends the call there and then.
	step func(string) error
}

// Scheme begins the URLs of stores in ConfigMaps.
const Scheme = "configmap:"

// Parse reads a URL, configmap:NAMESPACE/NAME.
func Parse(url string) (types.NamespacedName, error) {
	rest, ok := strings.CutPrefix(url, Scheme)
	if !ok || !strings.Contains(rest, "/") {
		return types.NamespacedName{}, fmt.Errorf("store %q is not %sNAMESPACE/NAME", url, Scheme)
	}
	namespace, name, _ := strings.Cut(rest, "/") // Check says what is wrong with either
	if err := Check(namespace, name); err != nil {
		return types.NamespacedName{}, fmt.Errorf("store %q: %w", url, err)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// Check says whether namespace and name can be those of a store.
func Check(namespace, name string) error {
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return fmt.Errorf("namespace %q: %s", namespace, problems[0])
	}
	problems := append(validation.IsDNS1123Subdomain(name), validation.IsValidLabelValue(name)...)
	if len(problems) > 0 {
		return fmt.Errorf("name %q: %s", name, problems[0])
	}
	return nil
}

// Open names a store. Nothing is sent to the API server.
func Open(o Options) (*Store, error) {
	if err := Check(o.Namespace, o.Name); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(o.Config)
	config.WarningHandler = rest.NoWarnings{} // a ConfigMap has none, and else they go to stderr
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.ContentType = "application/vnd.kubernetes.protobuf"
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", o.Config.Host, err)
	}
	return &Store{
		namespace: o.Namespace, name: o.Name, core: core, metadata: meta,
		log:      cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		signing:  signing{key: o.Key, allowed: o.Allowed},
		patience: patience,
		step:     func(string) error { return nil },
	}, nil
}

// String returns the store's URL.
func (s *Store) String() string { return Scheme + s.namespace + "/" + s.name }

// Close does nothing: connections are shared with other clients of the program.
func (s *Store) Close() error { return nil }

// known returns the newest snapshot that this Store wrote or verified.
func (s *Store) known() sequence.Head {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head
}

func (s *Store) remember(h sequence.Head) sequence.Head {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head = h
	return h
}

// errNoNamespace means that the place of a store is not there, which the API server
// does not say when it lists what is in it.
var errNoNamespace = errors.New("the namespace is not there")

// notFound is the error of a snapshot that the store does not hold.
func (s *Store) notFound(id snapshots.ID) error {
	return fmt.Errorf("snapshot %s in %s: %w", id, s, snapshots.ErrNotFound)
}
