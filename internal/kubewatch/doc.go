// Package kubewatch watches the objects of a cluster that a plan names, and holds what it knows of
// them.
//
// A plan is a list of queries ([Query]). A [Set] watches what its plan has, begins and ends watches as
// the plan changes, and says how far each query has come ([QueryState]). The permissions that a plan
// needs follow from the same queries ([Rules]). Both halves and discovery use it.
//
// It promises that an object is never taken for deleted because it was not found:
//   - While an API server is out of reach, or a permission is gone, or a kind is not known
//     any more, objects are held as they were. Only an answer of the API server takes an
//     object away.
//   - No query is said to be known ([QueryState.Synced]) before all of its objects were listed
//     once. A query that may not be read, and a kind that the cluster does not know, differ
//     from a query that has no objects.
//   - An object that is missing in a list differs from one that the API server says was
//     deleted ([Event.Missing]).
//   - An object that cannot be converted harms no other one: it is held as it was before.
//
// A watch that fails is tried again, at growing intervals. Callers decide what the objects mean and
// what to wait for.
package kubewatch
