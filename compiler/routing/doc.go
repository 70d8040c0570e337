// Package routing is the model of what should be routed where: hosts, routes,
// backends and certificates as typed values, and the translation of Ingress
// objects into them.
//
// Translation is a pure function of the objects. A conflict has one rule, the
// oldest object wins, then namespace/name, and the loser hears of it; an
// object that cannot be translated gets a diagnostic and harms only itself.
// How the model becomes HAProxy configuration is left to the templates.
package routing
