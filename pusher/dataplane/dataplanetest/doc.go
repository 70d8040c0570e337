// Package dataplanetest is a Dataplane API v3 for tests and demonstrations, in
// front of a real HAProxy. [Start] makes an instance for a test, [New] one without.
//
// Of the API only the outside is made up. The configuration is taken apart and put
// together by the API's own library, so that its normal form and what it loses
// without a word are the real ones; haproxy -c decides what is valid; and a real
// HAProxy in master-worker mode loads it, answers for its servers, maps and
// certificates, and restarts from what is on disk. What the memory of the API, the
// disk and the worker hold are three things here, as they are there.
//
// [Instance.Inject] makes requests fail in the ways in which they do fail.
package dataplanetest
