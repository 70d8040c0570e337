// Package dirstore keeps snapshots in a directory, for people, demos and
// tests:
//
//	PATH/snapshots/r000123-9f3ac01b2d/   haproxy.cfg, snapshot.yaml, maps/ …
//	PATH/channel.yaml                    what people say should run
//
// It promises that a reader never sees half of anything: a snapshot is written
// beside the others under a name that begins with a dot, brought to the disk,
// and then renamed; so is the channel. Nothing is tidied up on the way out of a
// failure, since a killed process would not do it either: the next writer does.
// Writers exclude each other, in one process or several, with a lock on
// PATH/.lock; readers take no lock and may have the directory read-only.
//
// A directory that is not there is an error for readers, and is made by the
// first Publish. The directory is local: locks of network file systems are not
// relied on by anything that must not be lost, but racing writers there may
// fail.
package dirstore
