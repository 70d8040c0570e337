// Package charttest tests charts/hapsnap: each of its ci/*-values.yaml is linted, rendered
// by Helm 4 and Helm 3, given to a real API server that enforces Pod Security, and compared
// with what the programs themselves say of their flags, files and permissions. What needs
// HAProxy is in package instancetest.
//
// Helm is built by `make test` into build/helm, or by `make helm` alone. HELM_ASSETS
// names another folder.
package charttest
