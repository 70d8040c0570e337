// Package election chooses one of several processes of a program to be the one that
// acts: of several compilers the one that publishes, of several pushers the one that
// pushes. It does so with a Lease, through client-go's elector.
//
// A process leads from the moment its Lease was written until the renew deadline
// after the last time it was, counted from when the request was sent. Others
// take the Lease over only when its longer duration has passed without a
// renewal, so that no two lead at once, however long a process was paused. What
// is done while leading is done with a context that ends with it: see
// [Elector.Term]. A process that loses the Lease goes on and can lead again.
//
// Clocks need not agree, only to run at about the same speed. What was sent may
// still arrive after its context has ended; that such a late write does no harm is
// up to the sender: see packages compiler and pusher.
package election
