package podtest

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// serveLogs serves what containers write where the API server looks for it: at the kubelet of the pod's
// node. All is served, whatever the time that is asked for.
func (k *Kubelet) serveLogs(tb testing.TB) {
	tb.Helper()
	paths := http.NewServeMux()
	paths.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		if file, ok := k.logFile(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")); ok {
			http.ServeFile(w, r, file)
			return
		}
		http.Error(w, "there is no such pod", http.StatusNotFound)
	})
	server := httptest.NewTLSServer(paths) // the API server believes whom it reaches
	tb.Cleanup(server.Close)
	at, ok := server.Listener.Addr().(*net.TCPAddr)
	if !ok {
		tb.Fatalf("the kubelet listens at %v", server.Listener.Addr())
	}
	self := &corev1.Node{}
	self.Name = node
	if err := k.client.Create(tb.Context(), self); err != nil {
		tb.Fatal(fmt.Errorf("create the node: %w", err))
	}
	self.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: at.IP.String()}}
	self.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(at.Port)
	if err := k.client.Status().Update(tb.Context(), self); err != nil {
		tb.Fatal(fmt.Errorf("say where the kubelet is: %w", err))
	}
}

// logFile returns where the log of a container of a pod is.
func (k *Kubelet) logFile(namespace, pod, container string) (string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if p.pod.Namespace == namespace && p.pod.Name == pod {
			return filepath.Join(p.dir, filepath.Base(container)+".log"), true
		}
	}
	return "", false
}
