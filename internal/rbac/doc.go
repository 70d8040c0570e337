// Package rbac writes the permissions that a program needs in a cluster as roles, for people to read
// and to apply. The packages that use the permissions list them.
package rbac
