// Package migrate rewrites the annotations of other ingress controllers into ours. A [Dialect] has the
// rules for one controller: which annotations have an equivalent, how a value is translated, and what
// to do about the others. docs/reference/migration.md is generated from the rules.
//
// It never guesses: an annotation whose value has no equivalent stays, and is reported with its place.
// Package options reads what was translated, so that the compiler accepts each annotation that is
// written.
// # Decisions
//
// Migration adds before it removes. The annotations of another controller stay beside ours until the
// Ingress moves to our class, which it does only if everything was translated: at no moment is a route
// served without its protection.
package migrate
