// Package bootstrap starts an instance in a pod: the program of the same name is the
// command of three containers.
//
//	bootstrap prepare       lays out the shared folders, and copies itself into one of them
//	bootstrap haproxy       runs HAProxy, and drains it when it gets SIGTERM or SIGUSR1
//	bootstrap dataplaneapi  writes the Dataplane API's file, and runs it
//
// Settings come from the environment, see [Settings]. The first container has an image
// with this program; the others run the copy of it, whatever their image is.
//
// # How HAProxy is drained
//
// A signal starts it, and both signals do the same: which one a kubelet sends is a matter
// of the image. /ready fails at once, for the load balancers that ask there. HAProxy then
// serves as before for as long as others may need to hear that the pod ends. After that the
// frontends are shut down one by one through HAProxy's own socket, all but the one of
// health and metrics: connections finish, and what is measured meanwhile can be seen.
// A soft stop of the whole process would close that frontend too. It comes last, when no
// connection is left.
//
// HAProxy's keyword grace is not used. A worker that a reload replaces waits too, and
// goes on to accept connections with the configuration that was replaced.
package bootstrap
