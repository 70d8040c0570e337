// Package credentials fills Secrets with what two programs of a release share: a user
// name with a password, or a certificate that one of them serves and the other verifies.
// Nothing of it is made when a chart is rendered.
//
// Somebody else makes the Secrets, without any data, so that a [Maker] needs no right to
// create Secrets. It fills one that has no data, and renews what it has written. It writes
// by the Secret's resourceVersion: of several that fill the same Secret one succeeds, and
// the others take what that one wrote.
//
// # What is never touched
//
// A Maker notes in the annotation [Annotation] the digest of the data that it wrote. It
// changes a Secret only if that is still the data, or if there is none. What people wrote,
// or edited, is theirs: if it cannot be used, or expires soon, the Maker reports that.
// A Secret that is gone, or that may not be read, is reported too, and not made anew.
//
// # How a certificate is renewed
//
// A certificate is its own authority: there is no key that could sign others. Two thirds
// into its life the next one is made and put into ca.crt beside the present one, while
// servers go on with the present one. It is served an hour later, if what verifies it has
// taken the new ca.crt, and the one before stays in ca.crt until it expires. So a client
// with the old ca.crt meets the old certificate, and servers may take up the new one as late
// as they like. A certificate that nobody can use any more, such as one that has expired,
// is replaced at once.
//
// A password is made once, and renewed when people ask for it with [RenewAnnotation]. The
// next user is noted in the Secret beside the present one, so that servers take both, and an
// hour later it is the only one. So no call is refused meanwhile. The same annotation
// has a certificate renewed before its time.
package credentials
