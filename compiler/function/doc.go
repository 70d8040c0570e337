// Package function is the compiler as a KRM function: it takes a ResourceList,
// compiles its items, and adds the snapshot as a ConfigMap. kustomize and kpt run it
// as a generator, whose objects are in files, and as a transformer, whose objects
// went through other functions before.
//
// What the compiler reports are results of the list, and with an error among them
// the function fails and adds nothing: what runs it is a build, where somebody can
// mend what is wrong.
//
// # Decisions
//
// The function gives a ConfigMap, one for a snapshot, named by its content: an object
// that every tool for KRM can carry and prune, and whose files people can read in a diff.
// A key of a ConfigMap has no slash; two dots stand for it, which no path has. Nothing
// reads these ConfigMaps yet, so that they promise no more than the files and the
// manifest.
//
// In a build nothing is left out. compiler run serves the rest of a cluster when one
// object is at fault; whoever builds is there to mend it, and would not see it.
package function
