// Package migrate rewrites the annotations of other ingress controllers into
// ours. A [Dialect] has the rules for one controller: which annotations have an
// equivalent, how a value is translated, and what to do about the others. The
// rules are also the source of docs/reference/migration.md.
//
// Nothing is guessed: a value that has no equivalent leaves its annotation where
// it is, and is reported with its place. What was translated is read back by
// package options, so that an annotation which is written is one that the
// compiler accepts.
//
// # Decisions
//
// Migration adds before it removes. The annotations of another controller stay beside
// ours until the Ingress moves to our class, which it only does if nothing of it was left
// over: at no moment is a route served without what protects it.
package migrate
