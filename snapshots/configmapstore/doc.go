// Package configmapstore keeps snapshots in ConfigMaps of one namespace of a cluster. The store edge
// has
//
//	edge-r000123              snapshot.yaml, and the names of its chunks; immutable
//	edge-r000123-3f2a91c4-000 a piece of a tar.gz with the other files; immutable
//	edge-channel              what people say should run, in a key for each of its fields
//	edge-status               the status of the reader, and what was delivered
//
// The last two are made with the first snapshot, so that readers need not make anything.
//
// It promises that a reader never sees half of anything. A writer creates a manifest first, with a
// label that says it is staged; then its chunks; and changes the label last, which is the only thing
// about the manifest that can be changed. No reader lists or reads what is staged. The revision is in
// the name: of two writers, one gets the answer that the name is taken, and starts again. Every digest
// is verified when a snapshot is read.
//
// A writer that dies leaves something staged. The next one waits for as long as the first may be at
// work, then removes it. If the first was only slow, it finds that its manifest is gone, and starts
// again too. Manifests own their chunks, so that these are deleted with them.
//
// A snapshot that another tool delivers ([Delivered]), from git into a cluster, arrives in any order.
// It has the label delivered from the start, and is a snapshot when all of its chunks are there, which
// the listing alone shows. Nothing owns those chunks: they are deleted by name. Nobody else publishes
// to such a store.
//
// With a list of signers, only what they signed is a snapshot or the channel. The signatures are in
// annotations, so that the listing is enough to tell. What others put there is reported as refused,
// stays where it is, and blocks nobody.
//
// [Store.Follow] reports changes, with one watch of the store's ConfigMaps without their data. It only
// says that a look is worth while, so that a watch which misses something does no harm: readers look
// now and then anyway.
//
// Labels and annotations are only those that this package makes: none are copied from elsewhere. They
// keep Argo CD and Flux from pruning.
//
// # Decisions
//
// In a cluster, a key of the channel's ConfigMap holds everything about one thing: the first line is
// what a person would write, who wrote it and why follow. With a key for each detail, a pin that
// kubectl patch writes would be taken for that of the person who pinned before. A key that is not known
// is an error, since it may be what somebody wanted most. A ConfigMap without any key is an error too:
// somebody emptied it.
//
// A writer claims a revision by its name, which the API server gives to one writer. The claim is the
// manifest, staged: it must be there before its chunks, which it owns, and its label makes it a
// snapshot at the end. Nobody can tell a writer that died from a slow one. So the next writer takes the
// claim away when nothing was added to it for ten seconds; the last call of a slow writer then fails,
// since the object that it changes is gone. After claiming, a writer checks whether its parent is still
// the newest: retention may have freed the name of a revision long past.
package configmapstore
