// Package configmapstore keeps snapshots in ConfigMaps of one namespace of a
// cluster. The store edge has
//
//	edge-r000123              snapshot.yaml, and the names of its chunks; immutable
//	edge-r000123-3f2a91c4-000 a piece of a tar.gz with the other files; immutable
//	edge-channel              what people say should run, in a key for each of its fields
//	edge-status               what the reader says of itself, and what was delivered
//
// The last two are made with the first snapshot, so that readers need not make anything.
//
// It promises that a reader never sees half of anything. A manifest is created
// first, with a label that says that it is staged; its chunks are created then;
// and the label is changed last, which is the only thing about it that can be
// changed. Nobody lists or reads what is staged. The revision is in the name, so
// of two writers one is told that the name is taken, and looks again. Every digest
// is verified when a snapshot is read.
//
// A writer that dies leaves something staged. The next one waits for as long as it
// may be at work, then removes it; the dead one, if it was only slow, finds that
// its manifest is gone, and looks again too. Chunks are owned by their manifest, so
// that they go with it.
//
// What another tool delivers of a snapshot ([Delivered]), from git into a cluster, comes
// in any order. It has the label delivered from the start, and is a snapshot when all
// of its chunks are there, which the listing alone shows. Nothing owns those chunks:
// they are deleted by name. Nobody else publishes to such a store.
//
// With a list of who may sign, only what is signed by them is a snapshot or the channel; the
// signatures are in annotations, so that the listing tells. What others put there is left
// where it is, told as refused, and in nobody's way.
//
// What changes can be followed ([Store.Follow]), by one watch of the store's ConfigMaps
// and without their data. It only says that a look is worth while, so that a watch
// which misses something does no harm: readers look now and then anyway.
//
// Labels and annotations are those that are made here, and no others: nothing is
// copied from what made the store. They keep Argo CD and Flux from pruning.
//
// # Decisions
//
// In a cluster, a key of the channel's ConfigMap is all that is said of one thing: the
// first line is what a person would write, who and why follow. With a key for each
// detail, a pin that kubectl patch writes would be taken for that of the person who pinned
// before. A key that is not known is an error, since it may be what somebody wanted most,
// and so is a ConfigMap without any: it was emptied.
//
// A revision in ConfigMaps is claimed by its name, which the API server gives to one
// writer. The claim is the manifest, staged: it must be there before its chunks, which it
// owns, and its label makes it a snapshot at the end. Nobody can tell a writer that died
// from a slow one, so the next takes the claim away when nothing was added to it for ten
// seconds; then the slow one's last call fails, for the object that it changes is gone.
// After claiming, a writer looks whether its parent is still the newest: retention may
// have freed the name of a revision long past.
package configmapstore
