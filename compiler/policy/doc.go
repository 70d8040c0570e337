// Package policy holds what can be asked of the requests of a route and of the
// servers of a backend, as plain values: filters, which change a request or its
// answer, protection, which refuses requests, and how servers are spoken to.
//
// The values say nothing of where they were asked for, so that annotations and
// Gateway API routes become the same ones, and nothing of HAProxy's keywords,
// which are for the templates to write. A value that was made by package options
// is valid: text in it has no line break or control character.
package policy
