// Package dirstore keeps snapshots in a directory, for people, demos and tests:
//
//	PATH/snapshots/r000123-9f3ac01b2d/   haproxy.cfg, snapshot.yaml, maps/ …
//	PATH/channel.yaml                    what people say should run
//
// It promises that a reader never sees half of anything: a snapshot is written beside the others under
// a name that begins with a dot, brought to the disk, and then renamed; so is the channel. A writer
// that fails leaves its unfinished files, since a killed process could not remove them either: the next
// writer does. Writers exclude each other, in one process or several, with a lock on PATH/.lock.
// Readers take no lock and may have the directory read-only.
//
// A directory that does not exist is an error for readers; the first Publish makes it. The directory
// should be local: where a network file system has no working locks, racing writers may fail, but
// nothing is lost.
package dirstore
