// Package validate decides whether a rendered artifact may be published. It makes the checks that
// HAProxy does not make (text that the Dataplane API would damage without an error, and private keys
// and values of Secrets), then joins the artifact with placeholders for live data and has HAProxy
// itself check the whole.
//
// It returns faults with the origin of the line: the template and the objects. An error means that the
// check could not be made: no HAProxy, or no room for the staging directory.
package validate
