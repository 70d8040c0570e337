// Package instancetest runs what the pods of charts/hapsnap run, as far as no image is
// needed: the first configuration, as Helm renders it.
package instancetest
