// Package instancetest runs what the pods of charts/hapsnap run, as far as that needs no image: the first
// configuration, as Helm renders it.
package instancetest
