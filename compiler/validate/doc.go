// Package validate says whether a rendered artifact may be published. It makes
// the checks that HAProxy does not make (whatever the Dataplane API would
// damage without a word, and private keys and values of Secrets), then joins the artifact with
// placeholders for live data and has HAProxy itself check the whole.
//
// What it finds are faults with the origin of the line: the template and the
// objects. An error means that nothing could be found out: no HAProxy, no room
// for the staging directory.
package validate
