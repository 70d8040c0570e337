// Package imagetest makes the images of the Dockerfile without Docker: what their last
// stages copy, from this machine's HAProxy and a build of our programs. The stages are read
// from the Dockerfile itself, and what they run to collect files is run.
//
// Digests are of a tar archive that is written here. A library for layers, such as
// go-containerregistry, takes such an archive as its input: it would add a dependency and
// remove no line.
//
// The Dataplane API is the double, or what the variable DATAPLANEAPI names.
package imagetest
