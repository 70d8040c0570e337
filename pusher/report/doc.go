// Package report has what a pusher says of itself as plain values: the [Status] with its
// instances and troubles, the [Condition] that sums it up, and the form in which it is
// published where people read it who may not read the state.
//
// Package observe makes a Status of what the pusher knows. The verbs status, history, wait
// and rollback read it. A Status has no secrets.
package report
