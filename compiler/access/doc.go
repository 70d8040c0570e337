// Package access says who is let in where options of an object ask for it: users of a Secret, networks of a
// ConfigMap, clients of a country, and those that a Service lets in that is
// asked; and which agents are asked about their requests.
//
// It has two phases. Finding (demand.go) is pure: it looks at options and Services, and names Secrets and
// ConfigMaps. A [Taker] takes what was named into a model, with findings on what cannot be had: then the routes that
// it protects are to be closed.
package access
