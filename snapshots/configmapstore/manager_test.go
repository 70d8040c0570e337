package configmapstore

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/snapshots/channel"
)

func TestManagerOf(t *testing.T) {
	t.Parallel()
	type texts = map[string]string
	flux := texts{"kustomize.toolkit.fluxcd.io/name": "edge", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
	for want, o := range map[string]metav1.ObjectMeta{
		"Argo CD (edge:/ConfigMap:edge/edge-channel)": {Annotations: texts{"argocd.argoproj.io/tracking-id": "edge:/ConfigMap:edge/edge-channel"}},
		"Argo CD (application edge)":                  {Labels: texts{"argocd.argoproj.io/instance": "edge"}},
		"Flux (Kustomization flux-system/edge)":       {Labels: flux},
		"Flux (HelmRelease flux-system/edge)":         {Labels: texts{"helm.toolkit.fluxcd.io/name": "edge", "helm.toolkit.fluxcd.io/namespace": "flux-system"}},
		"":                                            {Labels: texts{"app.kubernetes.io/name": "edge"}},
	} {
		if got := managerOf(&corev1.ConfigMap{ObjectMeta: o}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for annotation, value := range map[string]string{"kustomize.toolkit.fluxcd.io/reconcile": "disabled", "kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent"} {
		if got := managerOf(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: flux, Annotations: texts{annotation: value}}}); got != "" {
			t.Errorf("%s: %s: managed by %s", annotation, value, got)
		}
	}
	if got := managerOf(newChannel("edge", nil)); got != "" {
		t.Errorf("our own is managed by %s", got)
	}
}

func TestChannelManager(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.open()
	if got, err := s.ChannelManager(t.Context()); err != nil || got != "" {
		t.Errorf("without a channel: %q, %v", got, err)
	}
	pause := func(c *channel.Channel) error { *c = c.Paused(channel.Pause{At: noon}); return nil }
	if err := s.UpdateChannel(t.Context(), "pause", noon, pause); err != nil {
		t.Fatal(err)
	}
	o := p.object("edge-channel")
	o.Labels["argocd.argoproj.io/instance"] = "edge"
	if err := p.client.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if got, err := s.ChannelManager(t.Context()); err != nil || got != "Argo CD (application edge)" {
		t.Errorf("%q, %v", got, err)
	}
}
