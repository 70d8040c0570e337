// Package objectname reads and orders the names of objects in namespaces, as people
// write them: NAMESPACE/NAME. Whether an object can have such a name is left to callers.
package objectname
