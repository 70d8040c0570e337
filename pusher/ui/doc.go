// Package ui is the page of a fleet: who runs what, how far a rollout is, what changed and who
// did it. It is read-only. Where a person wants to act, it shows the command to copy.
//
// A [Source] says what the page is made of: a running pusher hands out values that nobody changes
// any more, and everybody else reads the store and the status that a pusher publishes. A [Server]
// makes pages of it. Each tab is one Go file and one template, and tabs() lists them.
//
// A page is complete without JavaScript. It consists of parts, and one stream of server-sent
// events brings those parts that changed. There is one renderer for all viewers, and no viewer is
// waited for: who is slow gets the newest state when it is ready for it. See stream.go.
//
// Pages hold no value of a Secret and no key. They get nothing that could hold one.
package ui
