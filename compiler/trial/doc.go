// Package trial runs what was compiled in a HAProxy of its own, and says who
// answers a request: which server of which backend, or HAProxy itself.
//
// Nothing of a trial can be reached from another machine, and it reaches
// nothing: HAProxy listens on sockets in a directory that is its user's alone,
// every server line leads to a server of the trial's own on the loopback, and
// logs, statistics sockets and the like are left out. What HAProxy decides, by
// maps, rules, certificates, cookies or Lua, it decides as it will where the
// snapshot is pushed.
//
// Every Service has one endpoint, which is up and answers 200 to whatever it is
// asked, over HTTP/1.1, HTTP/2, TLS or FastCGI; so does a service that
// authenticates. Requests are over HTTP/1.1, with TLS where that is asked for, and
// come from whatever address is asked for.
//
// # Decisions
//
// A trial encloses the configuration that will be pushed, as text. Compiling anew for
// other addresses would try another configuration, and templates may write bind and
// server lines of their own. The bound haproxy.cfg has its bind lines made sockets that
// clients reach with a PROXY header, so that they have whatever address a test gives them
// and no port has to be free, and its server lines lead to servers of the trial's: those
// of templates too, so that no request leaves the machine. Nothing is added to what
// decides.
package trial
