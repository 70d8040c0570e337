package kubeconfig

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ErrForeign means that something else answered in place of the API server, such as a proxy, a load balancer, or a page of
// maintenance. Such an answer says nothing about the objects of the cluster.
var ErrForeign = errors.New("this is no answer of a Kubernetes API server")

// genuine returns [ErrForeign] for answers that are not those of an API server. client-go takes any 404 for an object that is
// not there, and any JSON object for an empty list: a load balancer without a backend would make snapshots, pins and Ingresses
// disappear.
type genuine struct {
	http.RoundTripper
	base string // of the paths of the API server
}

// telling are the codes from which clients conclude what exists, what changed, and what an account may do. An API server
// explains them by a Status. It may answer other errors in any form, and nobody concludes anything from them.
var telling = []int{http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusUnprocessableEntity}

// maxRead is how much is read of an answer that may be a Status, or a list of kinds. The API server limits requests to 3 MiB,
// and a Status names fields of one. A list of kinds has some kilobytes.
const maxRead = 4 << 20

// WrappedRoundTripper gives client-go the connections to close.
func (t genuine) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t genuine) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return response, err
	}
	is := true
	switch {
	case slices.Contains(telling, response.StatusCode):
		is, err = t.refuses(r, response)
	case response.StatusCode >= 300 && response.StatusCode < 400:
		is = response.StatusCode == http.StatusNotModified // client-go would follow, and give its token to whoever is there
	case response.StatusCode >= 200 && response.StatusCode < 300 && !t.isPlain(r.URL.Path):
		is, err = t.succeeds(r, response)
	}
	if err == nil && !is {
		err = foreign(response)
	}
	if err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	return response, nil
}

// parts returns the parts of a path after that of the API server.
func (t genuine) parts(path string) []string {
	return strings.Split(strings.Trim(strings.TrimPrefix(path, t.base), "/"), "/")
}

// resource returns the parts of a path that name objects, nil if it names a version of the API at most.
func (t genuine) resource(path string) []string {
	part := t.parts(path)
	version := 2 // of the core group: /api/v1
	if part[0] == "apis" {
		version = 3
	}
	if len(part) <= version {
		return nil
	}
	return part[version:]
}

// isPlain reports whether an API server answers a path with what is no object: its version, its health, and descriptions of
// the API.
func (t genuine) isPlain(path string) bool {
	path = strings.TrimPrefix(path, t.base)
	return slices.ContainsFunc([]string{"/version", "/healthz", "/livez", "/readyz", "/openapi/"}, func(plain string) bool { return strings.HasPrefix(path, plain) })
}

func isWatch(r *http.Request) bool {
	watch := r.URL.Query().Get("watch")
	return watch != "" && watch != "0" && watch != "false"
}

// objectForm matches how API servers begin an object or a list in JSON. The groups are its kind, which a list may say later.
var objectForm = regexp.MustCompile(`^\s*\{\s*(?:"kind"\s*:\s*"([^"]+)"\s*,\s*"apiVersion"\s*:\s*"[^"]+"\s*,\s*"metadata"|` +
	`"apiVersion"\s*:\s*"[^"]+"\s*,\s*(?:"kind"\s*:\s*"([^"]+)"\s*,\s*"metadata"|"items"))\s*:`)

// beginning is how much of an answer is looked at to see whether it is an object.
const beginning = 256

// protobufMagic begins every answer in protobuf.
const protobufMagic = "k8s\x00"

// succeeds reports whether a success is one of an API server: it answers with an object, or in a watch with a stream of them,
// whose length nobody knows.
func (t genuine) succeeds(r *http.Request, response *http.Response) (bool, error) {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case isWatch(r):
		return kind != "text/html" && kind != "" && response.ContentLength < 0, nil
	case kind != runtime.ContentTypeJSON && kind != runtime.ContentTypeProtobuf:
		return false, nil
	}
	first := make([]byte, beginning)
	n, err := io.ReadFull(response.Body, first)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return false, err
	}
	first = first[:n]
	response.Body = rejoined{io.MultiReader(bytes.NewReader(first), response.Body), response.Body}
	if kind == runtime.ContentTypeProtobuf {
		return bytes.HasPrefix(first, []byte(protobufMagic)), nil
	}
	if m := objectForm.FindSubmatch(first); m != nil {
		return answers(r, cmp.Or(string(m[1]), string(m[2]), "List")), nil
	}
	whole, err := io.ReadAll(response.Body) // another server may order the fields in another way
	if err != nil {
		return false, err
	}
	response.Body = rejoined{bytes.NewReader(whole), response.Body}
	var object struct {
		Kind     string           `json:"kind"`
		Metadata *json.RawMessage `json:"metadata"`
	}
	if err := json.Unmarshal(whole, &object); err != nil {
		return false, nil //nolint:nilerr // it is no object
	}
	// Those without may be kinds of the API, a Status, or reviews, which are created and kept nowhere.
	stored := object.Kind != "Status" && r.Method != http.MethodPost && t.resource(r.URL.Path) != nil
	return answers(r, object.Kind) && (object.Metadata != nil || !stored), nil
}

// answers reports whether an object of a kind may be the answer to a request. Clients would take a Status for an empty list.
func answers(r *http.Request, kind string) bool {
	return kind != "" && (kind != "Status" || r.Method != http.MethodGet)
}

// rejoined is a body of which something was read.
type rejoined struct {
	io.Reader
	io.Closer
}

// refuses reports whether the API server refuses a request. It says by a Status why. Of a 404, the Status names what does not
// exist. If it names nothing, or if there is no Status, the kind does not exist, so the lists of kinds must lack it.
func (t genuine) refuses(r *http.Request, response *http.Response) (bool, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxRead))
	if err != nil {
		return false, err
	}
	response.Body = rejoined{bytes.NewReader(body), response.Body}
	status, is := statusIn(body)
	switch {
	case response.StatusCode != http.StatusNotFound:
		return is, nil
	case is && status.Details != nil && status.Details.Kind != "":
		return true, nil
	}
	return t.lacks(r), nil
}

// statusIn returns the Status that an answer is.
func statusIn(body []byte) (status metav1.Status, is bool) {
	if rest, packed := bytes.CutPrefix(body, []byte(protobufMagic)); packed {
		var unknown runtime.Unknown
		is = unknown.Unmarshal(rest) == nil && unknown.Kind == "Status" && status.Unmarshal(unknown.Raw) == nil
		return status, is
	}
	is = json.Unmarshal(body, &status) == nil && status.Kind == "Status"
	return status, is
}

// lacks asks the API server whether it serves the kind of a request, and reports whether it certainly does not: the group and
// version are not in its list, or the resource is not in theirs, or not in namespaces. Every API server serves the core group.
func (t genuine) lacks(r *http.Request) bool {
	part := t.parts(r.URL.Path)
	if len(part) < 3 || part[0] != "apis" {
		return false
	}
	version := part[1] + "/" + part[2]
	var groups metav1.APIGroupList
	if !t.list(r, "/apis", &groups) || groups.Kind != "APIGroupList" {
		return false
	}
	served := slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool {
		return slices.ContainsFunc(g.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.GroupVersion == version })
	})
	if !served {
		return true
	}
	resource, namespaced := t.resource(r.URL.Path), false
	if len(resource) > 2 && resource[0] == "namespaces" {
		resource, namespaced = resource[2:], true
	}
	var resources metav1.APIResourceList
	if len(resource) == 0 || !t.list(r, "/apis/"+version, &resources) || resources.Kind != "APIResourceList" {
		return false
	}
	name := resource[0]
	if len(resource) > 2 {
		name += "/" + resource[2] // a subresource, such as status
	}
	return !slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == name && (r.Namespaced || !namespaced) })
}

// list reads a list of kinds with the credentials of a request, and reports whether that went well.
func (t genuine) list(r *http.Request, path string, into any) bool {
	ask := r.Clone(r.Context())
	ask.Method, ask.Body, ask.GetBody, ask.ContentLength = http.MethodGet, nil, nil, 0
	ask.URL.Path, ask.URL.RawPath, ask.URL.RawQuery = t.base+path, "", ""
	ask.Header.Set("Accept", runtime.ContentTypeJSON)
	ask.Header.Del("Content-Type")
	response, err := t.RoundTripper.RoundTrip(ask)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxRead))
	return err == nil && response.StatusCode == http.StatusOK && json.Unmarshal(body, into) == nil
}

// foreign returns the error for a foreign answer.
func foreign(response *http.Response) error {
	const shown = 80
	body, _ := io.ReadAll(io.LimitReader(response.Body, shown))
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	line, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	return fmt.Errorf("%w, but that of something before it: %d, %s, %q", ErrForeign, response.StatusCode, cmp.Or(kind, "without a type"), line)
}
