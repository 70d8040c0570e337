// Package kubewatch watches the objects of a cluster that a plan names, and holds what
// it knows of them.
//
// A plan is a list of queries ([Query]). A [Set] watches what its plan has, begins and
// ends watches as the plan changes, and says how far each query has come ([QueryState]). What a
// plan needs to be allowed follows from the same queries ([Rules]). Both halves use it,
// and discovery.
//
// It promises that what was not found is never taken for what is not there:
//
//   - While an API server is out of reach, or a permission is gone, or a kind is not known
//     any more, objects are held as they were. Only an answer of the API server takes an
//     object away.
//   - Nothing is said to be known ([QueryState.Synced]) before all objects of a query were
//     listed once. A query that may not be read, and a kind that the cluster does not know,
//     are told apart from one that has no objects.
//   - An object that a list came without is told apart from one that the API server says
//     was deleted ([Event.Missing]).
//   - An object that cannot be used harms no other one: it is held as it was before.
//
// Watches are tried again and again, ever more seldom. What to make of the objects, and
// what to wait for, is left to the callers.
package kubewatch
