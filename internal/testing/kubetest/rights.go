package kubetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Grant lets a ServiceAccount do what the rules say in its namespace, and nothing else
// that an earlier Grant said. It makes the account if there is none, and returns the path
// of a kubeconfig for it. From then on the API server allows what the rules say, and
// refuses what they say no more.
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

// write brings objects to what they say.
func (s *Server) write(ctx context.Context, objects ...interface{ IsApplyConfiguration() }) error {
	for _, o := range objects {
		if err := s.client.Apply(ctx, o, client.FieldOwner("kubetest"), client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %T: %w", o, err)
		}
	}
	return nil
}

// isRights tells whether an object decides what accounts may do.
func isRights(o *unstructured.Unstructured) bool {
	return o.GroupVersionKind().Group == rbacv1.GroupName
}

// AwaitRights waits until the API server decides by all Roles, ClusterRoles and bindings
// that were written before. Apply, Delete and Grant call it.
//
// The API server's authorizer learns of what was written from a watch for each of the four
// kinds, a moment later; on a busy machine that moment is long enough to be refused what
// was just allowed. A watch tells of changes in their order. So an authorizer that knows
// objects which are written here, one of each kind, knows all that came before them, what
// was taken away too. Whether it knows them, a SubjectAccessReview tells.
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

// allowed waits until the API server says that a user may do something.
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

// gone waits until an object that was deleted is no more, where something finishes that:
// of a CustomResourceDefinition the API server deletes all objects first, and one that is
// applied meanwhile goes with them.
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
