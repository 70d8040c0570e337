package configmapstore

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// The selectors of list: everything of a store, and what is part of snapshots that
// can be read.
const (
	everything = ""
	readable   = "," + StateLabel + " in (" + stateComplete + "," + stateDelivered + ")"
)

// list returns the ConfigMaps of the store, or those that are selected. It checks
// that there is a namespace where there is nothing in it.
func (s *Store) list(ctx context.Context, more string) (listing, error) {
	selector := labels.Set{NameLabel: s.name}.String() + more
	found, err := s.metadata.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(s.namespace).
		List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err == nil && len(found.Items) == 0 {
		err = s.placed(ctx)
	}
	if err != nil {
		return listing{}, fmt.Errorf("list %s: %w", s, because(ctx, err))
	}
	l := newListing(s.name, found.Items)
	return l, s.divide(&l)
}

// placed returns an error unless the namespace is there.
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

// update replaces an object unless it was changed since it was read.
func (s *Store) update(ctx context.Context, o *corev1.ConfigMap) error {
	return s.write(ctx, "update "+o.Name, func() error {
		_, err := s.core.ConfigMaps(s.namespace).Update(ctx, o, metav1.UpdateOptions{})
		return err
	})
}

// complete makes a staged manifest one that is read, unless it was changed since it
// was made, or is gone: the point of no return.
func (s *Store) complete(ctx context.Context, staged *corev1.ConfigMap) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": staged.ResourceVersion,
		"labels":          map[string]string{StateLabel: stateComplete},
	}})
	if err != nil {
		return err
	}
	return s.write(ctx, "complete "+staged.Name, func() error {
		_, err := s.core.ConfigMaps(s.namespace).Patch(ctx, staged.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// remove deletes a ConfigMap, as it was seen if conditions say so. A ConfigMap that is gone
// is passed over.
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

// because adds why a call was given up on, which not every client says.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}
