// Package announce says in a cluster what becomes of a fleet, as Events: on the pods
// that are its instances, on Secrets that cannot be used, and, where the store is in
// the cluster, on the ConfigMap of its channel, which stands for the fleet as a whole.
//
// What is said is decided by package pusher. It waits for nothing that is done here.
package announce
