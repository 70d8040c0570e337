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
//
// # Decisions
//
// Objects of a cluster are held by reflectors, one for each query, not by shared
// informers, of which they are the core: nothing here handles single events, and the
// Secrets that are read by name may be thousands. What the API server sends is converted
// and trimmed before it is held. A change that no compile can see, such as that of a
// status, makes no compile.
package cluster
