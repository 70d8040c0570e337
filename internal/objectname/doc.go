// Package objectname reads and orders the names of objects in namespaces, as people write them:
// NAMESPACE/NAME. It does not check whether an object can have such a name.
package objectname
