// Package provisioner makes a fleet of its own for each Gateway that asks for one: HAProxy, a Service, a compiler
// and a pusher in the Gateway's namespace, with a store of their own (GEP-1762). It renders the chart, which the
// program carries, and applies the objects.
//
// A Gateway asks with spec.infrastructure.parametersRef: {group: hapsnap.dev, kind: Fleet, name: NAME}. Several
// Gateways of a namespace may name one fleet. [Plan] decides which fleets should exist, and [Values] returns
// the values for the chart; both are pure. The operator decides everything else: images, sizes, permissions,
// which namespaces may have fleets and how many, and which ports, labels and annotations a Gateway may add.
//
// # What it promises
//
//   - It overwrites and deletes only objects that it has made. An object counts as made by it if it has the labels
//     of this provisioner and of this very fleet, and, before a deletion, if the record of the fleet names it too.
//     If another object has a name that a fleet needs, it applies nothing of the fleet, and reports that.
//   - "Not found" is never taken for "deleted". It deletes a fleet only after a complete list without a Gateway
//     that names the fleet, a second list of its namespace just before, and a grace. While a class is missing, or
//     if more fleets than [Options].MaxRemovals would be deleted at once, all stay.
//   - A kill at any moment loses nothing. The record of a fleet, a ConfigMap beside the Lease, names every object
//     before it is made and until it is gone, so that the next process can continue.
//   - A fleet that cannot be made harms no other.
//
// # Decisions
//
// Helm's own engine renders the templates. Of Helm only the packages for charts and templates are imported:
// some 30 packages, without releases, registries and plugins. So a fleet is exactly what `helm install` makes
// of the same values.
//
// Objects have no owner references. The garbage collector would delete a fleet as soon as its Gateway goes,
// without a grace, without the bound of MaxRemovals, and also if somebody deleted a CustomResourceDefinition by
// mistake. A Gateway that joins another one's fleet would have to be added to every object first.
//
// The provisioner records what it made, and does not search by labels. A list of every kind in all namespaces
// takes the permission to list every kind. And the next process would forget kinds of other projects, which the
// operator's values may contain. The record is in the provisioner's own namespace, where no tenant writes.
//
// The store of a deleted fleet stays, as when Helm uninstalls a release: its namespace has the history. It
// counts as a fleet of its namespace until somebody deletes it, so that tenants cannot fill the cluster with
// stores. And the provisioner needs no permission to delete namespaces.
//
// It holds the permissions that it grants, and has neither escalate nor bind: with these it could make anybody
// an administrator. By default a fleet may read only its own namespace. People who may run pods there may use
// the fleet's accounts.
//
// Of either half it knows only one constant: how a Gateway names a fleet, in the compiler's configuration.
package provisioner
