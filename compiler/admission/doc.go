// Package admission is a validating admission webhook: an HTTPS server that an
// API server asks before it stores an object. It reads reviews of
// admission.k8s.io/v1, has a [Judge] look at what they are about, and answers
// with the fields that are at fault.
//
// It judges Ingresses and the ConfigMap that holds the configuration, when they
// are created or changed. Everything else is allowed without a look. What cannot
// be judged, in time or at all, is allowed with a warning or denied, as the
// failure policy says.
//
// What makes an object wrong is left to the Judge; whether the server is asked
// at all, and what happens while it cannot be reached, is up to the
// ValidatingWebhookConfiguration.
package admission
