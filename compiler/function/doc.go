// Package function is the compiler as a KRM function: it takes a ResourceList,
// compiles its items, and adds the snapshot as a ConfigMap. kustomize and kpt run it
// as a generator, whose objects are in files, and as a transformer, whose objects
// went through other functions before.
//
// What the compiler reports are results of the list, and with an error among them
// the function fails and adds nothing: what runs it is a build, where somebody can
// mend what is wrong.
package function
