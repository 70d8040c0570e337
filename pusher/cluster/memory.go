package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/internal/kubewatch"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// source is what a [Memory] is in front of: a [Cluster].
type source interface {
	Run(ctx context.Context)
	Want(w Wanted)
	Changes() <-chan struct{}
	Take() Change
}

// Memory is a cluster that remembers over restarts the users, authorities and values that snapshots
// take from Secrets. If the pusher may not read a Secret since it started, the Secret counts as
// holding what it held before: the same people are let in as yesterday. Memory does not remember
// certificates, since instances keep those that they have.
//
// The remembered content counts only while the Secret may not be read. A read replaces it. If the
// Secret was deleted, or is missing when it may be read again, its content is forgotten.
type Memory struct {
	source
	keep    func(ctx context.Context, data []byte) error
	log     *slog.Logger
	changed chan struct{} // of one: there may be something to keep
	began   time.Time

	mu     sync.Mutex
	wanted []bind.SecretKey
	before map[bind.SecretKey][]byte               // from the previous pusher
	read   map[snapshots.SecretName]*corev1.Secret // since it began; nil: it is gone
	given  map[snapshots.SecretName]bool           // from before, as they may not be read
	full   bool                                    // not all fits
	kept   []byte                                  // as last given to keep
}

const (
	// largestKept bounds one remembered value, and mostKept all of them as they are written, so that
	// they fit into a Secret beside a certificate.
	largestKept = 64 << 10
	mostKept    = 768 << 10
	// keptUnwanted is how long a value is remembered at least that no snapshot in use needs: a pusher
	// that starts has not read all snapshots yet.
	keptUnwanted = time.Hour
	keepAgain    = 10 * time.Second
	keepTimeout  = 10 * time.Second
)

// ErrReplaced is returned by the keep function of a [Memory] once another pusher keeps its own.
var ErrReplaced = errors.New("another pusher remembers Secrets now")

// Remember returns a cluster with a memory. Kept is what was last given to keep, nil for nothing. Only
// [Memory.Keep] calls keep.
func Remember(of source, kept []byte, keep func(ctx context.Context, data []byte) error, log *slog.Logger, now time.Time) *Memory {
	m := &Memory{
		source: of, keep: keep, log: log, changed: make(chan struct{}, 1), began: now,
		before: map[bind.SecretKey][]byte{}, read: map[snapshots.SecretName]*corev1.Secret{}, given: map[snapshots.SecretName]bool{},
	}
	if err := m.recall(kept); err != nil {
		log.Warn("cannot use what was remembered of Secrets, begins without it", "err", err)
	}
	return m
}

// Want says what to watch from now on.
func (m *Memory) Want(w Wanted) {
	m.source.Want(w)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Equal(m.wanted, w.Keys) {
		m.wanted = slices.Clone(w.Keys)
		kubewatch.Signal(m.changed)
	}
}

// Take returns what changed since the last call, with what is remembered.
func (m *Memory) Take() Change {
	change := m.source.Take()
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, s := range change.Secrets {
		m.read[name] = s
		delete(m.given, name)
	}
	if change.Status != nil {
		m.fill(&change)
	}
	if len(change.Secrets) > 0 {
		kubewatch.Signal(m.changed)
	}
	return change
}

// fill adds remembered Secrets that may not be read to a change. A remembered Secret that may be read
// now, and was not found, is gone.
func (m *Memory) fill(change *Change) {
	if change.Secrets == nil {
		change.Secrets = map[snapshots.SecretName]*corev1.Secret{}
	}
	if change.Missing == nil {
		change.Missing = map[snapshots.SecretName]bool{}
	}
	denied := change.Status.DeniedSecrets()
	for name, settled := range change.Status.secrets {
		if _, heard := m.read[name]; !settled || denied[name] || heard {
			continue
		}
		if m.read[name] = nil; m.given[name] {
			change.Secrets[name], change.Missing[name] = nil, true
			delete(m.given, name)
		}
		kubewatch.Signal(m.changed)
	}
	for name := range denied {
		if _, heard := m.read[name]; heard || m.given[name] {
			continue
		}
		data := map[string][]byte{}
		for key, value := range m.before {
			if key.Secret == name {
				data[key.Key] = value
			}
		}
		if len(data) > 0 {
			change.Secrets[name] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}, Data: data}
			m.given[name] = true
			m.log.Warn("may not read a Secret, what it held before is used", "secret", name)
		}
	}
}

// Keep keeps the memory up to date by calling keep, until ctx is done.
func (m *Memory) Keep(ctx context.Context) {
	silent := false
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-m.changed:
		}
		data, err := m.encoded(time.Now())
		if err == nil && string(data) == string(m.kept) {
			continue
		}
		if err == nil {
			err = m.keepNow(ctx, data)
		}
		switch {
		case err == nil:
			m.kept, silent = data, false
			continue
		case errors.Is(err, ErrReplaced), ctx.Err() != nil:
			return
		case !silent:
			m.log.Warn("cannot remember what Secrets hold, trying again", "err", err)
			silent = true
		}
		kubewatch.Signal(m.changed)
		select {
		case <-ctx.Done():
		case <-time.After(keepAgain):
		}
	}
}

func (m *Memory) keepNow(ctx context.Context, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	return m.keep(ctx, data)
}

// remembered is what a [Memory] keeps.
type remembered struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Values     []rememberedValue `json:"values"`
}

type rememberedValue struct {
	Secret snapshots.SecretName `json:"secret"`
	Key    string               `json:"key"`
	Value  []byte               `json:"value"`
}

const memoryKind = "PusherSecrets"

// size is about how many bytes a value takes as it is written.
func (v rememberedValue) size() int {
	return len(v.Secret.Namespace) + len(v.Secret.Name) + len(v.Key) + len(v.Value)*4/3 + 64
}

// recall reads what was kept.
func (m *Memory) recall(data []byte) error {
	if data == nil {
		return nil
	}
	var r remembered
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("read what was remembered: %w", err)
	}
	if r.Kind != memoryKind || r.APIVersion != snapshots.APIVersion {
		return fmt.Errorf("read what was remembered: it is a %.50q of %.50q", r.Kind, r.APIVersion)
	}
	for _, v := range r.Values {
		m.before[bind.SecretKey{Secret: v.Secret, Key: v.Key}] = v.Value
	}
	return nil
}

// encoded returns the values to remember: from Secrets that were read, those that snapshots in use
// need; from others, those known before. If they are too many, it leaves out the longest.
func (m *Memory) encoded(now time.Time) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	values := map[bind.SecretKey][]byte{}
	for key, value := range m.before {
		if _, read := m.read[key.Secret]; !read && (len(m.wanted) == 0 || slices.Contains(m.wanted, key) || now.Sub(m.began) < keptUnwanted) {
			values[key] = value
		}
	}
	for _, key := range m.wanted {
		if s := m.read[key.Secret]; s != nil {
			if value, ok := s.Data[key.Key]; ok {
				values[key] = value
			}
		}
	}
	r := remembered{APIVersion: snapshots.APIVersion, Kind: memoryKind, Values: []rememberedValue{}}
	all := make([]rememberedValue, 0, len(values))
	for _, key := range slices.SortedFunc(maps.Keys(values), bind.SecretKey.Compare) {
		all = append(all, rememberedValue{key.Secret, key.Key, values[key]})
	}
	slices.SortStableFunc(all, func(a, b rememberedValue) int { return cmp.Compare(a.size(), b.size()) })
	size := 0
	for _, v := range all {
		if size += v.size(); size > mostKept || len(v.Value) > largestKept {
			break
		}
		r.Values = append(r.Values, v)
	}
	if full := len(r.Values) < len(all); full != m.full {
		m.full = full
		if full {
			m.log.Warn("more in Secrets than can be remembered", "left_out", len(all)-len(r.Values), "of", len(all))
		}
	}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("remember what Secrets hold: %w", err)
	}
	return data, nil
}
