package announce

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/events"
)

func ingress(name, uid string, has ...string) inputs.Object[networkingv1.Ingress] {
	value := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid), ResourceVersion: "1"}}
	value.Status.LoadBalancer.Ingress = addresses(has)
	return inputs.Object[networkingv1.Ingress]{Ref: ref(name), Value: value}
}

func ref(name string) diag.Object {
	return diag.Object{Kind: "Ingress", Namespace: "shop", Name: name}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	class := inputs.Object[networkingv1.IngressClass]{
		Ref:   diag.Object{Kind: "IngressClass", Name: "edge"},
		Value: &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "edge", UID: "u2"}},
	}
	in := inputs.Inputs{
		Ingresses: []inputs.Object[networkingv1.Ingress]{ingress("web", "u1"), ingress("file", "")},
		Classes:   []inputs.Object[networkingv1.IngressClass]{class},
	}
	found := []diag.Diagnostic{
		{Severity: diag.Error, Object: ref("web"), Position: diag.Position{Field: "spec.rules[0].host"}, Message: "no host", Hint: "give one"},
		{Severity: diag.Error, Object: ref("web"), Position: diag.Position{Field: "spec.rules[0].host"}, Message: "no host", Hint: "give one"},
		{Severity: diag.Warning, Object: ref("web"), Message: "strange"},
		{Severity: diag.Warning, Object: class.Ref, Message: "unused"},
		{Severity: diag.Error, Object: ref("file"), Position: diag.Position{File: "web.yaml", Line: 3}, Message: "is in a file"},
		{Severity: diag.Error, Object: ref("gone"), Message: "is not there"},
		{Severity: diag.Error, Message: "a template is at fault"},
	}
	web := corev1.ObjectReference{APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Namespace: "shop", Name: "web", UID: "u1"}
	field := web
	field.FieldPath = "spec.rules[0].host"
	want := []events.Event{
		{Regarding: field, Action: action, Type: "Warning", Reason: LeftOut, Note: "spec.rules[0].host: no host; hint: give one"},
		{Regarding: web, Action: action, Type: "Warning", Reason: Faulty, Note: "strange"},
		{Regarding: corev1.ObjectReference{APIVersion: "networking.k8s.io/v1", Kind: "IngressClass", Name: "edge", UID: "u2"}, Action: action, Type: "Warning", Reason: Faulty, Note: "unused"},
	}
	got := Events(in, found)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	mended := good(in, leftOut(found), map[diag.Object]bool{})
	if diff := cmp.Diff([]events.Event{{Regarding: web, Action: action, Type: "Normal", Reason: Accepted, Note: "no part of it is left out any more"}}, mended); diff != "" {
		t.Error(diff)
	}
}

// Every kind of the Gateway API that the compiler reads has Events.
func TestEventsOfGateways(t *testing.T) {
	t.Parallel()
	for _, kind := range inputs.GatewayKinds() {
		var in inputs.Inputs
		object := kind.New()
		object.SetName("web")
		object.SetNamespace("shop")
		object.SetUID("u1")
		in.Gateway.Add(object)
		about := inputs.RefOf(inputs.GatewayVersion, kind.Name, "shop", "web")
		got := Events(in, []diag.Diagnostic{{Severity: diag.Error, Object: about, Position: diag.Position{Field: "spec.rules[0]"}, Message: "is not supported"}})
		want := []events.Event{{
			Regarding: corev1.ObjectReference{APIVersion: inputs.GatewayVersion, Kind: kind.Name, Namespace: "shop", Name: "web", UID: "u1", FieldPath: "spec.rules[0]"},
			Action:    action, Type: "Warning", Reason: LeftOut, Note: "spec.rules[0]: is not supported",
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(kind.Name, diff)
		}
	}
}

// A note that is too long is cut between two characters. A note that is not UTF-8 is converted.
func TestNotesAreCut(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("x", 1024), strings.Repeat("x", 1025), strings.Repeat("ä", 600), "x" + strings.Repeat("ä", 600), strings.Repeat("€", 400), "\xff" + strings.Repeat("😀", 300)} {
		got := note(diag.Diagnostic{Message: text})
		if len(got) > 1024 || len(got) < 1000 || !utf8.ValidString(got) {
			t.Errorf("%d bytes of %d, valid %v", len(got), len(text), utf8.ValidString(got))
		}
		if (len(text) > 1024) != strings.HasSuffix(got, "…") {
			t.Errorf("%d bytes end with %q", len(text), got[len(got)-3:])
		}
	}
}

// References are those of wanted objects that an API server has.
func TestReferences(t *testing.T) {
	t.Parallel()
	web, file, other := ingress("web", "u1"), ingress("file", ""), ingress("other", "u2")
	in := inputs.Inputs{Ingresses: []inputs.Object[networkingv1.Ingress]{web, file, other}}
	got := references(in, map[diag.Object]bool{web.Ref: true, file.Ref: true})
	if len(got) != 1 || got[web.Ref].UID != "u1" {
		t.Error(fmt.Sprint(got))
	}
}
