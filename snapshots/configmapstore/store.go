// Package configmapstore keeps snapshots in ConfigMaps of one namespace of a cluster. The store edge
// has
//
//	edge-r000123              snapshot.yaml, and the names of its chunks; immutable
//	edge-r000123-3f2a91c4-000 a piece of a tar.gz with the other files, or of a large snapshot.yaml; immutable
//	edge-channel              what people say should run, in a key for each of its fields
//	edge-status               the status of the reader, what was delivered, and which snapshot was published last
//
// The last two are made with the first snapshot, so that readers need not make anything.
//
// It promises that a reader never sees half of anything. A writer creates a manifest first, with a
// label that says it is staged; then its chunks; and changes the label last, which is the only thing
// about the manifest that can be changed. No reader lists or reads what is staged. The revision is in
// the name: of two writers, one gets the answer that the name is taken, and starts again. Every digest
// is verified when a snapshot is read.
//
// A writer that dies leaves something staged. The next one waits for as long as the first may be at
// work, then removes it. If the first was only slow, it finds that its manifest is gone, and starts
// again too. Manifests own their chunks, so that these are deleted with them.
//
// A snapshot that another tool delivers ([Delivered]), from git into a cluster, arrives in any order.
// It has the label delivered from the start, and is a snapshot when all of its chunks are there, which
// the listing alone shows. Nothing owns those chunks: they are deleted by name. Nobody else publishes
// to such a store.
//
// With a list of signers, only what they signed is a snapshot or the channel. The signatures are in
// annotations, so that the listing is enough to tell. What others put there is reported as refused,
// stays where it is, and blocks nobody.
//
// [Store.Follow] reports changes, with one watch of the store's ConfigMaps without their data. It only
// says that a look is worth while, so that a watch which misses something does no harm: readers look
// now and then anyway.
//
// Labels and annotations are only those that this package makes: none are copied from elsewhere. They
// keep Argo CD and Flux from pruning.
//
// # Decisions
//
// In a cluster, a key of the channel's ConfigMap holds everything about one thing: the first line is
// what a person would write, who wrote it and why follow. With a key for each detail, a pin that
// kubectl patch writes would be taken for that of the person who pinned before. A key that is not known
// is an error, since it may be what somebody wanted most. A ConfigMap without any key is an error too:
// somebody emptied it.
//
// A writer claims a revision by its name, which the API server gives to one writer. The claim is the
// manifest, staged: it must be there before its chunks, which it owns, and its label makes it a
// snapshot at the end. Nobody can tell a writer that died from a slow one. So the next writer takes the
// claim away when nothing was added to it for ten seconds; the last call of a slow writer then fails,
// since the object that it changes is gone. After claiming, a writer checks whether its parent is still
// the newest: retention may have freed the name of a revision long past.
//
// A writer lists the store once. From then on it remembers what it saw, claims the next revision, and reads
// in a watch what happened up to its claim. So the check costs the same whatever the length of the history.
// The watch must go on where the memory ends. If the API server no longer knows that far back, or forbids the
// watch, the store is listed.
package configmapstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/gitstore/signature"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
)

// patience is how long a staged snapshot of another writer is left alone while nothing is added to it.
// Writing a chunk takes far less.
const patience = 10 * time.Second

// longest is how long writing a whole snapshot may take, in units of patience, from the creation of its
// manifest: 32 chunks with files and 10 of the manifest at a second each, and half as much again.
const longest = 6

// Options configure a store. Only Log may be left out.
type Options struct {
	Config    *rest.Config // how the API server is reached
	Namespace string
	Name      string // which begins the names of the ConfigMaps
	// Key signs what is written; without one nothing is signed. Allowed lists whose signatures are
	// accepted; without it no signatures are verified.
	Key     signature.Key
	Allowed signature.Allowed
	Log     *slog.Logger // default: discards
}

// Store is a history of snapshots in the ConfigMaps of a namespace. It is safe for
// concurrent use, also by several processes.
type Store struct {
	namespace, name string
	core            corev1client.CoreV1Interface
	said            eventsv1client.EventsGetter
	metadata        metadata.Interface
	log             *slog.Logger
	signing         signing
	compressor      compressor

	mu       sync.Mutex    // guards head, sight and believed
	head     sequence.Head // the newest snapshot that this Store wrote or verified
	sight    string        // what its ConfigMaps looked like then, see sightOf
	believed string        // the version of the channel that was accepted last
	past     past          // what publishes remember of the store
	// reading is held while the channel is read. If two reads ran at once and the newer answer were
	// believed first, the older one would look like a channel that went back.
	reading sync.Mutex

	patience, catchUp time.Duration
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

// Open names a store. It sends nothing to the API server.
func Open(o Options) (*Store, error) {
	if err := Check(o.Namespace, o.Name); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(o.Config)
	config.WarningHandler = rest.NoWarnings{} // ConfigMaps cause no warnings, and others would go to stderr
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	kubeconfig.Protobuf(config)
	core, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", o.Config.Host, err)
	}
	said, err := eventsv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", o.Config.Host, err)
	}
	return &Store{
		namespace: o.Namespace, name: o.Name, core: core, said: said, metadata: meta,
		log:      cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		signing:  signing{key: o.Key, allowed: o.Allowed},
		patience: patience, catchUp: catchUp,
		step: func(string) error { return nil },
	}, nil
}

// String returns the store's URL.
func (s *Store) String() string { return Scheme + s.namespace + "/" + s.name }

// Close does nothing: connections are shared with other clients of the program.
func (s *Store) Close() error { return nil }

// known returns the newest snapshot that this Store wrote or verified, and what it looked like then.
func (s *Store) known() (sequence.Head, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head, s.sight
}

func (s *Store) remember(h sequence.Head, sight string) sequence.Head {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head, s.sight = h, sight
	return h
}

// errNoNamespace means that the namespace of a store does not exist. The API server does not say so
// when it lists objects in it.
var errNoNamespace = errors.New("the namespace is not there")

// notFound is the error for a snapshot that the store does not hold.
func (s *Store) notFound(id snapshots.ID) error {
	return fmt.Errorf("snapshot %s in %s: %w", id, s, snapshots.ErrNotFound)
}

// The selectors of list: everything of a store, and everything of readable snapshots.
const (
	everything = ""
	readable   = "," + stateLabel + " in (" + stateComplete + "," + stateDelivered + ")"
)

// list returns the ConfigMaps of the store, or those that are selected. If there are none, it checks
// that the namespace exists.
func (s *Store) list(ctx context.Context, more string) (listing, error) {
	items, _, err := s.listItems(ctx, more)
	if err != nil {
		return listing{}, err
	}
	l := newListing(s.name, items)
	return l, s.divide(&l)
}

// listItems is list without an order. It also returns the version of what it lists.
func (s *Store) listItems(ctx context.Context, more string) ([]metav1.PartialObjectMetadata, string, error) {
	selector := labels.Set{nameLabel: s.name}.String() + more
	found, err := s.metadata.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(s.namespace).
		List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err == nil && len(found.Items) == 0 {
		err = s.placed(ctx)
	}
	if err != nil {
		return nil, "", fmt.Errorf("list %s: %w", s, because(ctx, err))
	}
	return found.Items, found.ResourceVersion, nil
}

// mostOthers is how many manifests Others reads.
const mostOthers = 500

// Others returns the stores of the namespace, as far as a few manifests name them: one of them
// may be the store that is meant.
func (s *Store) Others(ctx context.Context) (what string, names []string, err error) {
	selector := labels.Set{partLabel: partManifest}.String() + readable
	found, err := s.metadata.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(s.namespace).
		List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: mostOthers})
	if err != nil {
		return "", nil, fmt.Errorf("list stores of namespace %s: %w", s.namespace, because(ctx, err))
	}
	for _, o := range found.Items {
		if name := o.Labels[nameLabel]; name != s.name {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return "stores of namespace " + s.namespace, slices.Compact(names), nil
}

// placed returns an error if the namespace does not exist.
func (s *Store) placed(ctx context.Context) error {
	_, err := s.core.Namespaces().Get(ctx, s.namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return errNoNamespace
	}
	return err
}

func (s *Store) get(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	found, err := s.core.ConfigMaps(s.namespace).Get(ctx, name, metav1.GetOptions{})
	return found, because(ctx, err)
}

func (s *Store) create(ctx context.Context, o *corev1.ConfigMap) (made *corev1.ConfigMap, err error) {
	err = s.write(ctx, "create "+o.Name, func() error {
		made, err = s.core.ConfigMaps(s.namespace).Create(ctx, o, metav1.CreateOptions{})
		return err
	})
	return made, err
}

// update replaces an object, unless it was changed since it was read.
func (s *Store) update(ctx context.Context, o *corev1.ConfigMap) (made *corev1.ConfigMap, err error) {
	err = s.write(ctx, "update "+o.Name, func() error {
		made, err = s.core.ConfigMaps(s.namespace).Update(ctx, o, metav1.UpdateOptions{})
		return err
	})
	return made, err
}

// complete changes the label of a staged manifest, so that readers read it, unless the manifest was
// changed or is gone: the point of no return.
func (s *Store) complete(ctx context.Context, staged *corev1.ConfigMap) (made *corev1.ConfigMap, err error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": staged.ResourceVersion,
		"labels":          map[string]string{stateLabel: stateComplete},
	}})
	if err != nil {
		return nil, err
	}
	err = s.write(ctx, "complete "+staged.Name, func() error {
		made, err = s.core.ConfigMaps(s.namespace).Patch(ctx, staged.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	return made, err
}

// remove deletes a ConfigMap; with conditions, only if it is as it was seen. A ConfigMap that is gone
// is skipped.
func (s *Store) remove(ctx context.Context, name string, seen *metav1.Preconditions) error {
	return s.write(ctx, "delete "+name, func() error {
		err := s.core.ConfigMaps(s.namespace).Delete(ctx, name, metav1.DeleteOptions{Preconditions: seen})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// write makes a call that changes something, between two steps.
func (s *Store) write(ctx context.Context, what string, call func() error) error {
	if err := s.step("before " + what); err != nil {
		return err
	}
	if err := call(); err != nil {
		return fmt.Errorf("%s: %w", what, because(ctx, err))
	}
	return s.step("after " + what)
}

// because adds why a call was abandoned, which not every client says.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}

// Reading returns the permissions that a reader of a store needs in its namespace. The names of chunks
// are not known before, so that the rules name none. A reader that may not watch polls. The namespace
// itself is read when nothing is in it.
func Reading(namespace string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{namespace}, Verbs: []string{"get"}},
	}
}

// Writing returns the permissions that a writer of a store needs in its namespace. A writer that may not watch lists all
// snapshots for each publish.
func Writing(namespace string) []rbacv1.PolicyRule {
	rules := Reading(namespace)
	rules[0].Verbs = []string{"create", "delete", "get", "list", "patch", "watch"}
	return rules
}

// WritingCompanions returns the permissions to keep certificates beside snapshots, in addition to Writing. A
// writer reads a Secret before it deletes it, to check its owner.
func WritingCompanions() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "delete", "get"}}}
}

// ReadingCompanions returns the permissions to read those certificates, in addition to Reading. Their names are
// not known in advance.
func ReadingCompanions() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}
}

// Status returns the permissions to write the status of a store. The compiler, or the tool that
// delivers, creates it with the first snapshot.
func Status(store string) []rbacv1.PolicyRule { return Patching(statusName(store)) }

// Patching returns the permissions to write a status into a ConfigMap that exists.
func Patching(name string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{name}, Verbs: []string{"patch"}},
	}
}

// Channel returns the permissions to change the channel of a store, in addition to reading it. The channel is
// created with the first published snapshot, or by people if snapshots are delivered.
func Channel(store string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{ChannelName(store)}, Verbs: []string{"update"}},
	}
}

// ChannelByHand is Channel for people, who may also patch it with kubectl.
func ChannelByHand(store string) []rbacv1.PolicyRule {
	rules := Channel(store)
	rules[0].Verbs = []string{"patch", "update"}
	return rules
}

// Deleting returns the permissions to delete snapshots, in addition to Reading. The names of chunks are not
// known in advance.
func Deleting() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"delete"}}}
}

// Creating returns the permissions to create a missing status or channel. Kubernetes cannot limit creation to
// names, so with this permission one can also create ConfigMaps that look like snapshots.
func Creating() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}}}
}

// SetStatus writes the status of a reader into the ConfigMap NAME-status, and creates that if there is
// none. Other keys stay. The error for a status of another reader is an [OtherWriterError].
func (s *Store) SetStatus(ctx context.Context, r Report) error {
	name := types.NamespacedName{Namespace: s.namespace, Name: statusName(s.name)}
	if err := WriteStatus(ctx, s.core, name, s.name, r); err != nil {
		return fmt.Errorf("write %s of %s: %w", name.Name, s, because(ctx, s.unmade(ctx, name.Name, err)))
	}
	return nil
}

// unmade adds a hint to an error if the ConfigMap does not exist: permission to change it does not
// include permission to create it.
func (s *Store) unmade(ctx context.Context, name string, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	if _, missing := s.get(ctx, name); !apierrors.IsNotFound(missing) {
		return err
	}
	return process.WithHint(fmt.Errorf("ConfigMap %s/%s is not there, and to make it is not allowed: %w", s.namespace, name, err),
		"a compiler makes it with its first snapshot; for another store, grant what pusher rbac --create prints, once")
}
