// Package instancetest runs what the pods of charts/hapsnap run, as far as no image is
// needed: the scripts and the first configuration, as Helm renders them, with a real HAProxy.
package instancetest
