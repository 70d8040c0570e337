// Package kubeconfig reads how to reach an API server: from a kubeconfig file, or from what a pod has. All
// programs that reach a cluster use it, and so does the store in ConfigMaps.
package kubeconfig

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options say which API server to reach, and as whom. With the zero value it is the pod's.
type Options struct {
	File      string // "" is the service account of the pod; of several, as in KUBECONFIG, the first one wins
	Context   string // of the file; "" is its current one
	UserAgent string // names the program
}

// Inside reports whether the process runs in a pod of a cluster.
func Inside() bool { return os.Getenv("KUBERNETES_SERVICE_HOST") != "" }

// Load reads the file, or what a pod has instead. It sends nothing.
func (o Options) Load() (*rest.Config, error) {
	config, err := o.load()
	if err != nil {
		return nil, err
	}
	config.UserAgent = o.UserAgent
	config.QPS = -1 // the API server limits clients fairly; single Secrets may be many
	var base string
	if host, err := url.Parse(config.Host); err == nil {
		base = strings.TrimRight(host.Path, "/")
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return repeating{genuine{next, base}} })
	return config, nil
}

// repeating repeats reads that the server answers with a fault of its own, such as "etcdserver: request timed out":
// one publication takes ten calls, and one fault in each ten would have most of them fail. client-go repeats
// what the server asks to repeat, by Retry-After. Writes are not repeated, since one may have been carried out.
type repeating struct{ http.RoundTripper }

// pauses are the times before reads are repeated.
var pauses = []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, 900 * time.Millisecond}

// RoundTrip implements [http.RoundTripper].
func (t repeating) RoundTrip(r *http.Request) (*http.Response, error) {
	for _, pause := range pauses {
		response, err := t.RoundTripper.RoundTrip(r)
		if err != nil || r.Method != http.MethodGet || !passing(response) {
			return response, err
		}
		select {
		case <-r.Context().Done():
			return response, nil
		case <-time.After(pause/2 + rand.N(pause)): //nolint:gosec // it spreads clients
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16)) // so that the connection can be used again
		_ = response.Body.Close()
	}
	return t.RoundTripper.RoundTrip(r)
}

// WrappedRoundTripper gives client-go the connections to close.
func (t repeating) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// passing reports whether an answer is a fault of the server that may pass soon.
func passing(r *http.Response) bool {
	switch r.StatusCode {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return r.Header.Get("Retry-After") == ""
	}
	return false
}

func (o Options) load() (*rest.Config, error) {
	if o.File == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("connect as a pod: %w", err)
		}
		return config, nil
	}
	config, err := o.client().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", o.File, err)
	}
	return config, nil
}

func (o Options) client() clientcmd.ClientConfig {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: o.File}
	if files := filepath.SplitList(o.File); len(files) > 1 {
		rules = &clientcmd.ClientConfigLoadingRules{Precedence: files}
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.Context})
}

// Protobuf has the clients of a configuration ask for protobuf, which costs both sides less than JSON. They still take JSON.
// It is for the kinds that every cluster has.
func Protobuf(c *rest.Config) {
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
}

// Namespace returns the namespace of the context, or that of the pod, or "" if neither is known.
func (o Options) Namespace() string {
	if o.File == "" {
		data, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(data))
	}
	namespace, _, err := o.client().Namespace()
	if err != nil {
		return ""
	}
	return namespace
}

// Usual returns the file that kubectl uses if none is named: the one that KUBECONFIG names, or else
// ~/.kube/config if it exists. It is "" without either.
func Usual() string {
	if files := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); files != "" {
		return files
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	file := filepath.Join(home, ".kube", "config")
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	return file
}
