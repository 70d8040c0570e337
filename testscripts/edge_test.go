package testscripts

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
)

// edge is the namespace of the pods that are instances.
const edge = "edge"

// firstEdge is the first of their hosts. Other pods have the hosts before it.
const firstEdge = 100

// podFleet is the file of a fleet of pods.
const podFleet = `apiVersion: hapsnap.dev/v1alpha1
kind: Fleet
metadata: {name: edge}
spec:
  rollout: {waves: ["1", "100%%"], soak: 0s}
  pods:
    namespace: edge
    selector: {matchLabels: {app: haproxy}}
    port: dataplane
    scheme: http
    credentialsSecret: {name: dataplane}
    directories: {maps: %[1]s/maps, certificates: %[1]s/ssl, general: %[1]s/general}
`

// joinPods starts instances as pods of the cluster.
func joinPods(w *world, _ *testscript.TestScript, args []string) error {
	if len(args) == 0 || w.cluster == nil {
		return errUsage
	}
	files := filepath.Join(w.dir, "files")
	if w.joined == 0 {
		if err := w.writeFiles(fmt.Sprintf(podFleet, files)); err != nil {
			return err
		}
	}
	for _, name := range args {
		ip := w.network.podIP(firstEdge + w.joined)
		w.joined++
		double, err := dataplanetest.New(dataplanetest.Options{
			HAProxy: filepath.Join(binaries, "haproxy"), Addr: fmt.Sprintf("%s:%d", ip, w.network.API), Files: files,
			Env: []string{"BIND_ADDRESS=" + ip}, Username: apiUser, Password: w.password(),
		})
		if err != nil {
			return fmt.Errorf("start %s: %w", name, err)
		}
		w.instances = append(w.instances, &instance{double, name, ip})
		if err := w.makePod(name, ip); err != nil {
			return fmt.Errorf("make pod %s: %w", name, err)
		}
	}
	return nil
}

// makePod creates a running pod that is not ready, as a kubelet would.
func (w *world) makePod(name, ip string) error {
	ctx, api := context.Background(), w.cluster.Client()
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: edge}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: edge, Name: "default"}},
	} {
		if err := client.IgnoreAlreadyExists(api.Create(ctx, o)); err != nil {
			return err
		}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: edge, Name: name, Labels: map[string]string{"app": "haproxy"}},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{{
			Name: "haproxy", Image: "haproxy", Ports: []corev1.ContainerPort{{Name: "dataplane", ContainerPort: int32(w.network.API)}},
		}}},
	}
	if err := api.Create(ctx, pod); err != nil {
		return err
	}
	pod.Status.PodIP, pod.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	return api.Status().Update(ctx, pod)
}

// leavePods deletes pods, and ends their instances.
func leavePods(w *world, _ *testscript.TestScript, args []string) error {
	for _, name := range args {
		i, err := w.instance(name)
		if err != nil || w.cluster == nil {
			return errors.Join(errUsage, err)
		}
		if err := w.cluster.Client().Delete(context.Background(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: edge, Name: name}}); err != nil {
			return fmt.Errorf("delete pod %s: %w", name, err)
		}
		i.Close()
		w.instances = slices.DeleteFunc(w.instances, func(o *instance) bool { return o == i })
	}
	return nil
}

// setPassword changes the password of all instances, and of those that join later.
func setPassword(w *world, _ *testscript.TestScript, args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	w.secret = args[0]
	for _, i := range w.instances {
		i.SetPassword(w.secret)
	}
	return nil
}

// password returns the password of the instances.
func (w *world) password() string {
	if w.secret == "" {
		return apiPassword
	}
	return w.secret
}
