// Package gitstore keeps snapshots on a branch of a git repository, one commit
// for each:
//
//	refs/heads/edge            the newest snapshot: its files at the root, and snapshot.yaml
//	refs/tags/edge/r000123-…   each snapshot by its name
//	refs/heads/edge-channel    channel.yaml, which people may edit in pull requests
//
// and, where it is to be delivered into a cluster, what [delivery] adds to the tree; so
// that `git log -p haproxy.cfg` shows what changed, any revision can be
// fetched by its name without its history, and one `git ls-remote` says all
// that a poll asks for.
//
// With a branch for review ([Options.Review]) the branch is people's: they merge into
// it what the compiler wrote to the other one, whose tags are then the store's, and
// nothing is published to it.
//
// Where a snapshot was made of many objects, their names and versions stand in small files in the
// folder inputs ([snapshots.Manifest.Split]), and not in snapshot.yaml. Git keeps each file that
// changed as a whole, and among 10,000 routes this one file was five times as much as all the others.
//
// Commits are signed with [Options.Key], and those of strangers are held where
// [Options.Allowed] says who is none.
//
// It promises that nothing is ever pushed by force: each push names the tip
// that it was built on, and is refused if the tip is another by then. A commit
// that is no snapshot, or a branch that went back, is [ErrForeign] or
// [ErrRewound]: reported and held until a person has decided. An answer that is
// lost after a push is resolved by looking; the commit ids are reproducible, so
// looking is enough. A repository that cannot be reached is an error and never
// an empty store.
//
// The repository is spoken to on the level of its wire protocol, and not with
// go-git's Fetch and Push. Those walk histories, and negotiate by what is stored
// locally; here, a push is one pack with the objects that the tip does not have,
// built in memory, and a fetch asks for one commit at depth 1 and says that it
// has nothing. So the thousandth snapshot costs a store as much as the tenth, and
// what is kept on disk is only a cache: a bare repository of this process alone,
// replaced by a fresh one every 50 fetches, since go-git never packs or
// collects. The repository itself looks at every reference, and at what it
// names, for each push; that is little once its gc has packed them, and where
// old snapshots are deleted.
//
// Remotes are file:// and paths, served by the git that is installed, https://,
// which http:// stands in for on the same host, and ssh://. Their credentials are in
// files ([Credentials]), read for each connection, and in no text of ours. An SSH
// server whose key is not known is never spoken to. No call takes longer than its
// context says, nor than two minutes.
//
// # Decisions
//
// In git, each snapshot also has a tag (<branch>/<id>), pushed atomically with the
// branch, so that one ls-remote lists everything, and any revision can be fetched at
// depth 1. The channel lives on a branch of its own (<branch>-channel), which people may
// edit in pull requests without meeting the one-writer rule of the snapshot branch.
//
// Credentials of git remotes are files, read for each connection. What is mounted from a
// Secret changes while a program runs, and what is in a flag or a URL is in lists of
// processes. What a server says when it refuses is not repeated: it could be what it was
// sent. A refusal is not tried again within a call; the loops around it do, at their
// pace.
//
// An SSH host key is known or refused, and never learned. There is no SSH agent: go-git
// opens one connection to it for each to the server, and closes none.
//
// git+http:// is for the host itself, where tests and proxies are. Elsewhere the token
// would go in the clear.
package gitstore
