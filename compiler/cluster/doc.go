// Package cluster reads the objects of a compile from a Kubernetes cluster, and
// keeps them up to date by watching.
//
// What is watched follows from the configuration and from the names that compiles
// met ([Plan]); what may be watched by nothing else than the rules made of the same
// plan ([Rules]). Objects are held as they are read for a compile, without the
// fields that no compile looks at.
//
// It promises that nothing is said of the objects before all of them are known, and
// that what cannot be reached any more is held as it was: only the API server says
// that an object is gone. Writing to the cluster is left to others.
package cluster
