package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/consts"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// release is the release of the Gateway API whose types are read, such as "v1.6". Its patches change no field.
var release = consts.BundleVersion[:strings.LastIndex(consts.BundleVersion, ".")]

// api is what the CustomResourceDefinitions say of a cluster's Gateway API.
type api struct {
	// bundles are the versions of their bundles, sorted, "" for one that has none; without any, nothing is known.
	bundles []string
	// unread says that some of them may not be read.
	unread bool
	// experimental says that all of them are of the experimental channel.
	experimental bool
	// served are the versions of each kind that there is.
	served map[string][]string
}

func apiOf(in inputs.Inputs) api {
	out := api{served: map[string][]string{}, experimental: len(in.Gateway.Definitions) > 0}
	for _, d := range in.Gateway.Definitions {
		out.bundles = append(out.bundles, d.Value.Bundle())
		out.experimental = out.experimental && d.Value.IsExperimental()
		out.served[d.Value.Spec.Names.Kind] = d.Value.Serves()
	}
	slices.Sort(out.bundles)
	out.bundles = slices.Compact(out.bundles)
	out.unread = slices.ContainsFunc(in.Unread, func(o diag.Object) bool { return o.Kind == inputs.DefinitionKind })
	return out
}

// reads reports whether objects of a kind can be read: those of v1.
func (a api) reads(kind string) bool {
	return len(a.bundles) == 0 || a.unread || slices.Contains(a.served[kind], "v1")
}

// unsupported reports whether a bundle is of another release than that whose types are read.
func unsupportedBundle(bundle string) bool {
	patch, is := strings.CutPrefix(bundle, release+".")
	return !is || patch == "" || strings.Trim(patch, "0123456789") != ""
}

// version is the condition of a class that says whether the cluster's version is supported. Objects are read
// all the same, as well as this release can.
func (a api) version(generation int64) metav1.Condition {
	c := metav1.Condition{Type: string(gatewayv1.GatewayClassConditionStatusSupportedVersion), ObservedGeneration: generation}
	switch {
	case slices.ContainsFunc(a.bundles, unsupportedBundle):
		c.Status, c.Reason = metav1.ConditionFalse, string(gatewayv1.GatewayClassReasonUnsupportedVersion)
		c.Message = a.unsupported() + "; an object with a field that is not known is not accepted"
	case a.unread:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NotPermitted", "the compiler may not read the CustomResourceDefinitions of the Gateway API"
	case len(a.bundles) == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "NotFound", "there is no CustomResourceDefinition of the Gateway API that says a version"
	default:
		c.Status, c.Reason = metav1.ConditionTrue, string(gatewayv1.GatewayClassReasonSupportedVersion)
	}
	return c
}

func (a api) unsupported() string {
	var named []string
	for _, b := range a.bundles {
		named = append(named, cmp.Or(b, "no version"))
	}
	return fmt.Sprintf("the CustomResourceDefinitions are of %s, and %s is supported", strings.Join(named, " and "), release)
}

// warnings are what an operator has to know of the cluster's version, sorted.
func (a api) warnings() []diag.Diagnostic {
	const install = "install the CustomResourceDefinitions of "
	var out []diag.Diagnostic
	warn := func(hint, format string, args ...any) {
		out = append(out, diag.Diagnostic{Severity: diag.Warning, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	if slices.ContainsFunc(a.bundles, unsupportedBundle) {
		warn(install+release, "%s", a.unsupported())
	}
	if a.unread {
		warn("apply the roles that `compiler rbac` prints", "the compiler may not read the CustomResourceDefinitions of the Gateway API, and does not know their version")
		return out
	}
	for _, k := range inputs.GatewayKinds() {
		kind := k.Name
		versions, is := a.served[kind]
		switch {
		case a.reads(kind):
		case is:
			lost := ""
			if kind == policyKind {
				lost = "; servers are spoken to as if there were none"
			}
			warn(install+release, "objects %s of %s are not read%s: the cluster has no v1 of them", kind, cmp.Or(strings.Join(versions, ", "), "no version"), lost)
		case kind == policyKind:
			warn(install+release, "the cluster has no %s: TLS to servers can only be asked for by annotations", kind)
		}
	}
	return out
}

const policyKind = "BackendTLSPolicy"
