package rbac

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// Grant is what is allowed in a namespace, or with "" in all of them.
type Grant struct {
	Namespace string
	Rules     []rbacv1.PolicyRule
}

// Join adds further grants to some, sorted by namespace.
func Join(grants []Grant, more ...Grant) []Grant {
	out := slices.Clone(grants)
	for _, g := range more {
		i, found := slices.BinarySearchFunc(out, g.Namespace, func(of Grant, namespace string) int {
			return cmp.Compare(of.Namespace, namespace)
		})
		if !found {
			out = slices.Insert(out, i, Grant{Namespace: g.Namespace})
		}
		out[i].Rules = append(slices.Clip(out[i].Rules), g.Rules...)
	}
	return out
}

// Roles returns the manifests by which a service account is granted something: roles
// of that name, labelled with the component that they are for, and the bindings.
func Roles(grants []Grant, component, name string, account types.NamespacedName) ([]byte, error) {
	var out bytes.Buffer
	for _, g := range grants {
		for _, o := range g.roles(component, name, account) {
			text, err := yaml.Marshal(o)
			if err != nil {
				return nil, fmt.Errorf("write roles: %w", err)
			}
			if out.Len() > 0 {
				out.WriteString("---\n")
			}
			out.Write(text)
		}
	}
	return out.Bytes(), nil
}

// roles returns the role for a grant and its binding.
func (g Grant) roles(component, name string, account types.NamespacedName) [2]any {
	meta := metav1.ObjectMeta{Name: name, Namespace: g.Namespace, Labels: map[string]string{"app.kubernetes.io/name": "hapsnap", "app.kubernetes.io/component": component}}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}}
	typeOf := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	refTo := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	if g.Namespace == "" {
		return [2]any{
			rbacv1.ClusterRole{TypeMeta: typeOf("ClusterRole"), ObjectMeta: meta, Rules: g.Rules},
			rbacv1.ClusterRoleBinding{TypeMeta: typeOf("ClusterRoleBinding"), ObjectMeta: meta, Subjects: subjects, RoleRef: refTo("ClusterRole")},
		}
	}
	return [2]any{
		rbacv1.Role{TypeMeta: typeOf("Role"), ObjectMeta: meta, Rules: g.Rules},
		rbacv1.RoleBinding{TypeMeta: typeOf("RoleBinding"), ObjectMeta: meta, Subjects: subjects, RoleRef: refTo("Role")},
	}
}
