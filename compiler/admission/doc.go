// Package admission is a validating admission webhook: an HTTPS server that an API server asks before
// it stores an object. It reads reviews of admission.k8s.io/v1, has a [Judge] check their objects, and
// answers with the fields that are at fault.
//
// It judges Ingresses, the kinds of the Gateway API that the compiler reads, and the ConfigMap that holds the
// configuration, when they are created or changed.
// It allows everything else unread. An object that it cannot judge, in time or at all, is allowed with
// a warning or denied, depending on the failure policy.
//
// The Judge decides what makes an object wrong. The ValidatingWebhookConfiguration decides whether the
// server is asked at all, and what happens while it cannot be reached.
package admission
