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
// # How HAProxy is started
//
// With the configuration on disk, which the pusher wrote. A container whose HAProxy cannot
// start with it would start again and again, and nobody could bring another one: the Dataplane
// API needs a HAProxy that runs. So HAProxy goes back to the first configuration, after a few
// attempts. It serves nobody, /ready fails and says why, the worker's node is "bootstrap", and
// the pusher brings the instance what it should run.
//
// The same happens to a configuration that HAProxy starts with and does not survive: one
// that takes more memory than the container has, or that a worker crashes with. When three
// starts in a row ended within seconds, the next one is with the first configuration. A file
// counts them, for the end of a container is the end of this program too.
//
// It does not go back to the last configuration that started. Such a copy has endpoints that
// may be another tenant's by now, names files that the pusher has removed since, and would be
// ready with what a rollback took away. What is in the way of one configuration, such as a
// port that is taken, or certificates that were lost with the node's memory, is mostly in the
// way of the other too: private keys are kept nowhere else.
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
