// Package gitstore keeps snapshots on a branch of a git repository, one commit
// for each:
//
//	refs/heads/edge            the newest snapshot: its files at the root, and snapshot.yaml
//	refs/tags/edge/r000123-…   each snapshot by its name
//	refs/heads/edge-channel    channel.yaml, which people may edit in pull requests
//
// A snapshot that is delivered into a cluster also has the files of package [delivery]. So
// `git log -p haproxy.cfg` shows what changed, any revision can be fetched by its name without its
// history, and one `git ls-remote` answers a poll.
//
// With a branch for review ([Options.Review]) the compiler writes to another branch, and people merge
// that into the branch of the store. The store then takes the tags of the other branch, and publishes
// nothing to its own.
//
// If a snapshot was made of many objects, their names and versions are in small files in the folder
// inputs ([snapshots.Manifest.Split]), and not in snapshot.yaml. Git stores each changed file as a
// whole; with 10,000 routes this one file took five times as much as all the others.
//
// [Options.Key] signs commits. With [Options.Allowed], the store holds commits that no allowed signer
// has signed.
//
// The package promises that it never pushes by force: each push names the tip that it was built on,
// and the server refuses it if the tip has moved. A commit that is no snapshot is [ErrForeign], and a
// branch that went back is [ErrRewound]. Both are reported, and hold the store until a person decides.
// If the answer to a push is lost, the store looks at the branch; commit IDs are reproducible, so that
// this is enough. A repository that cannot be reached is an error, and never an empty store.
//
// The package speaks git's wire protocol, and does not use go-git's Fetch and Push. Those walk
// histories, and negotiate by what is stored locally. Here a push is one pack, built in memory, with
// the objects that the tip does not have, and a fetch asks for one commit at depth 1. So the thousandth
// snapshot costs as much as the tenth. The bare repository on disk is a cache of this process alone. A
// fresh one replaces it every 50 fetches, since go-git never packs or collects. The server itself looks
// at every reference for each push, and at the objects that they name; that costs little if its gc packs
// them, and if old snapshots are deleted.
//
// A remote is a path, file://, https://, ssh://, or, on the same host only, http://. The git that is
// installed serves paths and file://. Credentials are in files ([Credentials]), which are read for each
// connection; no message contains them. The package never talks to an SSH server whose key it does not
// know. No call takes longer than its context allows, or than two minutes.
//
// # Decisions
//
// In git, each snapshot also has a tag (<branch>/<id>), pushed atomically with the
// branch, so that one ls-remote lists everything, and any revision can be fetched at
// depth 1. The channel lives on a branch of its own (<branch>-channel), which people may
// edit in pull requests without meeting the one-writer rule of the snapshot branch.
//
// Credentials of git remotes are files, read for each connection: a mounted Secret changes
// while a program runs, and a flag or a URL shows in lists of processes. The text of a
// server's refusal is not repeated, since it may contain what the server was sent. A call
// does not repeat what was refused; the loops around it try again at their own pace.
//
// An SSH host key is known or refused, and never learned. There is no SSH agent: go-git
// opens one connection to the agent for each connection to the server, and closes none.
//
// git+http:// works for the same host only, for tests and proxies. Elsewhere it would send
// the token in the clear.
package gitstore
