// Package manifests reads Kubernetes objects from files, and keeps the place in the file of everything
// it reads.
//
// A directory is read whole: every .yaml, .yml and .json file below it, each with any number of documents,
// Lists expanded. A document that is not an object becomes a [Problem] and harms only itself. A file that
// cannot be read makes the whole read fail: objects that are merely out of reach must never look deleted.
// Callers decode the kinds that they know with [Object.Decode].
//
// [Watch] says when a directory should be read again.
package manifests
