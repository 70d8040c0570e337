package charttest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Secrets that a program fills are rendered without data. Pods start before there is any.
func TestMadeSecretsAreEmpty(t *testing.T) {
	t.Parallel()
	found := 0
	for _, v := range all(t) {
		empty := map[string]bool{}
		for _, o := range v.objects(t) {
			if o.GetKind() != "Secret" {
				continue
			}
			found++
			empty[o.GetName()] = true
			for _, key := range []string{"data", "stringData"} {
				if _, has := o.Object[key]; has {
					t.Errorf("%s: Secret %s has %s", v.name, o.GetName(), key)
				}
			}
			if o.GetAnnotations()["hapsnap.dev/made"] != "" {
				t.Errorf("%s: Secret %s says that it is filled", v.name, o.GetName())
			}
		}
		for _, o := range v.objects(t) {
			pod, ok := podOf(o)
			if !ok {
				continue
			}
			for _, volume := range specOf(t, pod).Volumes {
				s := volume.Secret
				if s != nil && empty[s.SecretName] != (s.Optional != nil && *s.Optional) {
					t.Errorf("%s: volume %s of %s %s: Secret %s is optional: %v", v.name, volume.Name, o.GetKind(), o.GetName(), s.SecretName, s.Optional)
				}
				for _, item := range volumeItems(s) {
					if strings.HasPrefix(item.Key, "next.") {
						t.Errorf("%s: %s mounts %s", v.name, o.GetName(), item.Key)
					}
				}
				if s != nil && empty[s.SecretName] && len(s.Items) == 0 {
					t.Errorf("%s: %s mounts all of %s", v.name, o.GetName(), s.SecretName)
				}
			}
		}
	}
	if found == 0 {
		t.Error("there are no Secrets")
	}
}

func volumeItems(s *corev1.SecretVolumeSource) []corev1.KeyToPath {
	if s == nil {
		return nil
	}
	return s.Items
}

func authority(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What the programs wrote stays through upgrades with either Helm, and from one to the other. Everything else
// is upgraded.
func TestUpgradesLeaveWhatWasMade(t *testing.T) {
	t.Parallel()
	server := cluster.Server(t)
	for _, order := range [][]string{{"helm3", "helm3"}, {"helm", "helm"}, {"helm3", "helm"}} {
		t.Run(strings.Join(order, " to "), func(t *testing.T) {
			t.Parallel()
			namespace := "upgrade-" + strings.Join(order, "-")
			args := []string{Release, Chart(t), "--namespace", namespace, "--kubeconfig", server.Kubeconfig(), "--set", "compiler.webhook.enabled=true,ingressClass.name=" + namespace}
			if _, err := Helm(t, order[0], append([]string{"install", "--create-namespace"}, args...)...); err != nil {
				t.Fatal(err)
			}
			c := server.Client()
			names := []string{"dataplane", "dataplane-certificate", "webhook-certificate"}
			read := func(name string) *corev1.Secret {
				t.Helper()
				var s corev1.Secret
				if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: Release + "-hapsnap-" + name}, &s); err != nil {
					t.Fatal(err)
				}
				return &s
			}
			for _, name := range names {
				s := read(name)
				if len(s.Data) != 0 {
					t.Errorf("Secret %s is not empty", name)
				}
				s.Data, s.Annotations = map[string][]byte{"tls.key": []byte(name)}, map[string]string{"hapsnap.dev/made": "sha256", "meta.helm.sh/release-name": Release, "meta.helm.sh/release-namespace": namespace}
				if err := c.Update(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
			var webhook admissionregistrationv1.ValidatingWebhookConfiguration
			key := client.ObjectKey{Name: namespace + "-" + Release + "-hapsnap"}
			if err := c.Get(t.Context(), key, &webhook); err != nil {
				t.Fatal(err)
			}
			patch := client.MergeFrom(webhook.DeepCopy())
			for i := range webhook.Webhooks {
				webhook.Webhooks[i].ClientConfig.CABundle = []byte(authority(t))
			}
			if err := c.Patch(t.Context(), &webhook, patch); err != nil {
				t.Fatal(err)
			}
			for n := range 2 { // the second time, Helm has the manifest of the first
				if _, err := Helm(t, order[1], append([]string{"upgrade"}, append(args, "--set", fmt.Sprintf("commonLabels.number=n%d,compiler.webhook.timeoutSeconds=%d", n, n+3))...)...); err != nil {
					t.Fatal(err)
				}
				for _, name := range names {
					if s := read(name); string(s.Data["tls.key"]) != name || s.Annotations["hapsnap.dev/made"] != "sha256" || s.Labels["number"] != fmt.Sprintf("n%d", n) {
						t.Errorf("after upgrade %d: Secret %s: %v %v", n, name, s.Labels, s.Annotations)
					}
				}
				if err := c.Get(t.Context(), key, &webhook); err != nil {
					t.Fatal(err)
				}
				for _, w := range webhook.Webhooks {
					if string(w.ClientConfig.CABundle) != authority(t) || int(*w.TimeoutSeconds) != n+3 {
						t.Errorf("after upgrade %d: webhook %s waits %d s and trusts %q", n, w.Name, *w.TimeoutSeconds, w.ClientConfig.CABundle)
					}
				}
			}
		})
	}
}
