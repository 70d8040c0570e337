// Package layers holds the rules about which package may import which, and finds
// what breaks them.
//
// The two programs have two identities: the compiler holds no credentials of
// HAProxy and the pusher never renders. That is only true while no import, direct
// or through another package, leads from one half to the other. The linter says
// so for direct imports while one types; the test here says it for all of them.
//
// Nothing but that test uses this package.
package layers
