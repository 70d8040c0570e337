// Package inputs holds the Kubernetes objects that one compile is made from, as typed values that know
// their positions, and gathers them from manifests. It holds objects of the kinds that the
// configuration names with their content, as it is written.
//
// An object that breaks its schema gets a diagnostic and is left out; objects of kinds that the
// compiler does not read are counted. This package also decides which objects the configuration
// selects, in the same way for files and for a cluster. Package ingress decides what the objects mean.
// # Decisions
//
// Objects of the kinds that the configuration names are kept as content, in addition to the typed value
// of a kind that is read anyway. Their schema is not known, so that a probe cannot tell a mistake of a
// template from one of an object. So what fails at an object counts as the object's fault, and the
// template is executed again without it: a loop that fails at many of them needs few rounds. A template
// that asks for a kind which the configuration does not name makes a mistake: a misspelt kind would
// otherwise have no objects, for ever and without a word.
//
// What a cluster selects is selected here once more, by the same function as for files, so that a
// directory and a cluster that hold the same give the same.
package inputs
