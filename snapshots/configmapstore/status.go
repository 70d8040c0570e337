package configmapstore

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

const partStatus = "status"

// DeliveredKey is the key, in the ConfigMap of a status, of the snapshot that was
// delivered last. It is the delivery's; all others are the reader's.
const DeliveredKey = "delivered"

// statusManager owns what readers say of themselves, so that Argo CD and Flux, which
// own what they deliver of the same object, leave it as it is.
const statusManager = "hapsnap-pusher"

func statusName(store string) string { return store + "-status" }

// newStatus returns the ConfigMap of a status as it is delivered with a snapshot.
func newStatus(store string, id snapshots.ID) *corev1.ConfigMap {
	o := part(store, statusName(store), partStatus)
	o.Labels[SnapshotLabel] = id.String()
	o.Data = map[string]string{DeliveredKey: id.String()}
	return o
}

// unmade says of an error that the ConfigMap is not there, if that is why: who may change it
// need not be allowed to make it.
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

// SetStatus writes what a reader of the store says of itself into the ConfigMap
// NAME-status, and makes that if there is none. Other keys stay.
func (s *Store) SetStatus(ctx context.Context, fields map[string]string) error {
	o := applycorev1.ConfigMap(statusName(s.name), s.namespace).
		WithLabels(map[string]string{NameLabel: s.name, PartLabel: partStatus}).WithData(fields)
	_, err := s.core.ConfigMaps(s.namespace).Apply(ctx, o, metav1.ApplyOptions{FieldManager: statusManager, Force: true})
	if err != nil {
		return fmt.Errorf("write %s of %s: %w", statusName(s.name), s, because(ctx, s.unmade(ctx, statusName(s.name), err)))
	}
	return nil
}
