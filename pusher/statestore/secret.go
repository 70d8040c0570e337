// Package statestore keeps the state of a pusher for one pusher at a time: in a [Secret] of a
// cluster, or in a [File]. A second Secret or file has the private part: the fallback
// certificate with its key and, with a cluster, what Secrets held when they were last read. So
// the right to read the state gives no access to secrets.
//
// A File is locked. With a Secret, a pusher that takes the state raises its term. It writes by the
// Secret's resourceVersion, so that each write follows on what the pusher itself read or wrote. A
// pusher that another one has replaced therefore cannot save anything, however long it was paused,
// and learns that from its next write. If the answer to a write is lost, the term and the name of
// the holder tell whose write it was. The term only grows while the Secret exists; see
// [Secret.Raise] for what is left of earlier ones.
//
// Package core decides what the state holds.
package statestore

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/objectname"
)

// maxTries is how often a write is tried if another write came first.
const maxTries = 5

// Client is what this package needs of a cluster: the Secrets of one namespace.
type Client interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Secret, error)
	Create(ctx context.Context, s *corev1.Secret, o metav1.CreateOptions) (*corev1.Secret, error)
	Update(ctx context.Context, s *corev1.Secret, o metav1.UpdateOptions) (*corev1.Secret, error)
}

// Secret is a state in a Secret. One goroutine uses it.
type Secret struct {
	client                  Client
	namespace, name, holder string

	term  int64
	tried int64          // the last term that Raise tried to write; the answer may have been lost
	taken int64          // the term that it was taken in
	last  *corev1.Secret // as it was read or written last

	certificate []byte // the fallback certificate, as it was taken
}

// New returns the state in a Secret, for a pusher with a unique name.
func New(client Client, namespace, name, holder string) *Secret {
	return &Secret{client: client, namespace: namespace, name: name, holder: holder}
}

// String returns "secret:namespace/name".
func (s *Secret) String() string { return Prefix + s.namespace + "/" + s.name }

// Take makes this pusher the one that may write, in a higher term than before, and returns what was
// kept. If there is no fallback certificate, it calls fallback to make one. A certificate that an
// earlier version kept in the state moves into a Secret of its own.
func (s *Secret) Take(ctx context.Context, fallback func() ([]byte, error)) (Taken, error) {
	for range maxTries {
		found, err := s.find(ctx)
		if err != nil {
			return Taken{}, s.failed("take", err)
		}
		kept, err := taken(found)
		if err != nil {
			return Taken{}, s.failed("take", err)
		}
		next := with(found, kept.Term+1, s.holder)
		certificate, secrets, err := s.fallback(ctx, kept.Fallback, fallback)
		switch {
		case err == nil:
			delete(next.Data, keyFallback)
		case len(kept.Fallback) > 0:
			certificate = kept.Fallback
		default:
			return Taken{}, err
		}
		switch written, failed := s.write(ctx, next); {
		case failed == nil:
			s.term, s.tried, s.taken, s.last, s.certificate = kept.Term+1, kept.Term+1, kept.Term+1, written, certificate
			return Taken{State: kept.State, Fallback: certificate, Secrets: secrets, Unmoved: err, Term: s.term}, nil
		case !isOthers(failed):
			return Taken{}, s.failed("take", failed)
		}
	}
	return Taken{}, s.failed("take", ErrTaken)
}

// private is the Secret with the private data.
func (s *Secret) private() *Secret {
	return New(s.client, s.namespace, FallbackName(s.name), s.holder)
}

// fallback returns the fallback certificate in the private Secret, and what was read in Secrets. If
// that Secret has no certificate, it gets the one that was kept elsewhere, or a new one.
func (s *Secret) fallback(ctx context.Context, kept []byte, fallback func() ([]byte, error)) (certificate, secrets []byte, err error) {
	of := s.private()
	failed := func(err error) error {
		return fmt.Errorf("keep the fallback certificate in Secret %s/%s: %w", of.namespace, of.name, err)
	}
	for range maxTries {
		found, err := of.find(ctx)
		if err != nil {
			return nil, nil, failed(err)
		}
		if certificate := found.Data[keyFallback]; len(certificate) > 0 {
			return certificate, found.Data[keySecrets], nil
		}
		if len(found.Data) > 0 {
			return nil, nil, failed(fmt.Errorf("it is somebody else's: it has no key %s", keyFallback))
		}
		if kept == nil {
			if kept, err = fallback(); err != nil {
				return nil, nil, err
			}
		}
		found.Data = map[string][]byte{keyFallback: kept}
		switch _, err := of.write(ctx, found); {
		case err == nil:
			return kept, nil, nil
		case !isOthers(err):
			return nil, nil, failed(err)
		}
	}
	return nil, nil, failed(ErrTaken)
}

// KeepSecrets keeps what was read in Secrets beside the fallback certificate, or returns
// [ErrTaken] if a pusher of a later term has done so. If somebody deleted the Secret, it is made again. Unlike other methods it may be called
// from a second goroutine once the state is taken.
func (s *Secret) KeepSecrets(ctx context.Context, data []byte) error {
	of := s.private()
	failed := func(err error) error {
		return fmt.Errorf("keep what was read in Secrets in Secret %s/%s: %w", of.namespace, of.name, err)
	}
	var conflict error
	for range maxTries {
		found, err := of.find(ctx)
		if err != nil {
			return failed(err)
		}
		if found.ResourceVersion == "" && len(s.certificate) > 0 {
			found.Data = map[string][]byte{keyFallback: s.certificate}
		}
		if len(found.Data[keyFallback]) == 0 {
			return failed(fmt.Errorf("it has no key %s", keyFallback))
		}
		if termIn(found) > s.taken {
			return failed(ErrTaken)
		}
		next := with(found, s.taken, s.holder)
		next.Data[keySecrets] = data
		if _, conflict = of.write(ctx, next); conflict == nil {
			return nil
		} else if !isOthers(conflict) {
			return failed(conflict)
		}
	}
	return failed(conflict)
}

// Save keeps a state, or returns [ErrTaken].
func (s *Secret) Save(ctx context.Context, state []byte) error {
	data, err := pack(state)
	if err != nil {
		return s.failed("save", err)
	}
	return s.change(ctx, "save", func(next *corev1.Secret) { next.Data[keyState] = data })
}

// Raise continues in a higher term than the given one, or returns [ErrTaken]. It is for a pusher that
// finds a higher term than its own on an instance: if the pusher still has the state, that term is from
// before the Secret was made again.
func (s *Secret) Raise(ctx context.Context, above int64) (term int64, err error) {
	if above >= maxTerm {
		return s.term, s.failed("raise the term of", fmt.Errorf("no pusher had term %d", above))
	}
	term = max(s.term, above) + 1
	s.tried = term
	err = s.change(ctx, "raise the term of", func(next *corev1.Secret) { next.Data = with(next, term, s.holder).Data })
	if err != nil {
		return s.term, err
	}
	s.term = term
	return term, nil
}

// Release does nothing: another pusher can take the state at any time.
func (s *Secret) Release() {}

// change writes a change on top of the last write. If the cluster has something else, the answer to a
// write may have been lost, or somebody may have changed something that does not concern a pusher, such
// as a label. The error is [ErrTaken] only if another pusher has the state, and not if every try meets a
// conflict.
func (s *Secret) change(ctx context.Context, verb string, edit func(next *corev1.Secret)) error {
	base := s.last
	var err error
	for range maxTries {
		next := base.DeepCopy()
		edit(next)
		var written *corev1.Secret
		if written, err = s.write(ctx, next); err == nil {
			s.last = written
			return nil
		}
		if !isOthers(err) {
			return s.failed(verb, err)
		}
		found, unread := s.find(ctx)
		switch {
		case unread != nil:
			return s.failed(verb, unread)
		case found.ResourceVersion == "": // deleted: what this pusher has is all there is
			base = base.DeepCopy()
			base.ObjectMeta = found.ObjectMeta
		case !isOf(found, s.term, s.holder) && !isOf(found, s.tried, s.holder):
			return s.failed(verb, ErrTaken)
		default:
			base = found
		}
	}
	return s.failed(verb, err)
}

func termIn(s *corev1.Secret) int64 {
	term, _ := termOf(s)
	return term
}

// find returns the Secret, or an empty one that has to be made.
func (s *Secret) find(ctx context.Context) (*corev1.Secret, error) {
	found, err := s.client.Get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: s.name, Labels: map[string]string{"app.kubernetes.io/managed-by": "hapsnap-pusher"},
		}}, nil
	}
	return found, err
}

// write makes the Secret, or replaces it if nobody else has changed it since it was read.
func (s *Secret) write(ctx context.Context, next *corev1.Secret) (*corev1.Secret, error) {
	if next.ResourceVersion == "" {
		return s.client.Create(ctx, next, metav1.CreateOptions{})
	}
	return s.client.Update(ctx, next, metav1.UpdateOptions{})
}

// isOthers reports whether a write failed because of another write.
func isOthers(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

func (s *Secret) failed(verb string, err error) error {
	return fmt.Errorf("%s state %s: %w", verb, s, err)
}

// Read returns the state that a Secret holds, or [ErrNone].
func Read(ctx context.Context, client Client, namespace, name string) ([]byte, error) {
	s := New(client, namespace, name, "")
	found, err := s.find(ctx)
	if err != nil {
		return nil, s.failed("read", err)
	}
	kept, err := taken(found)
	if err == nil && kept.State == nil {
		err = ErrNone
	}
	if err != nil {
		return nil, s.failed("read", err)
	}
	return kept.State, nil
}

// FallbackName is the name of the private Secret beside the one with the state: it has the fallback
// certificate and its key, and what was read in Secrets. People who may read the state cannot read it.
func FallbackName(state string) string { return state + "-fallback" }

// The keys of the Secret. The term and its holder are apart from the state, so that
// people can read them.
const (
	keyTerm     = "term"
	keyHolder   = "holder"
	keyState    = "state.json.gz"
	keyFallback = "fallback.pem" // in the other Secret, or of an earlier version
	keySecrets  = "secrets.json" // in the other Secret
)

// maxTerm is more than the terms of all pushers ever add up to.
const maxTerm = 1 << 53

// largest is how many bytes a Secret takes, with some to spare for its other keys.
const largest = 1<<20 - 16<<10

// largestState is how many bytes a state has at most when it is decompressed.
const largestState = 64 << 20

// ErrTaken is returned once another pusher has taken the state.
var ErrTaken = errors.New("another pusher has taken over")

// ErrNone is returned if no pusher ever kept a state.
var ErrNone = errors.New("there is no state")

// Taken is what a pusher gets when it takes the state.
type Taken struct {
	State    []byte // nil for none
	Fallback []byte // the fallback certificate, with its key
	Secrets  []byte // what was read in Secrets, nil for nothing
	Unmoved  error  // why the key is still in the Secret with the state, nil if it is not
	Term     int64  // 0 where one pusher has the state for itself, as in a file
}

// Prefix begins the name of a state in a Secret.
const Prefix = "secret:"

// Parse returns the name of the Secret of "secret:NAMESPACE/NAME".
func Parse(text string) (types.NamespacedName, error) {
	rest, ok := strings.CutPrefix(text, Prefix)
	name, err := objectname.Parse(rest)
	if !ok || err != nil {
		return types.NamespacedName{}, fmt.Errorf("%q is not %sNAMESPACE/NAME", text, Prefix)
	}
	return name, nil
}

// termOf returns the term of a Secret. An empty Secret has term 0: somebody made it for a pusher. Any
// other Secret without a term is left alone.
func termOf(s *corev1.Secret) (int64, error) {
	text, ok := s.Data[keyTerm]
	if !ok && len(s.Data) == 0 {
		return 0, nil
	}
	term, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || term < 0 || term > maxTerm {
		return 0, fmt.Errorf("it is no state of a pusher: its key %s is %.50q", keyTerm, text)
	}
	return term, nil
}

// with returns the Secret in another term, of a holder.
func with(s *corev1.Secret, term int64, holder string) *corev1.Secret {
	next := s.DeepCopy()
	if next.Data == nil {
		next.Data = map[string][]byte{}
	}
	next.Data[keyTerm], next.Data[keyHolder] = strconv.AppendInt(nil, term, 10), []byte(holder)
	return next
}

// isOf reports whether the Secret is still in the term of the holder.
func isOf(s *corev1.Secret, term int64, holder string) bool {
	found, err := termOf(s)
	return err == nil && found == term && string(s.Data[keyHolder]) == holder
}

// taken returns what a Secret holds.
func taken(s *corev1.Secret) (Taken, error) {
	term, err := termOf(s)
	if err != nil {
		return Taken{}, err
	}
	t := Taken{Fallback: s.Data[keyFallback], Term: term}
	if data, ok := s.Data[keyState]; ok {
		t.State, err = unpack(data)
	}
	return t, err
}

// ErrTooLarge is the error of a state that does not fit into a Secret.
var ErrTooLarge = errors.New("the state is too large")

// pack compresses a state. The slots of many servers are long and alike.
func pack(state []byte) ([]byte, error) {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed) // the level is a valid one
	if _, err := w.Write(state); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if out.Len() > largest {
		return nil, fmt.Errorf("%w: it has %d bytes when compressed, and a Secret takes %d", ErrTooLarge, out.Len(), largest)
	}
	return out.Bytes(), nil
}

func unpack(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("decompress %s: %w", keyState, err)
	}
	state, err := io.ReadAll(io.LimitReader(r, largestState+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("decompress %s: %w", keyState, err)
	case len(state) > largestState:
		return nil, fmt.Errorf("decompress %s: it has more than %d MiB", keyState, largestState>>20)
	}
	return state, nil
}

// Rules returns what a pusher must be allowed to do in the namespace of its state.
// Creating cannot be limited to a name, which the API server does not know yet when it decides. It is
// not needed if somebody has made an empty Secret.
func Rules(name string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{name, FallbackName(name)}, Verbs: []string{"get", "update"}},
	}
}
