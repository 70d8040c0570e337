// Package election chooses one of several processes of a program to be the one that acts: of several
// compilers the one that publishes, of several pushers the one that pushes. It uses a Lease, through
// client-go's elector.
//
// A process leads until the renew deadline after its last write of the Lease, counted from when it sent
// the request. Other processes take the Lease over only when its longer duration has passed without a
// renewal, so that no two lead at once, however long a process was paused. What a process does while it
// leads, it does with a context that ends with its term: see [Elector.Term]. A process that loses the
// Lease goes on and can lead again.
//
// Clocks need not agree, but must run at about the same speed. A request may still arrive after its
// context has ended. Senders have to make sure that such a late write does no harm: see packages
// compiler and pusher.
package election
