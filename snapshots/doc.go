// Package snapshots is the contract between the compiler and the pusher: the
// artifact, its manifest, its ID and digest, and how it is verified.
//
// Start at [Snapshot]: a list of files and a [Manifest]. The compiler makes a
// [Draft], a store seals it ([Draft.Seal]), and the pusher reads it back and calls
// [Snapshot.Verify]. The package promises that a snapshot is read whole and verified
// or not at all, and that its digest depends on nothing but its content.
//
// What happens to snapshots stands in the packages below:
//
//   - channel: which snapshot should run, and which ones a store keeps;
//   - bind: what one HAProxy instance gets of a snapshot, joined with live data;
//   - difference: two snapshots compared, for people;
//   - live: the live data, read from EndpointSlices and Secrets;
//   - dirstore, gitstore and configmapstore: the stores, which hold to the one
//     contract suite in storetest; stores opens one by its URL.
package snapshots
