// Package rbac writes the permissions that a program needs in a cluster as roles, for people to read
// and to apply. The packages that use the permissions list them.
package rbac

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/internal/process"
)

// Scope says how many of the tenants' objects a program may read.
type Scope struct {
	// Named limits the permissions to the Secrets and other objects that are named now. If others are named
	// later, the roles have to be applied again.
	Named bool
	// Namespaces are the namespaces that may be read; empty means all.
	Namespaces []string
}

// Scopes are the completions of a flag --scope.
var Scopes = []string{"cluster\tall objects, as with other ingress controllers", "named\twhat is named now", "namespaces=\tthe objects of some namespaces"}

// ScopeHelp is the help text of a flag --scope.
const ScopeHelp = "which objects of tenants may be read: cluster, as with other ingress controllers; namespaces=NAMESPACE,...; or named, only the Secrets and namespaces that are named now"

// ParseScope reads "cluster", "named" or "namespaces=NAMESPACE,...".
func ParseScope(text string) (Scope, error) {
	switch list, isList := strings.CutPrefix(text, "namespaces="); {
	case text == "cluster":
		return Scope{}, nil
	case text == "named":
		return Scope{Named: true}, nil
	case isList:
		namespaces := strings.Split(list, ",")
		slices.Sort(namespaces)
		if namespaces = slices.Compact(namespaces); namespaces[0] != "" {
			return Scope{Namespaces: namespaces}, nil
		}
	}
	return Scope{}, process.WithHint(process.Usage("--scope=%s is none that there is", text), "use cluster, named, or namespaces= with a list such as shop,blog")
}

// OfTenants returns the grants of a concern for objects of tenants: one for each namespace, or one for all.
func (s Scope) OfTenants(grant Grant) []Grant {
	if len(s.Namespaces) == 0 {
		grant.Namespace = ""
		return []Grant{grant}
	}
	var out []Grant
	for _, grant.Namespace = range s.Namespaces {
		out = append(out, grant)
	}
	return out
}

// Grant is a permission for one concern, in one namespace, or in all if that is "".
type Grant struct {
	Concern   string // what it is for; it ends the name of the role
	Namespace string
	Rules     []rbacv1.PolicyRule
}

// compare orders grants by namespace, and by concern.
func (g Grant) compare(other Grant) int {
	return cmp.Or(cmp.Compare(g.Namespace, other.Namespace), cmp.Compare(g.Concern, other.Concern))
}

// Join adds further grants to existing ones, sorted by namespace and concern. It leaves out rules that are
// there already.
func Join(grants []Grant, more ...Grant) []Grant {
	out := slices.Clone(grants)
	for _, g := range more {
		i, found := slices.BinarySearchFunc(out, g, Grant.compare)
		if !found {
			out = slices.Insert(out, i, Grant{Concern: g.Concern, Namespace: g.Namespace})
		}
		out[i].Rules = slices.Clip(out[i].Rules)
		for _, rule := range g.Rules {
			if !slices.ContainsFunc(out[i].Rules, func(o rbacv1.PolicyRule) bool { return o.String() == rule.String() }) {
				out[i].Rules = append(out[i].Rules, rule)
			}
		}
	}
	return out
}

// Roles are all the objects by which a service account gets its permissions: the account, the namespaces, and a
// role with its binding for each grant. Each role has a unique name, so that the roles of one verb do not
// replace those of another verb.
type Roles struct {
	Component, Name string
	Account         types.NamespacedName
	// Namespaces are created too, beside that of the account.
	Namespaces []string
	Grants     []Grant
	// People are roles without bindings: the administrator of the cluster binds them to people.
	People []Grant
}

// YAML returns the manifests in the order in which they can be applied.
func (r Roles) YAML() ([]byte, error) {
	var out bytes.Buffer
	for _, o := range r.objects() {
		text, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("write roles: %w", err)
		}
		if out.Len() > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

func (r Roles) objects() []any {
	var out []any
	namespaces := append([]string{r.Account.Namespace}, r.Namespaces...)
	slices.Sort(namespaces)
	for _, namespace := range slices.Compact(namespaces) {
		if ours(namespace) {
			out = append(out, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}})
		}
	}
	out = append(out, map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{
		"name": r.Account.Name, "namespace": r.Account.Namespace, "labels": r.labels(),
	}})
	for _, g := range r.Grants {
		out = append(out, r.role(g), r.binding(g))
	}
	for _, g := range r.People {
		out = append(out, r.role(g))
	}
	return out
}

// ours reports whether people, and not the cluster itself, create a namespace of this name.
func ours(namespace string) bool {
	return namespace != "" && namespace != corev1.NamespaceDefault && !strings.HasPrefix(namespace, "kube-")
}

func (r Roles) labels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "hapsnap", "app.kubernetes.io/component": r.Component}
}

func (r Roles) meta(g Grant) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: r.Name + "-" + g.Concern, Namespace: g.Namespace, Labels: r.labels()}
}

func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

func (r Roles) role(g Grant) any {
	if g.Namespace == "" {
		return rbacv1.ClusterRole{TypeMeta: typeOf("ClusterRole"), ObjectMeta: r.meta(g), Rules: g.Rules}
	}
	return rbacv1.Role{TypeMeta: typeOf("Role"), ObjectMeta: r.meta(g), Rules: g.Rules}
}

func (r Roles) binding(g Grant) any {
	meta := r.meta(g)
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: r.Account.Namespace, Name: r.Account.Name}}
	refTo := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: meta.Name}
	}
	if g.Namespace == "" {
		return rbacv1.ClusterRoleBinding{TypeMeta: typeOf("ClusterRoleBinding"), ObjectMeta: meta, Subjects: subjects, RoleRef: refTo("ClusterRole")}
	}
	return rbacv1.RoleBinding{TypeMeta: typeOf("RoleBinding"), ObjectMeta: meta, Subjects: subjects, RoleRef: refTo("Role")}
}
