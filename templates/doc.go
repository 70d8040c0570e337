// Package templates holds the templates that hapsnap ships, embedded. They are
// Go's text/template, one file per section of haproxy.cfg:
//
//	haproxy/*.cfg   the sections of haproxy.cfg, in the order of their names
//	maps/*          one map each
//	files/*         one file each, such as crt-lists
//	partials/*.cfg  parts that several sections include by name
//	extend/*.cfg    empty parts, there to be filled by an overlay
//
// A template that begins with {{- /* each backend */ -}} (or host, or
// certificate, listener, or connections: a backend of whole connections) is
// executed once for each of them, any other one once. Maps and files can be made
// for each listener, whose name then follows their own: maps/sni_https.map. What
// templates can read and call is documented in compiler/render.
package templates
