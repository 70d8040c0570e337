// Package request leads a request through the files of a snapshot: which listener takes it, which lines of maps
// match, which rule decides, and which backend gets it.
//
// It reads haproxy.cfg as HAProxy does, rule by rule, and knows nothing of Ingresses: an explanation is
// of what runs, whatever templates and objects wrote it. It evaluates the part of HAProxy's language that
// decides about requests in the shipped templates. A rule that it cannot evaluate is reported as such,
// and never guessed; compiler/sandbox has a real HAProxy answer where that has to be known.
//
// What depends on more than the request and the snapshot is left open: counters of clients, passwords,
// services that authenticate, and client certificates.
package request
