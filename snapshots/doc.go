// Package snapshots is the contract between the compiler and the pusher: the artifact, its
// manifest, its ID and digest, and how it is verified.
//
// Start at [Snapshot]: a list of files and a [Manifest]. The compiler makes a [Draft]. A
// store seals it ([Draft.Seal]). The pusher reads it back and calls [Snapshot.Verify]. The
// package promises that a snapshot is read whole and verified or not at all, and that its
// digest depends on nothing but its content.
//
// The packages below work with snapshots:
//
//   - channel decides which snapshot should run, and which ones a store keeps;
//   - bind joins a snapshot with live data, for one HAProxy instance;
//   - request leads a request through the rules and maps of a snapshot;
//   - routetable lists what a snapshot routes;
//   - difference compares two snapshots, for people;
//   - live reads live data from EndpointSlices and Secrets;
//   - dirstore, gitstore and configmapstore are the stores. The contract suite in storetest
//     tests all of them, and stores opens one by its URL.
package snapshots
