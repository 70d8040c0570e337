// Package loadtest sends requests over raw sockets and counts those that fail. Nothing is
// sent twice: a client of net/http repeats what a server dropped, and hides it. Half of
// the clients make a connection for each request, half keep theirs until the server says
// that it closes it. A connection that the server closes without having said so is a
// request that fails.
package loadtest
