package configmapstore

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ChannelManager names the tool that keeps the channel as it is elsewhere, and so
// undoes what is changed here; it is "" if there is none, or no channel yet.
func (s *Store) ChannelManager(ctx context.Context) (string, error) {
	o, err := s.get(ctx, ChannelName(s.name))
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read channel: %w", err)
	}
	return managerOf(o), nil
}

// managerOf tells by the marks of Argo CD and Flux who applies an object again and
// again. Our own annotations keep them from deleting what they do not know; what they
// know, they put right all the same.
func managerOf(o *corev1.ConfigMap) string {
	const (
		argo      = "argocd.argoproj.io/tracking-id"
		argoLabel = "argocd.argoproj.io/instance"
		flux      = "kustomize.toolkit.fluxcd.io/"
		helm      = "helm.toolkit.fluxcd.io/"
	)
	once := o.Annotations[flux+"ssa"] == "IfNotPresent" || o.Annotations[flux+"ssa"] == "Ignore"
	switch {
	case o.Annotations[argo] != "":
		return "Argo CD (" + o.Annotations[argo] + ")"
	case o.Labels[argoLabel] != "":
		return "Argo CD (application " + o.Labels[argoLabel] + ")"
	case o.Labels[flux+"name"] != "" && !once && o.Annotations[flux+"reconcile"] != "disabled":
		return "Flux (Kustomization " + o.Labels[flux+"namespace"] + "/" + o.Labels[flux+"name"] + ")"
	case o.Labels[helm+"name"] != "":
		return "Flux (HelmRelease " + o.Labels[helm+"namespace"] + "/" + o.Labels[helm+"name"] + ")"
	}
	return ""
}
