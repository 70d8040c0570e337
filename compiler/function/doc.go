// Package function is the compiler as a KRM function: it takes a ResourceList, compiles its items, and
// adds the snapshot as a ConfigMap. kustomize and kpt run it as a generator, whose objects are in
// files, and as a transformer, whose objects went through other functions before.
//
// The compiler's diagnostics become results of the list. If there is an error among them, the function
// fails and adds nothing: it runs in a build, where somebody can mend the fault.
// # Decisions
//
// The function adds one ConfigMap for a snapshot, named by its content: an object that every tool for
// KRM can carry and prune, and whose files people can read in a diff. A key of a ConfigMap has no
// slash; two dots stand for it, which no path has. Nothing reads these ConfigMaps yet, so that they
// promise no more than the files and the manifest.
//
// A build leaves nothing out. compiler run serves the rest of a cluster when one object is at fault;
// the person who builds is there to mend it, and would not see that it was left out.
package function
