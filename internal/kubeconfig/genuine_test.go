package kubeconfig

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// reply is what a server answers to one path.
type reply struct {
	code int
	kind string // the media type
	body string
}

const (
	asJSON  = "application/json"
	asText  = "text/plain; charset=utf-8"
	asProto = runtime.ContentTypeProtobuf
	groups  = `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"gateway.networking.k8s.io","versions":[{"groupVersion":"gateway.networking.k8s.io/v1","version":"v1"}]}]}`
	kinds   = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"gateway.networking.k8s.io/v1","resources":[{"name":"gateways","kind":"Gateway","namespaced":true},{"name":"gatewayclasses","kind":"GatewayClass","namespaced":false}]}`
	noPage  = "404 page not found\n"
)

// served starts a server that answers paths, and returns how to reach it, by a URL with a path such as that of a proxy.
func served(t *testing.T, replies map[string]reply) *rest.Config {
	t.Helper()
	const base = "/k8s/clusters/c-1"
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, ok := strings.CutPrefix(r.URL.Path, base)
		a, known := replies[path]
		if !ok || !known {
			a = reply{http.StatusNotFound, asText, noPage}
		}
		if w.Header()["Content-Type"] = nil; a.kind != "" {
			w.Header().Set("Content-Type", a.kind)
		}
		if r.Header.Get("Authorization") != "Bearer secret" {
			a = reply{http.StatusUnauthorized, asText, "who is it?"}
		}
		w.WriteHeader(a.code)
		fmt.Fprint(w, a.body)
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	authority := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: %q, certificate-authority-data: %s}}]\nusers: [{name: a, user: {token: secret}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n", server.URL+base, authority)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := Options{File: path}.Load()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// What says a server about one ConfigMap, and what follows from that.
func TestForeignAnswers(t *testing.T) {
	t.Parallel()
	status := func(code int, reason metav1.StatusReason, kind string) string {
		return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"details":{"name":"edge","kind":%q}}`, reason, code, kind)
	}
	packed, err := runtime.Encode(scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), schema.GroupVersion{Version: "v1"}),
		&metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound, Details: &metav1.StatusDetails{Name: "edge", Kind: "configmaps"}})
	if err != nil {
		t.Fatal(err)
	}
	const page = "<!doctype html><title>Back soon</title>"
	for _, test := range []struct {
		name string
		reply
		want string
	}{
		{"it is there", reply{200, asJSON, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"edge"}}`}, "found"},
		{"it is there, in another order", reply{200, asJSON, ` {"data": {"kind": "x"}, "metadata":{"name":"edge"}, "kind":"ConfigMap","apiVersion":"v1"}`}, "found"},
		{"it is not there", reply{404, asJSON, status(404, metav1.StatusReasonNotFound, "configmaps")}, "missing"},
		{"it is not there, packed", reply{404, asProto, string(packed)}, "missing"},
		{"it may not be read", reply{403, asJSON, status(403, metav1.StatusReasonForbidden, "configmaps")}, "forbidden"},
		{"it is too busy", reply{429, asText, "Too many requests"}, "other"},
		{"it has a fault", reply{507, asText, "fault"}, "other"},
		{"a bare 404", reply{404, asText, noPage}, "foreign"},
		{"an empty 404", reply{404, "", ""}, "foreign"},
		{"a 404 of a gateway", reply{404, asJSON, `{"message":"no Route matched with those values"}`}, "foreign"},
		{"a Status about no object", reply{404, asJSON, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"cluster not found"}`}, "foreign"},
		{"a 404 that looks packed", reply{404, asProto, protobufMagic + "\xff\xff"}, "foreign"},
		{"a 403 of a firewall", reply{403, "text/html", page}, "foreign"},
		{"a 410 of a page", reply{410, "text/html", page}, "foreign"},
		{"a page", reply{200, "text/html", page}, "foreign"},
		{"nothing", reply{200, "", ""}, "foreign"},
		{"no object", reply{200, asJSON, `{"status":"maintenance"}`}, "foreign"},
		{"an empty object", reply{200, asJSON, `{}`}, "foreign"},
		{"an object of another API", reply{200, asJSON, `{"kind":"error","message":"maintenance"}`}, "foreign"},
		{"an object without a kind", reply{200, asJSON, `{"apiVersion":"v1","error":"maintenance"}`}, "foreign"},
		{"an array", reply{200, asJSON, `[]`}, "foreign"},
		{"what is not packed", reply{200, asProto, page}, "foreign"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			client, err := kubernetes.NewForConfig(served(t, map[string]reply{"/api/v1/namespaces/shop/configmaps/edge": test.reply, "/apis": {200, asJSON, groups}}))
			if err != nil {
				t.Fatal(err)
			}
			found, err := client.CoreV1().ConfigMaps("shop").Get(t.Context(), "edge", metav1.GetOptions{})
			if got := followsFrom(found, err); got != test.want {
				t.Errorf("%s: %v, want %s", got, err, test.want)
			}
			err = client.CoreV1().ConfigMaps("shop").Delete(t.Context(), "edge", metav1.DeleteOptions{})
			if got := followsFrom(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "edge"}}, err); got != test.want {
				t.Errorf("after deletion %s: %v, want %s", got, err, test.want)
			}
		})
	}
}

func followsFrom(o *corev1.ConfigMap, err error) string {
	switch {
	case errors.Is(err, ErrForeign):
		return "foreign"
	case apierrors.IsNotFound(err):
		return "missing"
	case apierrors.IsForbidden(err):
		return "forbidden"
	case err != nil:
		return "other"
	case o.Name != "edge":
		return "another"
	}
	return "found"
}

// What answers a list or a watch in place of an API server takes no object of a cluster away.
func TestForeignLists(t *testing.T) {
	t.Parallel()
	const version = "/apis/gateway.networking.k8s.io/v1"
	for _, test := range []struct {
		name string
		reply
		list, watch string
	}{
		{"an empty list", reply{200, asJSON, `{"kind":"GatewayList","apiVersion":"gateway.networking.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}`}, "found", "foreign"},
		{"an empty list, in another order", reply{200, asJSON, `{"apiVersion":"gateway.networking.k8s.io/v1","items":[],"kind":"GatewayList","metadata":{"resourceVersion":"1"}}`}, "found", "foreign"},
		{"an empty list, in a third order", reply{200, asJSON, `{"items":[],"apiVersion":"gateway.networking.k8s.io/v1","kind":"GatewayList","metadata":{"resourceVersion":"1"}}`}, "found", "foreign"},
		{"all is well", reply{200, asJSON, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`}, "foreign", "foreign"},
		{"a kind of something else", reply{200, asJSON, `{"kind":"error","message":"maintenance"}`}, "foreign", "foreign"},
		{"a kind and a version of something else", reply{200, asJSON, `{"apiVersion":"1.0","kind":"error","message":"maintenance"}`}, "foreign", "foreign"},
		{"no object", reply{200, asJSON, `{}`}, "foreign", "foreign"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			client, err := dynamic.NewForConfig(served(t, map[string]reply{version + "/gateways": test.reply}))
			if err != nil {
				t.Fatal(err)
			}
			resource := client.Resource(schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"})
			_, err = resource.List(t.Context(), metav1.ListOptions{})
			if got := followsFrom(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "edge"}}, err); got != test.list {
				t.Errorf("%s: %v, want %s", got, err, test.list)
			}
			_, err = resource.Watch(t.Context(), metav1.ListOptions{})
			if got := followsFrom(&corev1.ConfigMap{}, err); got != test.watch {
				t.Errorf("of a watch %s: %v, want %s", got, err, test.watch)
			}
		})
	}
}

// Nobody follows what sends requests elsewhere, such as to a page for signing in: it would get the token.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1); r.Header.Get("Authorization") != "" {
			t.Error("it got the token")
		}
		w.Header().Set("Content-Type", asJSON)
		fmt.Fprint(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"edge"}}`)
	}))
	t.Cleanup(elsewhere.Close)
	before := httptest.NewTLSServer(http.RedirectHandler(elsewhere.URL, http.StatusFound))
	t.Cleanup(before.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: %q, certificate-authority-data: %s}}]\nusers: [{name: a, user: {token: secret}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n", before.URL,
		base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: before.Certificate().Raw})))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := Options{File: path}.Load()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().ConfigMaps("shop").Get(t.Context(), "edge", metav1.GetOptions{})
	if !errors.Is(err, ErrForeign) || asked.Load() != 0 {
		t.Errorf("%v, and something else was asked %d times", err, asked.Load())
	}
}

// An API server answers a bare 404 for a kind that it does not know. That counts if its lists say so too.
func TestUnknownKinds(t *testing.T) {
	t.Parallel()
	const version = "/apis/gateway.networking.k8s.io/v1"
	for _, test := range []struct {
		name     string
		resource string
		replies  map[string]reply
		want     string
	}{
		{"no group", "gateways", map[string]reply{"/apis": {200, asJSON, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`}}, "missing"},
		{"no resource", "tcproutes", map[string]reply{"/apis": {200, asJSON, groups}, version: {200, asJSON, kinds}}, "missing"},
		{"no resource in namespaces", "gatewayclasses", map[string]reply{"/apis": {200, asJSON, groups}, version: {200, asJSON, kinds}}, "missing"},
		{"a resource", "gateways", map[string]reply{"/apis": {200, asJSON, groups}, version: {200, asJSON, kinds}}, "foreign"},
		{"no list of resources", "tcproutes", map[string]reply{"/apis": {200, asJSON, groups}}, "foreign"},
		{"no list of groups", "gateways", nil, "foreign"},
		{"a page", "gateways", map[string]reply{"/apis": {200, "text/html", "<!doctype html>"}}, "foreign"},
		{"no object", "gateways", map[string]reply{"/apis": {200, asJSON, "{}"}}, "foreign"},
		{"no object for the resources", "tcproutes", map[string]reply{"/apis": {200, asJSON, groups}, version: {200, asJSON, "{}"}}, "foreign"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			client, err := dynamic.NewForConfig(served(t, test.replies))
			if err != nil {
				t.Fatal(err)
			}
			resource := client.Resource(schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: test.resource}).Namespace("shop")
			_, err = resource.List(t.Context(), metav1.ListOptions{})
			if got := followsFrom(&corev1.ConfigMap{}, err); got != test.want {
				t.Errorf("%s: %v, want %s", got, err, test.want)
			}
			_, err = resource.Watch(t.Context(), metav1.ListOptions{})
			if got := followsFrom(&corev1.ConfigMap{}, err); got != test.want {
				t.Errorf("of a watch %s: %v, want %s", got, err, test.want)
			}
		})
	}
}
