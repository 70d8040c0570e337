package cluster

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/internal/kubeconfig"
)

// Nothing is asked for in a compressed form. A pusher watches each Secret by itself, and a watch of a compressed answer
// keeps a decompressor, which takes 47 kB.
func TestAnswersAreNotCompressed(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Accept-Encoding")
		http.NotFound(w, r)
	}))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	authority := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: %q, certificate-authority-data: %s}}]\nusers: [{name: a}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n", server.URL, authority)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Connect(kubeconfig.Options{File: path, UserAgent: "test"})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Secrets.Secrets("shop").Watch(t.Context(), metav1.ListOptions{})
	if _, err := c.EndpointSlices.EndpointSlices("shop").List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("an API server without objects has a list of them")
	}
	for range 2 {
		if how := <-asked; how != "" {
			t.Errorf("it asks for %q", how)
		}
	}
}
