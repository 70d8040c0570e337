package podtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tokenPath is where programs look for their ServiceAccount.
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// token is the name of the volume that admission adds to a pod.
const token = "kube-api-access"

// volumes makes the folders of a pod's volumes, by name. It updates existing ones, except for the token's.
func (k *Kubelet) volumes(ctx context.Context, pod *corev1.Pod, dir string) (map[string]string, error) {
	out := map[string]string{}
	group := 0
	if pod.Spec.SecurityContext != nil && pod.Spec.SecurityContext.FSGroup != nil {
		group = int(*pod.Spec.SecurityContext.FSGroup)
	}
	for _, v := range pod.Spec.Volumes {
		path := filepath.Join(dir, v.Name)
		var files map[string][]byte
		mode := os.FileMode(0o644)
		var err error
		switch {
		case v.EmptyDir != nil:
			if err := makeDir(path, 0o777|os.ModeSetgid, group); err != nil {
				return nil, err
			}
			out[v.Name] = path
			continue
		case v.ConfigMap != nil:
			files, err = k.configMap(ctx, pod.Namespace, v.ConfigMap)
			mode = modeOf(v.ConfigMap.DefaultMode)
		case v.Secret != nil:
			files, err = k.secret(ctx, pod.Namespace, v.Secret)
			mode = modeOf(v.Secret.DefaultMode)
		default:
			err = fmt.Errorf("volume %s is of a kind that is not known here", v.Name)
		}
		if err != nil {
			return nil, err
		}
		if err := writeVolume(path, files, mode, group); err != nil {
			return nil, err
		}
		out[v.Name] = path
	}
	mounted, err := k.mountsToken(ctx, pod)
	if err != nil || !mounted {
		return out, err
	}
	out[token] = filepath.Join(dir, token)
	if _, err := os.Stat(out[token]); err == nil {
		return out, nil
	}
	return out, k.writeToken(ctx, pod, out[token], group)
}

func modeOf(mode *int32) os.FileMode {
	if mode == nil {
		return 0o644
	}
	return os.FileMode(*mode)
}

func makeDir(path string, mode os.FileMode, group int) error {
	if err := os.MkdirAll(path, 0o755); err != nil { //nolint:gosec // others read it
		return err
	}
	if err := os.Chown(path, 0, group); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// dataLink is the link through which files of a volume are read, so that all of them change at once.
const dataLink = "..data"

// writeVolume updates the files of a volume, as a kubelet does. They are links through one link to a folder,
// and a new folder replaces the old one in one step. It does not touch a volume whose files are up to date.
func writeVolume(path string, files map[string][]byte, mode os.FileMode, group int) error {
	if same, err := volumeHas(path, files); same || err != nil {
		return err
	}
	if err := makeDir(path, 0o755, group); err != nil {
		return err
	}
	next, err := os.MkdirTemp(path, "..")
	if err != nil {
		return err
	}
	if err := makeDir(next, 0o755, group); err != nil {
		return err
	}
	for name, content := range files {
		file := filepath.Join(next, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, content, 0o600), os.Chown(file, 0, group), os.Chmod(file, mode)); err != nil { //nolint:gosec // others read it
			return err
		}
	}
	link := filepath.Join(path, dataLink)
	before, _ := os.Readlink(link) // none at first
	if err := errors.Join(os.Symlink(filepath.Base(next), link+"_tmp"), os.Rename(link+"_tmp", link)); err != nil {
		return err
	}
	if err := linkFiles(path, files); err != nil || before == "" {
		return err
	}
	return os.RemoveAll(filepath.Join(path, before))
}

// linkFiles makes the links of new files, and removes those of others.
func linkFiles(path string, files map[string][]byte) error {
	wanted := map[string]bool{}
	for name := range files {
		first, _, _ := strings.Cut(name, "/") // a file of an item may be in a folder
		wanted[first] = true
		if err := os.Symlink(filepath.Join(dataLink, first), filepath.Join(path, first)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !wanted[e.Name()] && !strings.HasPrefix(e.Name(), "..") {
			if err := os.Remove(filepath.Join(path, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// volumeHas reports whether a volume has these files and no others.
func volumeHas(path string, files map[string][]byte) (bool, error) {
	data := filepath.Join(path, dataLink)
	if _, err := os.Stat(data); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	found := 0
	data, err := filepath.EvalSymlinks(data)
	if err != nil {
		return false, err
	}
	same := true
	err = filepath.WalkDir(data, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		wanted, ok := files[strings.TrimPrefix(file, data+"/")]
		same = same && ok && bytes.Equal(content, wanted)
		found++
		return err
	})
	return same && found == len(files), err
}

func (k *Kubelet) configMap(ctx context.Context, namespace string, source *corev1.ConfigMapVolumeSource) (map[string][]byte, error) {
	var o corev1.ConfigMap
	optional := source.Optional != nil && *source.Optional
	if err := k.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: source.Name}, &o); err != nil && (!optional || !apierrors.IsNotFound(err)) {
		return nil, err
	}
	all := maps.Clone(o.BinaryData)
	if all == nil {
		all = map[string][]byte{}
	}
	for name, content := range o.Data {
		all[name] = []byte(content)
	}
	return items(all, source.Items, source.Name, optional)
}

func (k *Kubelet) secret(ctx context.Context, namespace string, source *corev1.SecretVolumeSource) (map[string][]byte, error) {
	var o corev1.Secret
	optional := source.Optional != nil && *source.Optional
	if err := k.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: source.SecretName}, &o); err != nil && (!optional || !apierrors.IsNotFound(err)) {
		return nil, err
	}
	return items(o.Data, source.Items, source.SecretName, optional)
}

// items returns the files of a volume. An optional volume lacks files that do not exist.
func items(all map[string][]byte, wanted []corev1.KeyToPath, name string, optional bool) (map[string][]byte, error) {
	if len(wanted) == 0 {
		return all, nil
	}
	out := map[string][]byte{}
	for _, i := range wanted {
		content, ok := all[i.Key]
		switch {
		case !ok && optional:
			continue
		case !ok:
			return nil, fmt.Errorf("%s has no key %s", name, i.Key)
		}
		out[i.Path] = content
	}
	return out, nil
}

// mountsToken is what admission finds out.
func (k *Kubelet) mountsToken(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if pod.Spec.AutomountServiceAccountToken != nil {
		return *pod.Spec.AutomountServiceAccountToken, nil
	}
	if pod.Spec.ServiceAccountName == "" {
		return false, nil // nothing makes the namespace's default account here
	}
	var account corev1.ServiceAccount
	if err := k.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}, &account); err != nil {
		return false, err
	}
	return account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken, nil
}

func (k *Kubelet) writeToken(ctx context.Context, pod *corev1.Pod, path string, group int) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}}
	request := &authenticationv1.TokenRequest{}
	if err := k.client.SubResource("token").Create(ctx, account, request); err != nil {
		return fmt.Errorf("make a token of %s: %w", account.Name, err)
	}
	return writeVolume(path, map[string][]byte{
		"token": []byte(request.Status.Token), "ca.crt": k.authority, "namespace": []byte(pod.Namespace),
	}, 0o640, group)
}

// mountsOf are the mounts of a container, outer ones first.
func mountsOf(c corev1.Container, volumes map[string]string) []mount {
	var out []mount
	for _, m := range c.VolumeMounts {
		out = append(out, mount{Source: filepath.Join(volumes[m.Name], m.SubPath), Target: m.MountPath, ReadOnly: m.ReadOnly})
	}
	if path, ok := volumes[token]; ok {
		out = append(out, mount{Source: path, Target: tokenPath, ReadOnly: true})
	}
	slices.SortStableFunc(out, func(a, b mount) int { return len(a.Target) - len(b.Target) })
	return out
}
