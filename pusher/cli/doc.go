// Package cli holds the commands of the pusher: flags into options, options into a
// run, and what comes of it printed.
//
// [NewCommand] returns a tree of cobra commands. It may be the root of a program or
// stand below another command, and any number of trees may exist in one process. What
// a command needs of its program comes through cobra: the streams, set with SetIn,
// SetOut and SetErr, and the context, given to ExecuteContext. Commands return their
// errors, with the exit code in a [process.ExitError]; they neither print errors nor
// end the process. process.Main does both.
//
// # Decisions
//
// recover takes the snapshot from beside the pusher's state, and from the instance only
// which one it is. A haproxy.cfg on an instance is rewritten by its API and joined with
// values of Secrets: what was made of it would be another content, which reloads the
// fleet, and might hold what belongs in no store.
package cli
