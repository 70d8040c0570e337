// Package imagetest makes the images of the Dockerfile without Docker: what their last
// stages copy, from this machine's HAProxy and a build of our programs. The stages are read
// from the Dockerfile itself, and what they run to collect files is run.
//
// The Dataplane API is the double, or what the variable DATAPLANEAPI names.
package imagetest
