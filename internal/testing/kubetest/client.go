package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience is how long the API server may take for background work.
const patience = 3 * time.Minute

func newClient(config *rest.Config) (client.Client, error) {
	c, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	return c, nil
}

// Client returns an administrator's client, for all kinds. Kinds outside of client-go's scheme are
// unstructured.
func (s *Server) Client() client.Client { return s.client }

// Namespace makes a namespace for a test, and names it after the test.
func (s *Server) Namespace(tb testing.TB) string {
	tb.Helper()
	name := strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(tb.Name()), "-"), "-")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name[:min(len(name), 50)] + "-"}}
	if err := s.client.Create(tb.Context(), namespace); err != nil {
		tb.Fatal("make a namespace:", err)
	}
	return namespace.Name
}

// Apply applies the objects of YAML documents, by server-side apply. Those without a namespace are in
// "default". It returns when the kinds of CustomResourceDefinitions are served, and when accounts have exactly
// the permissions that roles and bindings give (AwaitRights).
func (s *Server) Apply(tb testing.TB, documents string) {
	tb.Helper()
	if err := s.ApplyYAML(tb.Context(), documents); err != nil {
		tb.Fatal(err)
	}
}

// Delete deletes the objects that YAML documents name. It returns when accounts no longer have the permissions
// of deleted roles and bindings, and when CustomResourceDefinitions are gone with their objects.
func (s *Server) Delete(tb testing.TB, documents string) {
	tb.Helper()
	err := s.each(tb.Context(), documents, func(o *unstructured.Unstructured) error {
		if err := s.client.Delete(tb.Context(), o); err != nil {
			return err
		}
		return s.gone(tb.Context(), o)
	})
	if err != nil {
		tb.Fatal("delete", err)
	}
}

// ApplyYAML is Apply without a test.
func (s *Server) ApplyYAML(ctx context.Context, documents string) error {
	err := s.each(ctx, documents, func(o *unstructured.Unstructured) error {
		apply := client.ApplyConfigurationFromUnstructured(o)
		if err := s.client.Apply(ctx, apply, client.FieldOwner("kubetest"), client.ForceOwnership); err != nil {
			return err
		}
		return s.established(ctx, o)
	})
	if err != nil {
		return fmt.Errorf("apply %w", err)
	}
	return nil
}

// each calls a function that writes with every object of YAML documents. Objects after roles and bindings are
// written when those hold.
func (s *Server) each(ctx context.Context, documents string, do func(*unstructured.Unstructured) error) error {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewBufferString(documents), 4096)
	unknown := false // roles or bindings were written that the API server may not know yet
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(o)
		end := errors.Is(err, io.EOF)
		if err != nil && !end {
			return fmt.Errorf("documents: %w", err)
		}
		if !end && len(o.Object) == 0 {
			continue
		}
		if unknown && !isRights(o) {
			if err := s.AwaitRights(ctx); err != nil {
				return err
			}
		}
		if end {
			return nil
		}
		unknown = isRights(o)
		// An object without the namespace that its kind needs is put in "default".
		namespaced, err := s.client.IsObjectNamespaced(o)
		if err == nil && namespaced && o.GetNamespace() == "" {
			o.SetNamespace(metav1.NamespaceDefault)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
		if err := do(o); err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
}

// established waits until objects of a CustomResourceDefinition can be listed.
func (s *Server) established(ctx context.Context, o *unstructured.Unstructured) error {
	if o.GetKind() != "CustomResourceDefinition" {
		return nil
	}
	list, err := firstList(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := s.client.List(ctx, list)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if !meta.IsNoMatchError(err) && client.IgnoreNotFound(err) != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// firstList is a list of the kind that a CustomResourceDefinition defines, in the
// first version that is served.
func firstList(crd *unstructured.Unstructured) (*unstructured.UnstructuredList, error) {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		if version, ok := v.(map[string]any); ok && version["served"] == true {
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion(fmt.Sprintf("%s/%s", group, version["name"]))
			list.SetKind(kind + "List")
			return list, nil
		}
	}
	return nil, errors.Join(errors.New("no version is served"), err)
}

// ServiceAccount makes a ServiceAccount if there is none, and returns the path of a kubeconfig with a token for
// it. It has only the permissions that RBAC gives it: none, unless the test applies rules; Grant does both.
func (s *Server) ServiceAccount(tb testing.TB, namespace, name string) (kubeconfig string) {
	tb.Helper()
	content, err := s.ServiceAccountConfig(tb.Context(), namespace, name)
	if err != nil {
		tb.Fatal(err)
	}
	kubeconfig = filepath.Join(tb.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, content, 0o600); err != nil {
		tb.Fatal(err)
	}
	return kubeconfig
}

// ServiceAccountConfig is ServiceAccount without a test. It returns the kubeconfig itself.
func (s *Server) ServiceAccountConfig(ctx context.Context, namespace, name string) ([]byte, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := client.IgnoreAlreadyExists(s.client.Create(ctx, account)); err != nil {
		return nil, fmt.Errorf("make ServiceAccount %s/%s: %w", namespace, name, err)
	}
	token := &authenticationv1.TokenRequest{}
	if err := s.client.SubResource("token").Create(ctx, account, token); err != nil {
		return nil, fmt.Errorf("make a token for ServiceAccount %s/%s: %w", namespace, name, err)
	}
	return clientcmd.Write(api.Config{
		Clusters:       map[string]*api.Cluster{"test": {Server: s.env.Config.Host, CertificateAuthorityData: s.env.Config.CAData}},
		AuthInfos:      map[string]*api.AuthInfo{name: {Token: token.Status.Token}},
		Contexts:       map[string]*api.Context{"test": {Cluster: "test", AuthInfo: name, Namespace: namespace}},
		CurrentContext: "test",
	})
}

// Expire restarts the API server so that no watch can continue: all versions that clients have seen are gone,
// and a request for changes after one of them gets 410.
//
// The API server starts with an empty history at etcd's present revision. Expire moves that revision on, past
// all that clients know, and compacts everything before it, so that etcd cannot help either.
func (s *Server) Expire(tb testing.TB) {
	tb.Helper()
	must(tb, s.ExpireAPI(tb.Context()))
}

// ExpireAPI is Expire without a test.
func (s *Server) ExpireAPI(ctx context.Context) error {
	if err := s.StopAPI(); err != nil {
		return err
	}
	if err := s.compacted(ctx); err != nil {
		return err
	}
	return s.ResumeAPI()
}

// compacted is compact, repeated if etcd is slow, since it gives up by itself.
func (s *Server) compacted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := s.compact(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// compact makes etcd forget all revisions except a new one.
func (s *Server) compact(ctx context.Context) error {
	var put struct {
		Header struct{ Revision string }
	}
	for range 2 { // a watch from the revision just before is still served
		if err := s.etcd(ctx, "put", map[string]any{"key": []byte("kubetest/expire"), "value": []byte{}}, &put); err != nil {
			return err
		}
	}
	return s.etcd(ctx, "compaction", map[string]any{"revision": put.Header.Revision, "physical": true}, &struct{}{})
}

// etcd calls etcd's JSON interface, in which bytes are base64.
func (s *Server) etcd(ctx context.Context, method string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	url := s.env.ControlPlane.Etcd.URL.JoinPath("v3", "kv", method).String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("call etcd: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(response.Body, 1024))
		return fmt.Errorf("call etcd's %s: %s: %s", method, response.Status, said)
	}
	return json.NewDecoder(response.Body).Decode(out)
}

// GatewayAPI returns the folder of the CustomResourceDefinitions of the Gateway API's standard channel, as
// its module has them.
func GatewayAPI(tb testing.TB) string {
	tb.Helper()
	dir, err := GatewayAPIFolder()
	if err != nil {
		tb.Fatalf("find the module of the Gateway API: %v", err)
	}
	return dir
}

// GatewayAPIFolder is [GatewayAPI] without a test.
var GatewayAPIFolder = sync.OnceValues(func() (string, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	return filepath.Join(strings.TrimSpace(string(dir)), "config", "crd", "standard"), err
})

// Grant gives a ServiceAccount the permissions of the rules in its namespace, and takes away those of an
// earlier Grant. It makes the account if there is none, and returns the path of a kubeconfig for it. When it
// returns, the API server allows what the rules allow, and refuses everything else.
func (s *Server) Grant(tb testing.TB, namespace, account string, rules []rbacv1.PolicyRule) (kubeconfig string) {
	tb.Helper()
	kubeconfig = s.ServiceAccount(tb, namespace, account)
	said := make([]*rbacapply.PolicyRuleApplyConfiguration, len(rules))
	for n, r := range rules {
		said[n] = rbacapply.PolicyRule().WithAPIGroups(r.APIGroups...).WithResources(r.Resources...).
			WithResourceNames(r.ResourceNames...).WithVerbs(r.Verbs...).WithNonResourceURLs(r.NonResourceURLs...)
	}
	subject := rbacapply.Subject().WithKind(rbacv1.ServiceAccountKind).WithNamespace(namespace).WithName(account)
	must(tb, s.write(tb.Context(),
		rbacapply.Role(account, namespace).WithRules(said...),
		rbacapply.RoleBinding(account, namespace).WithRoleRef(roleRef("Role", account)).WithSubjects(subject),
	))
	must(tb, s.AwaitRights(tb.Context()))
	return kubeconfig
}

func roleRef(kind, name string) *rbacapply.RoleRefApplyConfiguration {
	return rbacapply.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind(kind).WithName(name)
}

// write applies objects.
func (s *Server) write(ctx context.Context, objects ...interface{ IsApplyConfiguration() }) error {
	for _, o := range objects {
		if err := s.client.Apply(ctx, o, client.FieldOwner("kubetest"), client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %T: %w", o, err)
		}
	}
	return nil
}

// isRights reports whether an object decides about permissions.
func isRights(o *unstructured.Unstructured) bool {
	return o.GroupVersionKind().Group == rbacv1.GroupName
}

// AwaitRights waits until the API server applies all Roles, ClusterRoles and bindings that were written before.
// Apply, Delete and Grant call it.
//
// The API server's authorizer learns of them from a watch for each of the four kinds, a moment later. On a busy
// machine that moment is long enough for a request to be refused that was just allowed. A watch reports changes
// in their order. So AwaitRights writes objects, one of each kind. An authorizer that knows them knows all
// changes before them, removals too. A SubjectAccessReview shows whether it knows them.
func (s *Server) AwaitRights(ctx context.Context) error {
	s.rights.Lock()
	defer s.rights.Unlock()
	s.rightsAwaited++
	const name, namespace = "kubetest-rights", metav1.NamespaceDefault
	user := fmt.Sprintf("%s-%d", name, s.rightsAwaited)
	verb := fmt.Sprint("see", s.rightsAwaited)
	rule := func(resource string) *rbacapply.PolicyRuleApplyConfiguration {
		return rbacapply.PolicyRule().WithAPIGroups(name).WithResources(resource).WithVerbs(verb)
	}
	subject := rbacapply.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(rbacv1.UserKind).WithName(user)
	if err := s.write(ctx,
		rbacapply.Role(name, namespace).WithRules(rule("roles")),
		rbacapply.RoleBinding(name, namespace).WithRoleRef(roleRef("Role", name)).WithSubjects(subject),
		rbacapply.ClusterRole(name).WithRules(rule("clusterroles")),
		rbacapply.ClusterRoleBinding(name).WithRoleRef(roleRef("ClusterRole", name)).WithSubjects(subject),
	); err != nil {
		return err
	}
	for resource, in := range map[string]string{"roles": namespace, "clusterroles": ""} {
		attributes := authorizationv1.ResourceAttributes{Namespace: in, Verb: verb, Group: name, Resource: resource}
		if err := s.allowed(ctx, user, attributes); err != nil {
			return err
		}
	}
	return nil
}

// allowed waits until the API server allows a user something.
func (s *Server) allowed(ctx context.Context, user string, what authorizationv1.ResourceAttributes) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &what}}
		err := s.client.Create(ctx, review)
		if err != nil || review.Status.Allowed {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("await that the API server's authorizer knows what it was told: %w: %s", context.Cause(ctx), review.Status.Reason)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// gone waits until a deleted object is gone, if something finishes its deletion. The API server deletes all
// objects of a CustomResourceDefinition first, and objects that are applied meanwhile go with them.
func (s *Server) gone(ctx context.Context, o *unstructured.Unstructured) error {
	if o.GroupVersionKind().GroupKind() != (schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := s.client.Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopy())
		if err != nil {
			return client.IgnoreNotFound(err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("await its end: %w", context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}
