// Package rbac writes what a program needs to be allowed in a cluster as roles, for
// people to look at and to apply. What that is, say the packages that do it.
package rbac
